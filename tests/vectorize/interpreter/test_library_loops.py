"""Comprehensions in comprehensions: each loops over what is its own."""

from __future__ import annotations

import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout

NAMES = {"near": 1.0, "far": 2.0}


def list_in_dict(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        d = {k: sum([y_pred[i, j] for j in range(y_pred.shape[1])]) * k for k in (0, 1, 2)}
        total = total + d[1] + ops.square(d[2])
    return total


def list_in_dict_of_names(y_true, y_pred):
    rows = range(y_pred.shape[0])
    d = {n: ops.mean(ops.stack([k * ops.square(y_pred[i] - y_true[i]) for i in rows])) for n, k in NAMES.items()}
    return d["near"] + d["far"]


def two_loops_in_dict(y_true, y_pred):
    d = {k: [y_pred[i, j] * k for i in range(y_pred.shape[0]) for j in range(y_pred.shape[1])] for k in range(3)}
    return sum(d[1]) + ops.max(ops.stack(d[2]))


def generator_in_dict(y_true, y_pred):
    d = {k: sum(ops.mean(ops.square(t - k * p)) for t, p in zip(y_true, y_pred, strict=True)) for k in range(3)}
    return d[0] + d[2]


@pytest.mark.backend("torch")
@pytest.mark.parametrize("loss", [list_in_dict, list_in_dict_of_names, two_loops_in_dict, generator_in_dict])
def test_what_is_in_a_dict_loops_over_its_own(loss):
    quick = flatout.vectorize(loss)
    for width in (3, 5):
        rng = np.random.default_rng(width)
        arrays = {name: rng.normal(size=(4, width)).astype("float32") for name in ("y_true", "y_pred")}
        assert_same_loss(quick, loss, arrays)
    assert quick.applied, quick.reason
