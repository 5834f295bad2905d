"""The loops over epochs and passes: Keras' own, line by line, from the first callback to the last.

What differs is that many steps run in one dispatch (`passes.py`) on data that were placed on the device before step 0
(`prepare.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import validation
from .preparing import Prepared

if TYPE_CHECKING:
    from .ledger import Ledger
    from .passes import Pass


def _callback_list(model: Any, call: dict[str, Any], steps: int | None, epochs: int = 1, **extra: Any) -> Any:
    import keras

    callbacks, verbose = call["callbacks"], call["verbose"]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=epochs, steps=steps, model=model, **extra
    )


def _has_users_callbacks(callbacks: Any) -> bool:
    """Whether code of the user runs between epochs; it may have changed what the model's Python reads."""
    import keras

    return any(
        not type(callback).__module__.startswith("keras.") or isinstance(callback, keras.callbacks.LambdaCallback)
        for callback in callbacks.callbacks
    )


def fit_epochs(model: Any, call: dict[str, Any], prepared: Prepared) -> Any:
    """Keras' `fit` from its first callback on; returns the `History`."""
    import keras

    from .host_logs import on_host
    from .ledger import Ledger
    from .passes import run_pass

    engine, feed = prepared.engine, prepared.feed
    epochs = call["epochs"]
    max_epochs = keras.config.max_epochs()
    if max_epochs and max_epochs < epochs:
        warnings.warn(f"Limiting epochs to {max_epochs}", stacklevel=4)
        epochs = max_epochs
    model._eval_epoch_iterator = None
    callbacks = _callback_list(model, call, feed.steps, epochs, add_history=True)
    model.make_train_function()
    model.stop_training = False
    training_logs: dict[str, Any] | None = None
    training_finished = False
    feed.reset()
    validation.take_reasons(model)
    watched = _has_users_callbacks(callbacks)
    callbacks.on_train_begin()
    try:
        mark = prepared.engine.mark if feed.placement == "streamed" else None
        ledger = Ledger(callbacks, model, "train", model.steps_per_execution, mark)
        for epoch in range(model._initial_epoch or call["initial_epoch"], epochs):
            engine.reset_metrics(model)
            callbacks.on_epoch_begin(epoch)
            engine.begin_epoch(model, "train")
            if watched:
                prepared.program.renew(is_first=prepared.steps == 0)
            done = run_pass(model, prepared, ledger)
            prepared.program.end_pass()
            epoch_logs = engine.epoch_logs(model, done.logs)
            engine.end_epoch(model, "train")
            if call["validation_data"] is not None and model._should_eval(epoch, call["validation_freq"]):
                val_logs = validation.run(model, call, callbacks, evaluate_pass, prepared.program.engine == "native")
                epoch_logs.update({f"val_{name}": value for name, value in val_logs.items()})
            # Not sooner: the device may be at work on both passes.
            epoch_logs = on_host(epoch_logs)
            callbacks.on_epoch_end(epoch, epoch_logs)
            training_logs = epoch_logs
            if model.stop_training or feed.is_exhausted:
                break
        training_finished = True
    finally:
        prepared.program.end_pass()
        finalizes = isinstance(model.optimizer, keras.optimizers.Optimizer) and epochs > 0
        if finalizes and (training_finished or engine.finalizes_after_errors):
            model.optimizer.finalize_variable_values(model.trainable_weights)
        validation.forget(model)
        if getattr(model, "_eval_epoch_iterator", None) is not None:
            del model._eval_epoch_iterator
        if training_finished:
            callbacks.on_train_end(logs=training_logs)
        engine.end_run(model)
    return model.history


def evaluate_pass(model: Any, call: dict[str, Any], prepared: Prepared, ledger: Ledger | None = None) -> Any:
    """Keras' `evaluate` from its first callback on; returns its result."""
    from .host_logs import as_numbers
    from .ledger import Ledger
    from .passes import run_pass

    engine = prepared.engine
    prepared.feed.reset()
    callbacks = _callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "test")
    model.make_test_function()
    model.stop_evaluating = False
    callbacks.on_test_begin()
    engine.reset_metrics(model)
    try:
        ledger = ledger or Ledger(callbacks, model, "test", model.steps_per_execution)
        done = run_pass(model, prepared, ledger)
    finally:
        prepared.program.end_pass()
    logs = as_numbers(engine.epoch_logs(model, done.logs))
    callbacks.on_test_end(logs)
    engine.end_run(model)
    return logs if call["return_dict"] else model._flatten_metrics_in_order(logs)


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
    from .ledger import Ledger
    from .passes import run_pass

    engine = prepared.engine
    callbacks = _callback_list(model, call, prepared.feed.steps)
    engine.begin_epoch(model, "predict")
    model.make_predict_function()
    model.stop_predicting = False
    callbacks.on_predict_begin()
    try:
        ledger = Ledger(callbacks, model, "predict", model.steps_per_execution)
        done = run_pass(model, prepared, ledger, first_step, take_outputs)
    finally:
        prepared.program.end_pass()
    callbacks.on_predict_end()
    engine.end_run(model)
    return done
