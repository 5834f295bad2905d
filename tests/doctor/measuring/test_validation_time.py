"""Validation is timed on arrays and on datasets, and the data are as before."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from flatout.doctor.measuring.validation_time import validation_seconds
from flatout.engines.select import engine_for
from flatout.training.arguments import bound, resolved


class Slow(keras.utils.PyDataset):
    asked = 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        self.asked += 1
        time.sleep(0.05)
        return np.ones((8, 3)), np.ones((8, 1))


def seconds(validation: Any, **arguments: Any) -> tuple[float, str]:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((16, 3)), np.ones((16, 1))
    call = resolved("fit", model, bound("fit", rows, {"validation_data": validation, **arguments}))
    found, why = validation_seconds(model, call, engine_for(keras.config.backend()))
    return found.mid, why


def test_a_dataset_is_timed_on_a_copy() -> None:
    given = Slow()
    took, why = seconds(given)
    assert took > 0.1
    assert not why
    assert given.asked == 0


def test_what_comes_after_few_epochs_counts_little() -> None:
    # Of at least 0.2 s; on a busy machine it may be many times that.
    assert seconds(Slow(), validation_freq=1000)[0] < 0.1


@pytest.mark.parametrize("rows", [5, 8, 37])
def test_arrays_of_any_length(rows: int) -> None:
    took, why = seconds((np.ones((rows, 3)), np.ones((rows, 1))), batch_size=8)
    assert took > 0
    assert not why


def test_a_generator_is_left_alone() -> None:
    took, why = seconds(iter([(np.ones((8, 3)), np.ones((8, 1)))]), validation_steps=1)
    assert took == 0
    assert "generator" in why
