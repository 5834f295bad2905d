"""evaluate and predict: one pass over the data, Keras' own line by line, from the first callback to the last.

What differs is that many steps run in one dispatch (`passes.py`) on data that were made ready before step 0
(`preparing/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flatout.seam.trainers import metrics_in_order

from .ledger import Ledger, as_numbers
from .passes import Pass, run_pass
from .preparing.prepared import Prepared


def callback_list(model: Any, call: dict[str, Any], steps: int | None, epochs: int = 1, **extra: Any) -> Any:
    """The callbacks of a call as Keras' `CallbackList`."""
    import keras

    callbacks, verbose = call["callbacks"], call["verbose"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=epochs, steps=steps, model=model, **extra
    )


def evaluate_pass(model: Any, call: dict[str, Any], prepared: Prepared, ledger: Ledger | None = None) -> Any:
    """Keras' `evaluate` from its first callback on; returns its result."""
    engine = prepared.engine
    prepared.feed.reset()
    callbacks = callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "test")
    model.make_test_function()
    model.stop_evaluating = False
    callbacks.on_test_begin()
    engine.reset_metrics(model)
    try:
        ledger = ledger or Ledger(callbacks, model, "test")
        done = run_pass(model, prepared, ledger)
    finally:
        prepared.program.end_pass()
    logs = as_numbers(engine.epoch_logs(model, done.logs))
    callbacks.on_test_end(logs)
    engine.end_run(model)
    return logs if call["return_dict"] else metrics_in_order(model, logs)


def predict_all(model: Any, call: dict[str, Any], prepared: Prepared) -> Any:
    """Keras' `predict` from its first callback on; returns the outputs."""
    from keras import tree

    done = predict_pass(model, call, prepared)
    return tree.map_structure(lambda *batches: np.concatenate(batches), *done.outputs)


def predict_pass(
    model: Any,
    call: dict[str, Any],
    prepared: Prepared,
    first_step: int = 0,
    take_outputs: Callable[[list[Any]], None] | None = None,
) -> Pass:
    """The same from `first_step` on, with outputs that `take_outputs` takes as they come, or that the `Pass` keeps."""
    engine = prepared.engine
    callbacks = callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "predict")
    model.make_predict_function()
    model.stop_predicting = False
    callbacks.on_predict_begin()
    try:
        ledger = Ledger(callbacks, model, "predict")
        done = run_pass(model, prepared, ledger, first_step, take_outputs)
    finally:
        prepared.program.end_pass()
    callbacks.on_predict_end()
    engine.end_run(model)
    return done
