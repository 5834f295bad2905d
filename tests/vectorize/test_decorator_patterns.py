"""A rewrite serves calls whose sizes relate as those it was verified on do; others are verified on their own."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.decorator import pattern


def lengths_loss(y_true, y_pred, length):
    total = 0.0
    for i in range(y_true.shape[0]):
        n = int(length[i])
        total = total + ops.sum(ops.square(y_true[i, :n] - y_pred[i, :n]))
    return total


@pytest.mark.slow
@pytest.mark.backend("torch")
def test_a_column_that_is_broadcast_is_verified_on_its_own() -> None:
    quick = flatout.vectorize(lengths_loss)
    assert quick.applied  # For arrays of the same size, as the code suggests.
    rng = np.random.default_rng(0)
    for columns in (5, 1):
        arrays = {
            "y_true": rng.normal(size=(6, columns)).astype("float32"),
            "y_pred": rng.normal(size=(6, 5)).astype("float32"),
            "length": rng.integers(1, 6, 6).astype("int32"),
        }
        assert_same_loss(quick, lengths_loss, arrays)
    assert len(quick._decisions) == 2


@pytest.mark.backend("jax")
def test_patterns_tell_broadcasting_apart_and_not_sizes() -> None:
    assert pattern({"y_true": (3,), "y_pred": (3,)}) == pattern({"y_true": (7,), "y_pred": (7,)})
    assert pattern({"y_true": (1,), "y_pred": (7,)}) != pattern({"y_true": (7,), "y_pred": (7,)})
    assert pattern({"y_true": (7,), "y_pred": (1,)}) != pattern({"y_true": (7,), "y_pred": (7,)})
    assert pattern({"y_true": (7,), "y_pred": (9,)}) != pattern({"y_true": (7,), "y_pred": (7,)})
    assert pattern({"y_true": (), "y_pred": (4,)}) == pattern({"y_true": (), "y_pred": (9,)})
    # What TensorFlow does not know while tracing is taken to be as it was verified.
    assert pattern({"y_true": (None,), "y_pred": (None,)}) == pattern({"y_true": (3,), "y_pred": (3,)})
