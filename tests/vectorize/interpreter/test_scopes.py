"""What a rewrite takes for granted of what a loss reads outside of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from keras import ops

import flatout
from flatout.vectorize.interpreter.scopes import digest_of

pytestmark = pytest.mark.turns

_SAME: list[tuple[Any, Any]] = [
    ({0: 1.0, 1: 2.0}, {0: 3.0, 1: 4.0}),
    ([1, 2, 3], [4, 5, 6]),
    (np.zeros((2, 3)), np.ones((2, 3))),
    (pd.Series([1.0, 2.0], index=[3, 4]), pd.Series([5.0, 6.0], index=[3, 4])),
    ({"a": {0: 1.0}}, {"a": {0: 2.0}}),
]
_OTHER: list[tuple[Any, Any]] = [
    ({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0, 2: 3.0}),
    ({0: 1.0, 1: 2.0}, {1: 2.0, 0: 1.0}),
    ({0: 1, 1: 2}, {0: 1, 1: 2.5}),
    ({"a": {0: 1.0}}, {"a": {1: 1.0}}),
    ([1, 2, 3], [1, 2, 3, 4]),
    ([1, 2, 3], [1, 2, 0.5]),
    ([[1], [2]], [[1], [2, 3]]),
    (np.zeros((2, 3)), np.zeros((3, 3))),
    (np.zeros(3, "int64"), np.zeros(3, "float64")),
    (pd.Series([1.0, 2.0], index=[3, 4]), pd.Series([1.0, 2.0], index=[3, 5])),
    (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]})),
    ({1, 2}, {1, 2, 3}),
]


@pytest.mark.parametrize(("one", "other"), _SAME)
def test_numbers_are_read_at_every_call(one: Any, other: Any) -> None:
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize(("one", "other"), _OTHER)
def test_keys_lengths_and_types_are_not(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


COUNT, STEP, AXIS, MODE, NAMES, CLIP, SHAPE, ROWS = 3, 1, -1, "sum", {"sum", "mean"}, None, (2, 3), [1.0, 2.0]


def every_second(y_true, y_pred):
    total = 0.0
    for k in range(0, COUNT, 2):
        total = total + ops.sum(y_pred[:, k] * y_true[:, k]) * (k + 1)
    return total


def backwards(y_true, y_pred):
    total = 0.0
    for k in range(COUNT, 0, -1):
        total = total + ops.sum(y_pred[:, k] * y_true[:, k - 1]) * k
    return total


def written_out(y_true, y_pred):
    total, weight = 0.0, 1.0
    for k in range(COUNT):
        weight = weight * 0.5 + 0.25
        total = total + weight * ops.sum(y_pred[:, k] * y_true[:, k])
    return total


def neighbours(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0] - STEP):
        total = total + ops.sum(ops.square(y_pred[i + STEP] - y_true[i]))
    return total


def behind(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        row = y_pred[i, STEP:]
        total = total + ops.sum(row * y_true[i, STEP:]) / row.shape[0]
    return total


def along(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0] - 1):
        total = total + ops.sum(ops.max(y_pred[i : i + 2] * y_true[i : i + 2], axis=AXIS))
    return total


def by_mode(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.sum(y_pred[i] * y_true[i])
    return total if MODE in NAMES else 2.0 * total


def clipped(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (ops.sum(y_pred[i]) if CLIP is None else ops.minimum(ops.sum(y_pred[i]), CLIP))
    return total + ops.sum(y_true)


def in_shape(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.sum(ops.max(ops.reshape(y_pred[i] * y_true[i], SHAPE), axis=0))
    return total


def with_more(y_true, y_pred):
    rows = [0.5]
    rows.extend(ROWS)
    total = 0.0
    for k in range(3):
        total = total + rows[k] * ops.sum(y_pred[:, k] * y_true[:, k])
    return total


@pytest.mark.parametrize(
    ("loss", "name", "later"),
    [
        (every_second, "COUNT", 5),
        (backwards, "COUNT", 5),
        (written_out, "COUNT", 5),
        (neighbours, "STEP", 2),
        (behind, "STEP", 3),
        (along, "AXIS", 0),
        (by_mode, "MODE", "other"),
        (by_mode, "NAMES", {"other", "mean"}),
        (clipped, "CLIP", 0.25),
        (in_shape, "SHAPE", (3, 2)),
        (with_more, "ROWS", [3.0, 4.0]),
    ],
)
def test_what_the_loss_reads_outside_may_change(
    loss: Any, name: str, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = flatout.vectorize(loss)
    given = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    np.testing.assert_allclose(float(quick(*given)), float(loss(*given)), rtol=1e-5)
    monkeypatch.setitem(globals(), name, later)
    np.testing.assert_allclose(float(quick(*given)), float(loss(*given)), rtol=1e-5)
