"""A KerasTuner search whose trials run at once: the oracle, the files and the best models are as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import keras_tuner
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.many.keras_tuner_search import batched

pytestmark = pytest.mark.backend("jax")  # The backend has no part in it.

X = np.random.default_rng(3).normal(size=(32, 4)).astype("float32")


def build(hp: Any) -> Any:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Choice("rate", [0.001, 0.01, 0.05])), "mse")
    return model


def search(tuner: Any, **arguments: Any) -> None:
    tuner.search(X, X[:, 0], epochs=2, validation_data=(X, X[:, 0]), verbose=0, **arguments)


def test_all_trials_are_run_and_the_best_one_is_loaded(tmp_path: Path) -> None:
    plain = keras_tuner.GridSearch(build, "val_loss", max_trials=10, executions_per_trial=2, directory=tmp_path)
    tuner = batched(plain, at_once=2)
    assert tuner is plain
    search(tuner, callbacks=[keras.callbacks.EarlyStopping(patience=3)])
    trials = tuner.oracle.get_best_trials(10)
    assert sorted(trial.hyperparameters.get("rate") for trial in trials) == [0.001, 0.01, 0.05]
    assert {trial.status for trial in trials} == {"COMPLETED"}
    (best,) = tuner.get_best_models()
    again = best.evaluate(X, X[:, 0], verbose=0)
    # The score is the mean of two executions, of which the better one is kept.
    assert again <= trials[0].score * (1 + 1e-5)


def test_what_trains_in_its_own_way_is_refused(tmp_path: Path) -> None:
    class Own(keras_tuner.HyperModel):  # type: ignore[misc]
        def build(self, hp: Any) -> Any:
            return build(hp)

        def fit(self, hp: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            return model.fit(*args, **kwargs)

    with pytest.raises(flatout.InvalidOption, match="way of its own"):
        batched(keras_tuner.Hyperband(build, "val_loss", directory=tmp_path))
    with pytest.raises(flatout.InvalidOption, match="`fit` of its own"):
        batched(keras_tuner.RandomSearch(Own(), "val_loss", directory=tmp_path))
    with pytest.raises(flatout.InvalidOption, match="Received: int"):
        batched(3)


def test_a_trial_without_a_model_or_a_number_hurts_no_other(tmp_path: Path) -> None:
    def wild(hp: Any) -> Any:
        rate = hp.Choice("rate", [0.01, 1.0, -1.0])
        if rate < 0:
            raise ValueError("no such rate")
        model = keras.Sequential([layers.Input((4,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate if rate < 1 else float("nan")), "mse")
        return model

    def statuses(batches: bool) -> dict[float, str]:
        settings = {"max_retries_per_trial": 0, "max_consecutive_failed_trials": 9}
        tuner = keras_tuner.GridSearch(
            wild, "val_loss", max_trials=3, directory=tmp_path, project_name=str(batches), **settings
        )
        search(batched(tuner, at_once=3) if batches else tuner)
        return {trial.hyperparameters.get("rate"): trial.status for trial in tuner.oracle.trials.values()}

    assert statuses(True) == statuses(False) == {0.01: "COMPLETED", 1.0: "FAILED", -1.0: "FAILED"}
