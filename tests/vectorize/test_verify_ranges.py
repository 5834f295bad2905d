"""Numbers that no trial of a proof holds: negative bounds, large powers, fractional keys, too few steps for a loop."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from same_loss import assert_same_loss

import flatout

pytestmark = pytest.mark.turns

TABLE = {0: 1.0, 1: 2.0, 2: 5.0}


def bounded_loss(y_true, y_pred, length):
    total = 0.0
    for i in range(y_pred.shape[0]):
        n = int(length[i])
        total = total + ops.sum(ops.abs(y_true[i, :n] - y_pred[i, :n]))
    return total


def begun_loss(y_true, y_pred, start):
    total = 0.0
    for i in range(y_pred.shape[0]):
        n = int(start[i])
        total = total + ops.sum(ops.abs(y_true[i, n:] - y_pred[i, n:]))
    return total


def powers_loss(y_true, y_pred):
    total = 0.0
    for t in range(y_pred.shape[1]):
        total = total + (2**t + t**4 + 100_000_000 * t) * ops.mean(ops.square(y_true[:, t] - y_pred[:, t]))
    return total


def asked_first_loss(y_true, y_pred):
    total = ops.sum(y_pred) * 0.0
    for i in range(y_pred.shape[0]):
        if int(y_true[i]) in TABLE:
            total = total + TABLE[int(y_true[i])] * y_pred[i]
    return total


def fractional_key_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + TABLE.get(float(y_true[i]), 0.5) * y_pred[i]
    return total


def ignored_label_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        if int(y_true[i]) == 255:
            continue
        total = total - ops.log_softmax(y_pred[i])[int(y_true[i])]
    return total


def late_start_loss(y_true, y_pred):
    total = ops.mean(y_true) + len(range(3, y_pred.shape[1])) * ops.mean(y_pred)
    for t in range(y_pred.shape[1] - 3):
        total = total + 0.1 + ops.mean(y_pred[:, t] * y_true[:, t + 3])
    return total


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(size=shape).astype("float32")


_BOUNDS = [np.array(bounds, "int32") for bounds in ([-1, 0, 9], [-2, 5, -7])]
_CASES: list[tuple[Any, list[tuple[np.ndarray, ...]]]] = [
    (bounded_loss, [(_normal(3, 5), _normal(3, 5), bounds) for bounds in _BOUNDS]),
    (begun_loss, [(_normal(3, 5), _normal(3, 5), bounds) for bounds in _BOUNDS]),
    (powers_loss, [(_normal(3, 40), _normal(3, 40))]),
    (asked_first_loss, [(np.array(keys, "int32"), _normal(3)) for keys in ([5, 6, 7], [-1, 2, 1])]),
    (fractional_key_loss, [(np.array(keys, "float32"), _normal(3)) for keys in ([1.5, 1.0, -0.2], [0.7, 2.0, 2.5])]),
    (ignored_label_loss, [(np.array([255, 0, 2, 255], "int32"), _normal(4, 3))]),
    (late_start_loss, [(_normal(4, size), _normal(4, size)) for size in (1, 2, 3, 6)]),
]


@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.parametrize(("loss", "inputs"), [pytest.param(*case, id=case[0].__name__) for case in _CASES])
def test_is_equal_beyond_the_trials(
    loss: Any, inputs: list[tuple[np.ndarray, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    for values in inputs:
        arrays = dict(zip(("y_true", "y_pred", "length" if loss is bounded_loss else "start"), values, strict=False))
        assert_same_loss(quick, loss, arrays)
        assert "runs the original here" not in caplog.text or loss is late_start_loss


def remainder_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + (int(y_true[i]) * int(y_true[i]) % 1000) * y_pred[i]
    return total


@pytest.mark.backend("torch")
def test_remainders_of_large_whole_numbers_are_refused() -> None:
    quick = flatout.vectorize(remainder_loss)
    assert not quick.applied
    assert "bits" in quick.reason


def scaled(error):
    return 2.0 * error


def with_helper_loss(y_true, y_pred):
    return sum(ops.mean(scaled(t - p)) for t, p in zip(y_true, y_pred, strict=True))


def test_a_helper_that_is_redefined_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = flatout.vectorize(with_helper_loss)
    arrays = [ops.convert_to_tensor(_normal(4, 3)), ops.convert_to_tensor(_normal(4, 4)[:, :3])]
    before = float(quick(*arrays))
    monkeypatch.setitem(globals(), "scaled", lambda error: 7.0 * error)
    np.testing.assert_allclose(float(quick(*arrays)), 3.5 * before, rtol=1e-5)


class Switched(keras.losses.Loss):
    def __init__(self, is_square=True):
        super().__init__()
        self.is_square = is_square

    def call(self, y_true, y_pred):
        total = 0.0
        for t, p in zip(y_true, y_pred, strict=True):
            total = total + ops.mean(ops.square(t - p) if self.is_square else ops.abs(t - p))
        return total


def test_what_self_holds_decides_whether_the_rewrite_serves() -> None:
    loss = flatout.vectorize(Switched())
    assert loss.applied
    arrays = {"y_true": np.zeros((4, 3), "float32"), "y_pred": np.full((4, 3), 3.0, "float32")}
    decision = loss.call._answer()
    assert loss.call._holds(decision, arrays)
    loss.is_square = False
    assert not loss.call._holds(decision, arrays)
    assert float(loss.call(*map(ops.convert_to_tensor, arrays.values()))) == 12.0
