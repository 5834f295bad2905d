"""Running a call, by an engine or by stock Keras, and reporting what happened."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any

from flatout.base.errors import Reason
from flatout.base.report import RunReport, record
from flatout.seam import stock_methods as stock
from flatout.tables.loss.model_inputs import check_inputs

from .fit_loop import fit_pieces
from .loss_reasons import with_losses
from .passes import evaluate_pieces, in_one_go, predict_all
from .planning.engine_choice import refuse_stock
from .planning.known_programs import note
from .planning.plan import CallFacts
from .preparing.prepared import Prepared
from .validation import Validation

# Method, whether accelerated, engine, placement and steps: how a `RunReport` begins.
_What = tuple[str, bool, str, str, int]


def run(model: Any, call: dict[str, Any], prepared: Prepared, validation: Validation, started: float) -> Any:
    """Run what was prepared, from the first callback on; returns what Keras' method returns."""
    if prepared.plan.task == "train":
        in_one_go(run_pieces(model, call, prepared, validation, started))
        return model.history
    with _reported(model, call, prepared, validation, started):
        if prepared.plan.task == "predict":
            return predict_all(model, call, prepared)
        return in_one_go(evaluate_pieces(model, call, prepared))()


def run_pieces(
    model: Any, call: dict[str, Any], prepared: Prepared, validation: Validation, started: float
) -> Generator[None, None, None]:
    """Run a `fit` that was prepared, in pieces: each ends where the next would wait for the device."""
    with _reported(model, call, prepared, validation, started):
        prepared.program.expect(prepared.plan.facts.steps or 0)
        yield from fit_pieces(model, call, prepared, validation)


@contextlib.contextmanager
def _reported(
    model: Any, call: dict[str, Any], prepared: Prepared, validation: Validation, started: float
) -> Iterator[None]:
    ended_by = ""
    try:
        check_inputs(model, call["x"])
        yield
    except BaseException as error:
        ended_by = type(error).__name__
        raise
    finally:
        prepared.feed.close()
        if prepared.steps or not ended_by:
            report(model, prepared, prepared.steps, started, validation.reasons, ended_by)


def report(
    model: Any, prepared: Prepared, steps: int, started: float, more: tuple[Reason, ...] = (), ended_by: str = ""
) -> None:
    """Record a run that was prepared."""
    plan, feed = prepared.plan, prepared.feed
    why = (*plan.reasons, *prepared.program.reasons, *more)
    what = (plan.facts.method, plan.accelerated, plan.engine, plan.data, steps)
    if plan.accelerated and steps and plan.facts.program:
        note(plan.facts.program, plan.engine)
    _record(model, what, started, why, (*prepared.loads, *feed.loads), ended_by)


def run_stock(
    method: str,
    model: Any,
    args: Any,
    kwargs: Any,
    why: tuple[Reason, ...],
    started: float,
    facts: CallFacts | None = None,
) -> Any:
    """Let stock Keras run a call, and report why; not in strict mode."""
    refuse_stock(method, why)
    what = (method, False, "stock", "host", 0)
    try:
        result = stock.original(method)(model, *args, **kwargs)
    except KeyboardInterrupt as error:
        # Whoever stops a long run asks why it took long; an error is the program's own affair.
        _record(model, what, started, why, ended_by=type(error).__name__)
        raise
    if facts is not None and facts.program:
        note(facts.program, "stock")
    _record(model, what, started, why)
    return result


def _record(
    model: Any, what: _What, started: float, why: tuple[Reason, ...], loads: tuple[Any, ...] = (), ended_by: str = ""
) -> None:
    reasons, unchecked = with_losses(model, why) if what[0] == "fit" else (why, ())
    seconds = time.perf_counter() - started
    record(RunReport(*what, seconds, reasons, loads, ended_by, unchecked))
