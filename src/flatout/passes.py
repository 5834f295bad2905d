"""One epoch, or one pass of evaluate or predict: chunks of steps, each told to the callbacks by the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .engines.rewind import Snapshot
from .ledger import Ledger
from .prepare import Prepared


@dataclass
class Pass:
    """What came of a pass.

    Attributes:
        logs: The last step's logs.
        outputs: Every step's outputs, of predict.
        steps: Steps taken.
    """

    logs: Any = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    steps: int = 0


def run_pass(model: Any, prepared: Prepared, ledger: Ledger) -> Pass:
    """Run all steps of an epoch, or those up to the one at which a callback stops it."""
    program, order = prepared.program, prepared.order
    done = Pass()
    first, count, begins = order.begin_epoch()
    if begins:
        program.begin_pass(order.rows_of_pass)
    while done.steps < count:
        start, stop = done.steps, ledger.next_stop(done.steps, count, program.unit, program.longest)
        ledger.begin(start)
        if ledger.single_steps:
            program.renew(is_first=False)
        saved = Snapshot(model, prepared.engine) if ledger.may_rewind and stop - start > 1 else None
        results = program.run(first + start, first + stop, ledger.every_step)
        try:
            reached = ledger.end(start, stop, count, results)
        except BaseException:
            if saved is not None and ledger.told < stop:
                saved.restore()
                program.run(first + start, first + ledger.told, False)
            raise
        if ledger.keeps_outputs:
            done.outputs.extend(results[: reached - start])
        if reached < stop and saved is not None:
            # Stopped inside the chunk: the steps after that one must not have happened.
            saved.restore()
            results = program.run(first + start, first + reached, False)
        done.logs = results[-1]
        done.steps = reached
        if ledger.stopped:
            break
    order.end_epoch(done.steps, finished=not ledger.stopped)
    return done
