"""TensorFlow traces `fit` for batches of unknown length where the last one is partial: the array code runs there."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

import flatout
from flatout.vectorize.verify.gradients import unknown_length, value_and_gradient

pytestmark = [pytest.mark.backend("tensorflow"), pytest.mark.turns]


def mean_of_rows(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total / y_true.shape[0]


def pairs(y_true, y_pred):
    total, count = 0.0, y_pred.shape[0]
    for i in range(count):
        for j in range(i + 1, count):
            total = total + ops.sum(ops.abs(y_pred[i] - y_pred[j]) * ops.abs(y_true[i] - y_true[j]))
    return total / max(1, count * (count - 1) / 2)


def steps(y_true, y_pred):
    total = 0.0
    for t in range(1, y_pred.shape[1]):
        total = total + ops.mean(ops.square(y_pred[:, t] - y_pred[:, t - 1] - y_true[:, t]))
    return total / float(y_pred.shape[1] - 1)


def guarded(y_true, y_pred):
    if y_pred.shape[0] < 2:
        return ops.sum(y_pred * y_true)
    total = 0.0
    for i in range(y_pred.shape[0]):
        total = total + ops.sum(ops.square(y_pred[i] - y_true[i]))
    return total / (y_pred.shape[0] - 1)


@pytest.mark.turns
@pytest.mark.parametrize("loss", [mean_of_rows, pairs, steps, guarded])
def test_sizes_may_be_unknown_while_tracing(loss) -> None:
    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    rng = np.random.default_rng(3)
    batches = [
        {name: rng.normal(size=(batch, 4)).astype("float32") for name in ("y_true", "y_pred")} for batch in (6, 3, 2)
    ]
    for is_all in (False, True):
        for arrays, (value, slope) in zip(batches, unknown_length(quick, batches, "y_pred", is_all), strict=True):
            expected, gradient = value_and_gradient(loss, arrays, "y_pred")
            np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(slope, gradient, atol=2e-4 * np.abs(gradient).max() + 1e-9)


def test_fit_with_a_partial_last_batch_equals_the_plain_loss() -> None:
    """The loop itself cannot be traced there: its `range` has no length."""

    def plain(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred))

    histories = []
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)).astype("float32"), rng.normal(size=(50, 3)).astype("float32")
    for loss in (plain, flatout.vectorize(mean_of_rows)):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", loss=loss)
        histories.append(model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-5)
    model.compile("sgd", loss=mean_of_rows)
    with pytest.raises(Exception, match="NoneType"):
        model.fit(x, y, batch_size=16, verbose=0)
