"""One epoch of fit, and evaluate and predict, which are one pass: chunks of steps, each told to the callbacks.

Evaluate and predict are Keras' own line by line, from the first callback to the last. What differs is that many steps
run in one dispatch on data that were made ready before step 0 (`preparing/`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from flatout.base.when_used import keras, tree
from flatout.engines.rewind import Snapshot
from flatout.seam.callbacks import has_users_code, is_default_hook
from flatout.seam.trainers import check_step_function, metrics_in_order

from .ledger import STOP_FLAGS, Ledger, as_numbers
from .preparing.prepared import Prepared

Result = TypeVar("Result")


@dataclass
class Pass:
    """What came of a pass: the last step's logs, every step's outputs, of predict, and how many steps."""

    logs: Any = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    steps: int = 0


def in_one_go(pieces: Generator[None, None, Result]) -> Result:
    """Take all pieces, one after the other; what they return."""
    try:
        while True:
            next(pieces)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        # What Python makes of a callback's error of this kind, since it would end a generator.
        if str(error) == "generator raised StopIteration" and isinstance(error.__cause__, StopIteration):
            raise error.__cause__ from None
        raise


def pass_pieces(
    model: Any,
    prepared: Prepared,
    ledger: Ledger,
    first_step: int = 0,
    take_outputs: Callable[[list[Any]], None] | None = None,
) -> Generator[None, None, Pass]:
    """Run all steps of an epoch from `first_step` on, or those up to the one at which a callback stops it.

    Outputs of predict are given to `take_outputs` chunk by chunk; by default all are kept. A piece ends where steps
    were launched, of which nothing is asked yet.
    """
    program, feed = prepared.program, prepared.feed
    done = Pass(steps=first_step)
    take_outputs = take_outputs or done.outputs.extend
    # Steps that have run and of which callbacks have not heard: a group of steps is not yet complete.
    untold: list[Any] = []
    begun = first_step
    feed.begin_epoch()
    while (place := feed.ready(done.steps)) is not None:
        start, (position, there) = done.steps, place
        first = position - start
        # One more than is there, where nobody knows whether that is all.
        end = start + there + 1 if feed.end is None else feed.end
        longest = there if program.longest is None else min(there, program.longest)
        stop = min(ledger.next_stop(start, end, program.unit, longest), start + there)
        if start == begun:
            ledger.begin(start)
        check_step_function(model, prepared.plan.task)
        if ledger.single_steps or feed.runs_user_code:
            program.renew()
        elif start == first_step:
            program.look()
        saved = Snapshot(model, prepared.engine) if ledger.may_rewind and stop - start > 1 else None
        if (start == first_step or stop == end) and prepared.engine.reuses_memory:
            # A device of its own is at work from now on: what the next epoch needs can be had meanwhile. Soon, because
            # the last steps may take no time; and again, because somebody may have drawn random numbers since.
            feed.draw_ahead()
        results = [*untold, *program.run(first + start, first + stop, ledger.is_watched)]
        yield
        if stop % model.steps_per_execution and stop < end:
            if feed.ready(stop) is not None:
                # A batch of another shape cuts a group in two.
                untold, done.steps = results, stop
                continue
            end = stop
        try:
            reached = ledger.end(begun, stop, end, results)
        except BaseException:
            if saved is not None and ledger.told < stop:
                saved.restore()
                program.run(first + start, first + ledger.told, False)
            raise
        if ledger.keeps_outputs:
            take_outputs(results[: reached - begun])
        if reached < stop and saved is not None:
            # Stopped inside the chunk: the steps after that one must not have happened.
            saved.restore()
            results = program.run(first + start, first + reached, False)
        done.logs = results[-1]
        prepared.steps += reached - begun
        done.steps = begun = reached
        untold = []
        if ledger.stopped:
            break
    ledger.finish()
    feed.end_epoch(done.steps, finished=not ledger.stopped)
    return done


def callback_list(model: Any, call: dict[str, Any], steps: int | None, epochs: int = 1, **extra: Any) -> Any:
    """The callbacks of a call as Keras' `CallbackList`."""
    callbacks, verbose = call["callbacks"], call["verbose"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=epochs, steps=steps, model=model, **extra
    )


