"""Bodies without an array form of their own are mapped over the samples: `ops.vectorized_map`, verified like others."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.verify import trial_inputs as inputs

pytestmark = pytest.mark.slow

SEEN: list[int] = []


def product(left, right, **options):  # Further arguments by any name have no array form.
    return ops.matmul(left, right, **options)


def gram(one):
    rows = ops.reshape(one, (2, -1))
    return product(rows, ops.transpose(rows))


def helper(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.sum(ops.square(gram(y_true[i]) - gram(y_pred[i])))
    return total / y_true.shape[0]


def collected(y_true, y_pred):
    rows, weights = [], []
    for i, (target, guess) in enumerate(zip(y_true, y_pred, strict=True)):
        gap = product(ops.reshape(target - guess, (1, -1)), ops.reshape(target - guess, (-1, 1)))
        rows.append(ops.sum(gap))
        weights.append(1.0 + ops.sum(ops.square(y_true[i])))
    return ops.sum(ops.stack(rows) * ops.stack(weights)) / len(rows)


def generated(y_true, y_pred):
    return sum(ops.mean(ops.square(gram(t) - gram(p))) for t, p in zip(y_true, y_pred, strict=True))


def one_operation(y_true, y_pred):
    total = 0.0
    for target, guess in zip(y_true, y_pred, strict=True):
        total = total + ops.sum(ops.abs(ops.outer(target, guess)))
    return total


def each_pair(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        for j in range(y_pred.shape[0]):
            total = total + ops.max(ops.outer(y_true[i], y_pred[j]))
    return total


_ELSEWHERE = pytest.mark.backend("torch")  # Two stand for all where operations are compiled or traced one by one.


@pytest.mark.turns
@pytest.mark.parametrize(
    "loss",
    [helper, one_operation, *(pytest.param(one, marks=_ELSEWHERE) for one in (collected, generated, each_pair))],
)
def test_is_mapped_and_equal(loss) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    assert "vectorized_map(" in quick.source
    recipe = quick._answer().recipe
    assert_same_loss(quick, loss, inputs.ordinary(recipe, 6, seed=7), compiled=True)


@pytest.mark.backend("torch")
def test_matrices_are_stacked_not_mapped() -> None:
    def volumes(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total = total + ops.square(ops.det(y_true[i]) - ops.det(y_pred[i]))
        return total

    quick = flatout.vectorize(volumes)
    assert quick.applied, quick.reason
    assert "ops.det(y_true) - ops.det(y_pred)" in quick.source


def draws(y_true, y_pred):
    rows = []
    for guess in y_pred:
        rows.append(ops.sum(gram(guess)) + keras.random.normal(()))
    return ops.mean(ops.stack(rows))


def writes(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        SEEN.append(i)
        total = total + ops.sum(gram(y_pred[i]))
    return total


def shows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        print("sample", i)
        total = total + ops.sum(gram(y_pred[i]))
    return total


def carries(y_true, y_pred):
    last = ops.zeros((2, 2))
    total = 0.0
    for i in range(y_true.shape[0]):
        last = 0.5 * last + gram(y_pred[i])
        total = total + ops.sum(last)
    return total


def carries_within(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        state = ops.sum(gram(y_pred[i]))
        for k in range(y_pred.shape[1]):
            state = ops.tanh(state + y_pred[i, k])
        total = total + state
    return total


def leaves(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        if y_true[i, 0] > 2.0:
            break
        total = total + ops.sum(gram(y_pred[i]))
    return total


@ops.custom_gradient
def rounded(x):
    def backward(*args, upstream=None):
        return args[0] if upstream is None else upstream

    return ops.round(x), backward


def straight_through(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.sum(gram(rounded(y_pred[i])))
    return total


def numbered(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.sum(gram(y_pred[i])) * ops.sum(gram(y_pred[i - 1]))
    return total


@pytest.mark.turns
@pytest.mark.parametrize("loss", [draws, writes, shows, carries, carries_within, leaves, straight_through, numbered])
def test_what_is_more_than_a_samples_own_computation_is_kept(loss) -> None:
    quick = flatout.vectorize(loss)
    assert not quick.applied, quick.source
    assert quick.reason


def test_a_function_that_no_table_knows_is_applied_as_it_is_to_elements() -> None:
    def chosen(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            mask = y_true[i] > 0
            total = total + ops.sum(ops.hard_swish(y_pred[i][mask] - y_true[i][mask]))
        return total

    quick = flatout.vectorize(
        chosen, example={"y_true": np.ones((4, 3), "float32"), "y_pred": np.ones((4, 3), "float32")}
    )
    if keras.backend.backend() == "torch":  # Elsewhere a mask cannot be applied to a row at all while tracing.
        assert quick.applied, quick.reason
    assert "ops.hard_swish(" in quick.source
    assert "vectorized_map" not in quick.source


@pytest.mark.backend("torch")
def test_methods_that_no_table_knows_are_mapped() -> None:
    def lower(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total = total + y_pred[i].outer(y_true[i]).tril().sum() + y_pred[i].sinc().mean()
        return total

    quick = flatout.vectorize(lower)
    assert quick.applied, quick.reason
    assert "part[0].outer(part[1])" in quick.source
    assert "y_pred.sinc()" in quick.source
