"""Missing targets are NaN: what the loop leaves out must not reach the rewrite's gradient, however the loop says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.verify.gradients import value_and_gradient
from flatout.vectorize.verify.verification import find_recipes, verify


def computed_before(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        t, p = y_true[i], y_pred[i]
        error = ops.square(t - p)
        if float(t) > -100.0:
            total = total + error
    return total


def comprehension(y_true, y_pred):
    return sum(ops.log(1.0 + ops.square(t - p)) for t, p in zip(y_true, y_pred, strict=True) if float(t) > -5.0)


def selection(y_true, y_pred):
    known = y_true > -50.0
    return ops.sum(ops.square(y_true[known] - y_pred[known]))


def either(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total += ops.abs(y_true[i] - y_pred[i]) if float(y_true[i]) > -2.0 else ops.square(y_pred[i])
    return total


def rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        error = -ops.mean(ops.square(y_true[i] - y_pred[i]))
        if not bool(ops.isnan(error)):
            total = total - error
    return total


# On jax the originals compile each operation for each shape: minutes.
_NOT_ON_JAX = pytest.mark.backend("tensorflow", "torch")


@pytest.mark.turns
@pytest.mark.parametrize(
    ("loss", "rank"),
    [
        (computed_before, 1),
        *(pytest.param(loss, 1, marks=_NOT_ON_JAX) for loss in (comprehension, selection, either)),
        pytest.param(rows, 2, marks=_NOT_ON_JAX),
    ],
)
def test_the_gradient_is_that_of_the_loop(loss: Callable[..., Any], rank: int) -> None:
    quick = flatout.vectorize(loss)
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(5, 3)[:rank]).astype("float32") for name in ("y_true", "y_pred")}
    arrays["y_true"].flat[1] = np.nan
    _, gradient = value_and_gradient(loss, arrays, "y_pred")
    assert np.isfinite(gradient).all()
    assert_same_loss(quick, loss, arrays)
    assert quick.applied
    assert all(decision.function is not None for decision in quick._decisions.values())


def worst_of_the_known(y_true, y_pred):
    worst = max(range(y_true.shape[0]), key=lambda i: float(y_true[i]))  # NaN is not more than what came before it.
    return ops.square(y_true[worst] - y_pred[worst])


def mean_of_groups(y_true, y_pred, group):
    frame = pd.DataFrame({"e": ops.convert_to_numpy(y_true - y_pred), "g": ops.convert_to_numpy(group)})
    means = [part["e"].mean() for _, part in frame.groupby("g")]  # The mean of a Series leaves out NaN.
    return float(np.mean(means))


@pytest.mark.backend("torch")
@pytest.mark.parametrize("loss", [worst_of_the_known, mean_of_groups])
def test_what_passes_over_nan_still_does(loss: Callable[..., Any]) -> None:
    quick = flatout.vectorize(loss)
    rng = np.random.default_rng(3)
    arrays = {name: rng.normal(size=9).astype("float32") for name in ("y_true", "y_pred")}
    if loss is mean_of_groups:
        arrays["group"] = np.asarray([0, 0, 0, 1, 1, 1, 2, 2, 2], "int32")
    arrays["y_true"][[1, 4, 8]] = np.nan
    value, _ = value_and_gradient(loss, arrays, None)
    assert np.isfinite(value)
    assert_same_loss(quick, loss, arrays, None)
    assert quick.applied, quick.reason


@pytest.mark.backend("torch")
def test_a_rewrite_that_is_wrong_for_nan_further_on_is_rejected() -> None:
    def by_argmax(y_true, y_pred):
        worst = ops.argmax(ops.stop_gradient(y_true))  # NaN counts as the largest.
        return ops.square(y_true[worst] - y_pred[worst])

    recipes = find_recipes(worst_of_the_known, {"y_true": 1, "y_pred": 1}, "y_pred")
    verdict = verify(worst_of_the_known, by_argmax, recipes)
    assert not verdict.equal
    assert verdict.reason.startswith("NaN in y_true, further on")
