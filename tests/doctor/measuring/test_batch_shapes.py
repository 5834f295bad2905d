"""Shapes of batches: those of arrays by their rows, those of a dataset by a look at some of them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from flatout.doctor.measuring.batch_shapes import batch_shapes
from flatout.doctor.measuring.user_data import UserData
from flatout.engines.select import engine_for
from flatout.training.arguments import bound, resolved


def shapes(rows: int, **compiled: Any) -> tuple[str, ...]:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    call = resolved("fit", model, bound("fit", (np.ones((rows, 3)), np.ones((rows, 1))), {"batch_size": 8}))
    return batch_shapes(model, UserData(call, engine_for(keras.config.backend()))).shapes


@pytest.mark.backend("jax")
def test_the_last_batch_has_a_shape_of_its_own() -> None:
    assert shapes(24) == ("(8, 3), (8, 1)",)
    assert shapes(26) == ("(8, 3), (8, 1)", "(2, 3), (2, 1)")


def test_what_is_not_compiled_has_no_shapes() -> None:
    assert shapes(26, run_eagerly=True) == ()
