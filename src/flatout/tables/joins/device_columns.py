"""Columns of a table on the device: the rows of defaults around them, and the variable that holds them."""

from __future__ import annotations

from typing import Any

import numpy as np


def with_default_rows(column: np.ndarray, default: float) -> np.ndarray:
    """A column with its reserved rows: one before all slots, two after them."""
    before, after = (np.full((count, *column.shape[1:]), default, column.dtype) for count in (1, 2))
    return np.concatenate([before, column, after])


def variable(values: np.ndarray, dtype: str, name: str) -> Any:
    import keras

    return keras.Variable(values, trainable=False, dtype=dtype, autocast=False, name=name.replace("/", "_"))


def on_host(variable: Any) -> np.ndarray:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(variable.value))
