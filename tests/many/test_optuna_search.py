"""An Optuna study by ask and tell: every trial is told, by the study's direction, and failures are failures."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import optuna
import pytest
from keras import layers

import flatout
from flatout.many.optuna_search import optimize

pytestmark = pytest.mark.backend("jax")  # The backend has no part in it.

X = np.random.default_rng(3).normal(size=(32, 4)).astype("float32")


def build(rate: float) -> Any:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def test_trials_are_asked_for_in_batches_and_told_their_best_value() -> None:
    study = optuna.create_study()
    for rate in (0.01, 0.1, 1e300):
        study.enqueue_trial({"rate": rate})
    batches = optimize(
        study,
        build,
        lambda trial: {"rate": trial.suggest_float("rate", 0, 1e308)},
        X,
        X[:, 0],
        trials=3,
        at_once=2,
        metric="loss",
        epochs=2,
        verbose=0,
    )
    assert [len(many) for many in batches] == [2, 1]
    histories = [history["loss"] for many in batches for history in many.histories]
    for trial, history in zip(study.trials, histories, strict=True):
        finite = [value for value in history if np.isfinite(value)]
        assert trial.value == (min(finite) if finite else None)
        assert list(trial.intermediate_values.values()) == finite
    assert [trial.state.name for trial in study.trials[:2]] == ["COMPLETE", "COMPLETE"]


def test_another_metric_or_direction_is_refused() -> None:
    with pytest.raises(flatout.InvalidOption, match="one direction"):
        optimize(optuna.create_study(directions=["minimize", "minimize"]), build, dict, X, X[:, 0], trials=1)
    study = optuna.create_study()
    with pytest.raises(flatout.InvalidOption, match="val_loss"):
        optimize(study, build, lambda _: {"rate": 0.1}, X, X[:, 0], trials=1, verbose=0)
    assert [trial.state.name for trial in study.trials] == ["FAIL"]
    with pytest.raises(flatout.InvalidOption, match="at least one"):
        optimize(optuna.create_study(), build, lambda _: {"rate": 0.1}, X, X[:, 0], trials=0)


def test_folds_are_refused_before_a_trial_is_asked_for() -> None:
    study = optuna.create_study()
    with pytest.raises(flatout.InvalidOption, match="folds"):
        optimize(study, build, lambda trial: {}, X, X[:, 0], trials=2, folds=2)
    assert not study.trials


def states(study: Any) -> list[str]:
    return [trial.state.name for trial in study.trials]


def test_a_pruned_point_is_not_trained_and_the_others_are() -> None:
    study = optuna.create_study()

    def space(trial: Any) -> Any:
        if trial.number in (0, 2, 3):
            raise optuna.TrialPruned
        return {"rate": 0.01}

    batches = optimize(study, build, space, X, X[:, 0], trials=5, at_once=2, metric="loss", verbose=0)
    assert [len(many) for many in batches] == [1, 1]
    assert states(study) == ["PRUNED", "COMPLETE", "PRUNED", "PRUNED", "COMPLETE"]


@pytest.mark.parametrize("where", ["space", "build"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_no_trial_is_left_running(where: str, error: type[BaseException]) -> None:
    study = optuna.create_study()

    def checked(rate: float, at: str) -> None:
        if at == where and rate == 3:
            raise error("no such rate")

    def built(rate: float) -> Any:
        checked(rate, "build")
        return build(0.01)

    def space(trial: Any) -> Any:
        if trial.number == 2:
            raise optuna.TrialPruned
        checked(trial.number, "space")
        return {"rate": trial.number}

    with pytest.raises(error, match="no such rate"):
        optimize(study, built, space, X, X[:, 0], trials=9, at_once=4, metric="loss", verbose=0)
    assert states(study) == ["FAIL", "FAIL", "PRUNED", "FAIL"]
