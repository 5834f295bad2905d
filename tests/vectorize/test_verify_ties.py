"""Equal entries: where a sort leaves their order open, so may a rewrite; else it must match the original at them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.verify.gradients import value_and_gradient
from flatout.vectorize.verify.trials import Trials
from flatout.vectorize.verify.verification import Rewrite, find_recipes, verify

pytestmark = pytest.mark.turns


def overlap_metric(y_true, y_pred):
    best_t = np.argsort(-ops.convert_to_numpy(y_true), axis=1)[:, :5]
    best_p = np.argsort(-ops.convert_to_numpy(y_pred), axis=1)[:, :5]
    return float(np.mean([len(set(t) & set(p)) / 5 for t, p in zip(best_t, best_p, strict=True)]))


def first_of_equals_metric(y_true, y_pred):
    shares = []
    for t, p in zip(ops.convert_to_numpy(y_true), ops.convert_to_numpy(y_pred), strict=True):
        shares.append(t[np.argsort(-p, kind="stable")[:2]].sum())
    return float(np.mean(shares))


def first_in_python_metric(y_true, y_pred):
    best = sorted(range(y_pred.shape[0]), key=lambda i: float(y_pred[i]), reverse=True)[:2]
    return sum(float(y_true[i]) for i in best)


@pytest.mark.slow
def test_an_unstable_sort_leaves_ties_open_and_explain_says_so() -> None:
    # Beyond 16 entries NumPy's sort is not stable, and labels of 0 and 1 tie all over.
    quick = flatout.vectorize(overlap_metric)
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(6, 30)).astype("float32") for name in ("y_true", "y_pred")}
    assert_same_loss(quick, overlap_metric, arrays, None)
    assert quick.applied, quick.reason
    assert "depends on how its sort orders equal ones" in quick.explain(measure=False)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [first_of_equals_metric, first_in_python_metric])
def test_a_sort_that_promises_the_order_of_equals_keeps_it(metric) -> None:
    quick = flatout.vectorize(metric)
    assert quick.applied, quick.reason
    assert "top_k" not in quick.source
    rng = np.random.default_rng(1)
    shape = (4, 40) if metric is first_of_equals_metric else (40,)
    arrays = {name: rng.integers(0, 3, shape).astype("float32") for name in ("y_true", "y_pred")}
    arrays["y_true"] += rng.normal(size=shape).astype("float32")
    assert_same_loss(quick, metric, arrays, None)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(("is_tie_sensitive", "is_rejected"), [(True, False), (False, True)])
def test_a_gradient_that_follows_another_order_of_equals(is_tie_sensitive: bool, is_rejected: bool) -> None:
    """As of NumPy's sort with AVX-512, which orders few equal entries otherwise than a stable one."""
    places = np.arange(4, dtype="float32")

    def in_order(order, y_pred):
        return ops.sum(ops.take(y_pred, order) * ops.convert_to_tensor(places))

    def last_of_equals_first(y_true, y_pred):
        return in_order(3 - np.argsort(-ops.convert_to_numpy(y_true)[::-1], kind="stable"), y_pred)

    def first_of_equals_first(y_true, y_pred):
        return in_order(np.argsort(-ops.convert_to_numpy(y_true), kind="stable"), y_pred)

    trials = Trials(last_of_equals_first, first_of_equals_first, "y_pred", False, is_tie_sensitive, {})
    arrays = {"y_true": np.array([1, 1, 0, 2], "float32"), "y_pred": np.zeros(4, "float32")}
    trial = trials.run("one", "zero predictions", arrays, True, False)
    assert bool(trial.problem) is is_rejected, trial


def test_a_rewrite_that_is_wrong_at_ties_alone_is_rejected() -> None:
    def largest_ones(y_true, y_pred):
        return ops.mean(ops.sum(ops.cast(y_pred == ops.max(y_pred, axis=-1, keepdims=True), "float32"), axis=-1))

    def one_of_them(y_true, y_pred):
        first = ops.argsort(-y_pred, axis=-1)[:, :1]
        return ops.mean(ops.sum(ops.ones_like(ops.take_along_axis(y_pred, first, axis=-1)), axis=-1))

    recipes = find_recipes(largest_ones, {"y_true": 2, "y_pred": 2}, "y_pred")
    # However ties are broken, one entry is the largest: the original does not depend on their order.
    verdict = verify(largest_ones, one_of_them, recipes, Rewrite("ops.argsort(", "axis", is_tie_sensitive=True))
    assert not verdict.equal
    assert "the original gives" in verdict.reason


def drawdown_loss(y_true, y_pred):
    peak, worst = y_pred[:, 0], ops.zeros_like(y_pred[:, 0])
    for t in range(2, y_pred.shape[1]):
        peak = ops.maximum(peak, y_pred[:, t])
        worst = ops.maximum(worst, peak - y_pred[:, t])
    return ops.mean(worst) + ops.mean(ops.square(y_true - y_pred))


@pytest.mark.slow
def test_where_the_rewrite_raises_the_original_runs(caplog: pytest.LogCaptureFixture) -> None:
    quick = flatout.vectorize(drawdown_loss)
    assert quick.applied, quick.reason
    rng = np.random.default_rng(2)
    for steps in (9, 2):
        arrays = {name: rng.normal(size=(4, steps)).astype("float32") for name in ("y_true", "y_pred")}
        with caplog.at_level(logging.WARNING, "flatout"):
            assert_same_loss(quick, drawdown_loss, arrays)
    # With two steps there is no largest of those behind the second.
    assert "vectorize(drawdown_loss) runs the original here" in caplog.text


def least_in_row_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + y_pred[i, min(range(y_true.shape[1]), key=lambda j: float(y_true[i, j]))]
    return total


@pytest.mark.slow
@pytest.mark.backend("tensorflow", "torch")
def test_negative_zero_is_no_less_than_zero() -> None:
    quick = flatout.vectorize(least_in_row_loss)
    assert quick.applied, quick.reason
    arrays = {"y_true": np.array([[0.0, -0.0, 1.0]], "float32"), "y_pred": np.array([[1.0, 2.0, 3.0]], "float32")}
    value, _ = value_and_gradient(quick, arrays, "y_pred")
    assert value == 1.0
