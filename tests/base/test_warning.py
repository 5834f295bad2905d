"""A warning is shown at the line of whoever called flatout."""

from __future__ import annotations

import functools
import warnings

import keras
import numpy as np
import pytest

import flatout


@pytest.mark.parametrize("is_enabled", [False, True])
def test_it_names_the_line_that_trains(is_enabled: bool) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    keras.config.set_max_epochs(1)
    if is_enabled:
        flatout.enable()
    try:
        with flatout.options(force=True), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = model.fit if is_enabled else functools.partial(flatout.fit, model)
            fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0)
    finally:
        flatout.disable()
        keras.config.set_max_epochs(None)
    limiting = [warning for warning in caught if "Limiting epochs to 1" in str(warning.message)]
    assert [warning.filename for warning in limiting] == [__file__]
