"""What the seam says of trainers and of the callbacks that they serve."""

from __future__ import annotations

import os
from typing import Any

import keras
import numpy as np
import pytest

from flatout.seam import callbacks, trainers

BACKEND = os.environ.get("KERAS_BACKEND", "jax")
DATA = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")


def _model(**compiled: Any) -> Any:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    if compiled:
        model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


def test_the_trainer_of_the_backend() -> None:
    assert "fit" in vars(trainers.trainer_class())
    assert trainers.trainer_class().__module__ == trainers.trainer_module(BACKEND).__name__
    assert issubclass(trainers.trainer_class(), trainers.trainer_base())
    names = (trainers.SYMBOLIC_BUILD, trainers.COMPUTE_LOSS_OF_STEP, trainers.RESULT_OF_EPOCH)
    assert all(hasattr(trainers.trainer_base(), name) for name in names)


def test_a_model_that_is_not_compiled_is_refused_in_keras_words() -> None:
    with pytest.raises(ValueError, match=r"call `compile\(\)` before"):
        trainers.check_compiled(_model(), "fit")
    trainers.check_compiled(_model(metrics=[]), "fit")


def test_what_a_model_was_compiled_for() -> None:
    assert trainers.runs_eagerly(_model(run_eagerly=True))
    assert not trainers.runs_eagerly(_model(metrics=[]))
    assert not trainers.runs_eagerly(_model())
    assert not trainers.is_under_strategy(_model())
    assert set(trainers.strategy_arguments(_model())) == ({"distribute_strategy"} if BACKEND == "tensorflow" else set())


def test_which_epochs_validate_and_which_is_the_first() -> None:
    model = _model(metrics=[])
    assert [trainers.validates_after(model, epoch, 2) for epoch in range(4)] == [False, True, False, True]
    assert [trainers.validates_after(model, epoch, [1, 3]) for epoch in range(3)] == [True, False, True]
    assert trainers.first_epoch(model, 3) == 3


def test_results_of_evaluate_in_their_order() -> None:
    model = _model(metrics=["mae"])
    logs = model.evaluate(*DATA, return_dict=True, verbose=0)
    assert trainers.metrics_in_order(model, logs) == model.evaluate(*DATA, verbose=0)


class _AtBatches(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


def test_hooks_that_nobody_wrote() -> None:
    assert callbacks.is_default_hook(_AtBatches(), "on_train_batch_begin")
    assert not callbacks.is_default_hook(_AtBatches(), "on_train_batch_end")


def test_a_checkpoint_says_when_it_saves(tmp_path: Any) -> None:
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras", save_freq=2)
    assert callbacks.says_when_it_saves(checkpoint)
    assert [callbacks.saves_after(checkpoint, batch) for batch in range(4)] == [False, True, False, True]
    assert not callbacks.says_when_it_saves(_AtBatches())


def test_lists_of_callbacks() -> None:
    model = _model(metrics=[])
    progress = keras.callbacks.ProgbarLogger()
    listed = keras.callbacks.CallbackList([progress, _AtBatches()], model=model)
    assert isinstance(callbacks.is_served_by_threads(listed, "train"), bool)
    listed.on_train_begin()
    assert callbacks.is_silent_in_fit(progress)
    listed.on_train_batch_end(0, {})
    callbacks.wait_for_threads(listed)


def test_logs_as_python_numbers() -> None:
    logs = {"loss": keras.ops.ones(()), "both": {"a": np.float32(2)}}
    assert callbacks.as_python_numbers(logs) == {"loss": 1.0, "a": 2.0}
