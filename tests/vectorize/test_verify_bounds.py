"""Values at the bounds that they are compared with: Python compares floats in 64 bits, a device in 32."""

from __future__ import annotations

import bisect
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout

pytestmark = pytest.mark.turns

BOUND = 0.7
LIMITS = {0: 0.1, 1: 0.3, 2: 0.7}
TABLE = pd.DataFrame({"k": [0, 1, 2], "limit": [0.1, 0.3, 0.7]}).set_index("k")
EDGES = [0.1, 0.3, 0.7]
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0], "float32")


def above(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if float(y_true[i]) > 0.3:
            total = total + ops.square(y_pred[i])
        else:
            total = total + ops.abs(y_pred[i])
    return total


def at_least(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        weight = 2.0 if float(y_true[i]) >= BOUND else 1.0
        total = total + weight * ops.square(y_pred[i] - y_true[i])
    return total


def between(y_true, y_pred):
    return sum(ops.square(y_pred[i]) for i in range(y_pred.shape[0]) if 0.1 < float(y_true[i]) <= 0.7)


def equal(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (2.0 if float(y_true[i]) == 0.3 else 1.0) * ops.square(y_pred[i])
    return total


def listed(y_true, y_pred):
    total = 0.0
    for i, t in enumerate(ops.convert_to_numpy(y_true).tolist()):
        if t > 0.3:
            total = total + ops.square(y_pred[i])
    return total


def in_numpy(y_true, y_pred):  # NumPy compares in 32 bits, too.
    t = ops.convert_to_numpy(y_true)
    total = 0.0
    for i in range(len(t)):
        if t[i] > 0.3:
            total = total + ops.square(y_pred[i])
    return total


def from_dict(y_true, y_pred, k):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if float(y_true[i]) > LIMITS[int(k[i])]:
            total = total + ops.square(y_pred[i])
    return total


def from_frame(y_true, y_pred, k):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if float(y_true[i]) <= float(TABLE.loc[int(k[i]), "limit"]):
            total = total + ops.square(y_pred[i])
    return total


def by_bisect(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + float(WEIGHTS[bisect.bisect(EDGES, float(y_true[i]))]) * ops.square(y_pred[i])
    return total


def by_digitize(y_true, y_pred):
    level = np.digitize(ops.convert_to_numpy(y_true), EDGES)
    return ops.sum(ops.convert_to_tensor(WEIGHTS[level]) * ops.square(y_pred))


def by_cut(y_true, y_pred):
    level = pd.cut(ops.convert_to_numpy(y_true), [-1.0, 0.1, 0.3, 0.7, 2.0], labels=False)
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + float(WEIGHTS[level[i]]) * ops.square(y_pred[i])
    return total


# Each takes five seconds to verify on jax and tensorflow, and one on torch.
_OFTEN = [above, from_dict, by_bisect]
_ON_TORCH = [at_least, between, equal, listed, in_numpy, from_frame, by_digitize, by_cut]


@pytest.mark.parametrize(
    "loss",
    [*_OFTEN, *(pytest.param(loss, marks=pytest.mark.backend("torch")) for loss in _ON_TORCH)],
    ids=lambda loss: loss.__name__,
)
def test_a_value_on_a_bound_takes_the_same_side(loss: Callable[..., Any]) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    near = np.asarray([0.1, 0.3, 0.7], "float32")
    upper, lower = np.nextafter(near, np.float32(2)), np.nextafter(near, np.float32(-2))
    for number in np.concatenate([near, upper, lower]):
        arrays = {"y_true": np.full(3, number), "y_pred": np.asarray([1.0, 2.0, 3.0], "float32")}
        if "k" in inspect.signature(loss).parameters:
            arrays["k"] = np.asarray([0, 1, 2], "int32")
        assert_same_loss(quick, loss, arrays)


def test_the_original_runs_once_the_bound_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = flatout.vectorize(at_least)
    assert quick.applied, quick.reason
    monkeypatch.setitem(globals(), "BOUND", 0.3)  # It is rounded to the other side.
    arrays = {"y_true": np.full(2, 0.3, "float32"), "y_pred": np.zeros(2, "float32")}
    assert_same_loss(quick, at_least, arrays)
