"""A `while` that counts is told by value: whatever asks, and wherever the counter is changed."""

from __future__ import annotations

import pytest
from keras import ops

import flatout


def asked_by_a_helper_loss(y_true, y_pred):
    def is_there(k):
        return y_true.shape[0] > k

    i, total = 0, 0.0
    while is_there(i):
        row = y_true[i]
        i += 1
        total = total + ops.mean(ops.square(row - y_pred[i - 1]))
    return total / i


def while_loop_in_the_middle_loss(y_true, y_pred):
    def step(total, i, most):
        error = ops.mean(ops.abs(y_true[i] - y_pred[i]))
        return total + error, i + 1, ops.maximum(most, error)

    total, count, most = ops.while_loop(lambda s, i, m: ops.less(i, y_true.shape[0]), step, (0.0, 0, 0.0))
    return total / count + most


@pytest.mark.backend("torch")
@pytest.mark.parametrize("loss", [asked_by_a_helper_loss, while_loop_in_the_middle_loss])
def test_a_counting_while_is_rewritten(loss) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    assert "while" not in quick.source.partition(":")[2]
