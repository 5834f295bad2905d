"""A KerasTuner search whose trials run at once: the oracle, the files and the best models are as ever."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
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

    class Preprocessing(keras_tuner.RandomSearch):  # type: ignore[misc]
        def _build_and_fit_model(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
            return super()._build_and_fit_model(trial, *args, **kwargs)

    for own in (keras_tuner.Hyperband, Preprocessing):
        with pytest.raises(flatout.InvalidOption, match="way of its own"):
            batched(own(build, "val_loss", directory=tmp_path))
    strategy = SimpleNamespace(extended=None)
    with pytest.raises(flatout.InvalidOption, match="distribution_strategy"):
        batched(keras_tuner.RandomSearch(build, "val_loss", distribution_strategy=strategy, directory=tmp_path))
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


def test_models_are_built_as_the_tuner_builds_them(tmp_path: Path) -> None:
    def wide(hp: Any) -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((4,)), layers.Dense(hp.Choice("units", [2, 3, 4000])), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        return model

    def outcome(batches: bool) -> dict[int, Any]:
        settings = {
            "max_model_size": 1000,
            "optimizer": keras.optimizers.SGD(0.1),
            "loss": "mae",
            "metrics": [keras.metrics.MeanSquaredError("error")],
        }
        tuner = keras_tuner.GridSearch(
            wide,
            keras_tuner.Objective("val_error", "min"),
            max_trials=3,
            directory=tmp_path,
            project_name=str(batches),
            **settings,
        )
        tuner = batched(tuner, at_once=3) if batches else tuner
        tuner.search(X, X[:, 0], epochs=2, validation_data=(X, X[:, 0]), shuffle=False, verbose=0)
        return {trial.hyperparameters.get("units"): trial for trial in tuner.oracle.trials.values()}

    ours, stock = outcome(True), outcome(False)
    assert {units: trial.status for units, trial in ours.items()} == {2: "COMPLETED", 3: "COMPLETED", 4000: "FAILED"}
    assert "Oversized model" in ours[4000].message
    for units in (2, 3):
        metrics = stock[units].metrics.metrics
        assert ours[units].metrics.metrics.keys() == metrics.keys() == {"loss", "error", "val_loss", "val_error"}
        for name in metrics:
            np.testing.assert_allclose(
                ours[units].metrics.get_best_value(name), stock[units].metrics.get_best_value(name), rtol=1e-5
            )


def test_what_is_no_model_ends_the_search(tmp_path: Path) -> None:
    tuner = batched(keras_tuner.RandomSearch(lambda hp: 3, "val_loss", directory=tmp_path))
    with pytest.raises(keras_tuner.errors.FatalTypeError, match="Received: int"):
        search(tuner)