def evaluate_pieces(
    model: Any, call: dict[str, Any], prepared: Prepared, ledger: Ledger | None = None, keeps_state: bool = False
) -> Generator[None, None, Callable[[], Any]]:
    """Keras' `evaluate` from its first callback on, in pieces; returns what waits for its result and ends it.

    With `keeps_state` the program has the metrics afterwards, until somebody ends its pass.
    """
    prepared.feed.reset()
    callbacks, done = yield from _whole_pass(model, call, prepared, ledger, keeps_state=keeps_state)

    def end() -> Any:
        logs = as_numbers(prepared.engine.epoch_logs(model, done.logs))
        callbacks.on_test_end(logs)
        prepared.engine.end_run(model)
        return logs if call["return_dict"] else metrics_in_order(model, logs)

    return end


def predict_all(model: Any, call: dict[str, Any], prepared: Prepared) -> Any:
    """Keras' `predict` from its first callback on; returns the outputs."""
    done = predict_pass(model, call, prepared)
    return tree.map_structure(lambda *batches: np.concatenate(batches), *done.outputs)


def predict_pass(model: Any, call: dict[str, Any], prepared: Prepared, *part: Any) -> Pass:
    """The same of a part, as `pass_pieces` takes it."""
    callbacks, done = in_one_go(_whole_pass(model, call, prepared, None, *part))
    callbacks.on_predict_end()
    prepared.engine.end_run(model)
    return done


def _whole_pass(
    model: Any, call: dict[str, Any], prepared: Prepared, ledger: Ledger | None, *part: Any, keeps_state: bool = False
) -> Generator[None, None, tuple[Any, Pass]]:
    """Evaluate or predict from the first callback to the last step; who is to hear of its end, and what came of it."""
    engine, task = prepared.engine, prepared.plan.task
    callbacks = callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, task)
    getattr(model, f"make_{task}_function")()
    setattr(model, STOP_FLAGS[task], False)
    getattr(callbacks, f"on_{task}_begin")()
    check_step_function(model, task)
    if task == "test":
        engine.reset_metrics(model)
    # Before the first step of a validation, that is all the user's code that has run since it was made ready.
    is_new = not prepared.steps and callbacks is call["callbacks"]
    if any(not is_new or not is_default_hook(one, f"on_{task}_begin") for one in users_callbacks(callbacks)):
        prepared.program.renew()
    put_back = prepared.program.end_pass
    try:
        done = yield from pass_pieces(model, prepared, ledger or Ledger(callbacks, model, task), *part)
        if keeps_state:
            put_back = prepared.program.keep_state
    finally:
        put_back()
    return callbacks, done


def users_callbacks(callbacks: Any) -> list[Any]:
    """Those with code of the user's.

    A `TensorBoard` counts: a step that writes summaries is traced for the writer that it sets.
    """
    return [
        callback
        for callback in callbacks.callbacks
        if has_users_code(callback) or isinstance(callback, keras.callbacks.TensorBoard)
    ]


def look_at_variables(callbacks: Any) -> bool:
    """Whether callbacks may look at the model's variables between epochs: all but a few of Keras' own."""
    is_plain = not has_users_code(callbacks) and not users_callbacks(callbacks)
    return not (is_plain and all(map(_is_blind, callbacks.callbacks)))


def _is_blind(callback: Any) -> bool:
    if type(callback) is keras.callbacks.EarlyStopping:
        return not callback.restore_best_weights
    return type(callback) in (keras.callbacks.History, keras.callbacks.ProgbarLogger, keras.callbacks.CSVLogger)
