"""A step with something else in its place really computes that, compiled or not; the model is afterwards as before."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from flatout.doctor.measuring.step_clock import run_steps
from flatout.seam import ablated_steps
from flatout.seam.ablated_steps import AblatedStep

ROWS = np.arange(8, dtype="float32").reshape(8, 1)


def sum_of_rows(y_true: Any, y_pred: Any) -> Any:
    return ops.sum(y_true + 0.0 * y_pred, axis=-1)


class RowsAsClass(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return ops.sum(y_true + 0.0 * y_pred, axis=-1)


def model_with(loss: Any) -> Any:
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), loss)
    model.train_on_batch(ROWS, ROWS)
    return model


def loss_of(model: Any, step: AblatedStep) -> float:
    seen: list[float] = []
    keep = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["loss"]))
    run_steps(model, step, {"x": ablated_steps.repeated((ROWS, ROWS)), "steps_per_epoch": 3}, 1, callbacks=[keep])
    return float(seen[-1])


@pytest.mark.parametrize("loss", [sum_of_rows, RowsAsClass()])
def test_each_step_has_its_own_loss_in_any_order(loss: Any) -> None:
    model = model_with(loss)
    steps = {
        0.0: ablated_steps.without_loss(model),
        3.5: ablated_steps.plain(model),
        ROWS[0, 0] + 7.0: ablated_steps.with_loss_function(model, lambda y_true, y_pred: 7.0 + 0.0 * y_pred[:, 0]),
    }
    # Once more, now that all are compiled.
    for _ in range(2):
        for expected, step in steps.items():
            assert loss_of(model, step) == pytest.approx(expected)
    assert "train_step" not in vars(model)


@pytest.mark.parametrize("loss", [sum_of_rows, RowsAsClass()])
def test_the_loss_of_one_row_is_that_of_the_first(loss: Any) -> None:
    model = model_with(loss)
    assert loss_of(model, ablated_steps.with_loss_of_one_row(model)) == ROWS[0, 0]
    assert loss_of(model, ablated_steps.plain(model)) == 3.5
