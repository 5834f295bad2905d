"""fit: the loop over epochs, Keras' own line by line, from the first callback to the last."""

from __future__ import annotations

import warnings
from typing import Any

from flatout.base.when_used import keras
from flatout.seam.epoch_iterators import forget_validation, keep_validation
from flatout.seam.trainers import check_step_function, first_epoch

from .ledger import Ledger, on_host
from .passes import callback_list, run_pass, users_callbacks
from .preparing.prepared import Prepared
from .validation import Validation


def fit_epochs(model: Any, call: dict[str, Any], prepared: Prepared, validation: Validation) -> Any:
    """Keras' `fit` from its first callback on; returns the `History`."""
    engine, feed = prepared.engine, prepared.feed
    epochs = call["epochs"]
    max_epochs = keras.config.max_epochs()
    if max_epochs and max_epochs < epochs:
        warnings.warn(f"Limiting epochs to {max_epochs}", stacklevel=6)
        epochs = max_epochs
    keep_validation(model, None)
    callbacks = callback_list(model, call, feed.steps, epochs, add_history=True)
    model.make_train_function()
    model.stop_training = False
    training_logs: dict[str, Any] | None = None
    training_finished = False
    feed.reset()
    watched = users_callbacks(callbacks)
    callbacks.on_train_begin()
    try:
        mark = engine.mark if feed.placement == "streamed" else None
        ledger = Ledger(callbacks, model, "train", mark)
        for epoch in range(first_epoch(model, call["initial_epoch"]), epochs):
            engine.reset_metrics(model)
            callbacks.on_epoch_begin(epoch)
            engine.begin_epoch(model, "train")
            check_step_function(model, "train")
            if watched:
                prepared.program.renew()
            elif engine.compiles_ahead and prepared.steps == 0 and feed.placement != "streamed":
                # None of the user's Python runs before the first validation is over: what that needs is traced and
                # placed while the training is compiled.
                prepared.program.compile_ahead(ledger.is_watched)
                validation.prepare_ahead(epoch, callbacks, engine.name)
            done = run_pass(model, prepared, ledger)
            prepared.program.end_pass()
            epoch_logs = engine.epoch_logs(model, done.logs)
            engine.end_epoch(model, "train")
            epoch_logs.update(validation.after_epoch(epoch, callbacks, engine.name))
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
        validation.close()
        forget_validation(model)
        if training_finished:
            callbacks.on_train_end(logs=training_logs)
        engine.end_run(model)
    return model.history
