"""Rows of a table on the device: how they lie in their variables, how keys of any type become their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.keys import INT32

# The largest whole number up to which a float tells neighbours apart.
_EXACT_UP_TO = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}


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


def gather(variable: Any, rows: Any) -> Any:
    """Entries of a variable at rows of any shape that are known to be in range: each backend's own gather.

    On torch it takes a quarter of the time of `ops.take` (18 against 85 us).
    """
    import keras
    from keras import ops

    column, backend = ops.convert_to_tensor(variable), keras.config.backend()
    if backend == "torch":
        return column[rows]
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.gather(column, rows)
    if backend == "jax":
        return column.at[rows].get(mode="promise_in_bounds")
    return ops.take(column, rows, axis=0)


def search(known: Any, values: Any, side: str) -> Any:
    """`ops.searchsorted` for values of any shape, as int32.

    On jax in one kernel, too: as a loop it launches a kernel for each of its steps.
    """
    import keras
    from keras import ops

    known, flat = ops.convert_to_tensor(known), ops.reshape(values, (-1,))
    if keras.config.backend() == "jax":
        import jax.numpy as jnp

        places = jnp.searchsorted(known, flat, side=side, method="scan_unrolled")
    else:
        places = ops.searchsorted(known, flat, side=side)
    return ops.reshape(ops.cast(places, "int32"), ops.shape(values))


def rows_between(keys: Any, low: int, high: int, name: str) -> Any:
    """The rows of keys or codes that are their own slots, counted from `low`: 1 for the first, a reserved one outside.

    In two operations for integers of 32 or 64 bits, unless the bounds have no neighbours.
    """
    import keras
    from keras import ops

    dtype = keras.backend.standardize_dtype(keys.dtype)
    if dtype in ("int32", "int64") and low > INT32.min and high < np.iinfo(dtype).max:
        return ops.clip(keys, low - 1, high + 1) - (low - 1)
    numbers, possible = whole_numbers(keys, low, high, name)
    return ops.where(possible, numbers - low + 1, 0)


def whole_numbers(keys: Any, low: int, high: int, name: str, largest: int | None = None) -> tuple[Any, Any]:
    """Keys as int32 inside `low` to `high`, and which of them were: the others became `low`.

    Args:
        keys: Of any type.
        low: The lowest key.
        high: The highest key.
        name: Of the key, for messages.
        largest: The largest key that there is, if it is not one of the bounds.

    Raises:
        TableError: They come as floats that cannot tell such keys apart.
    """
    import keras
    from keras import ops

    keys = ops.convert_to_tensor(keys)
    dtype = keras.backend.standardize_dtype(keys.dtype)
    if dtype in _EXACT_UP_TO:
        exact, largest = _EXACT_UP_TO[dtype], max(abs(low), abs(high)) if largest is None else largest
        if largest > exact:
            raise TableError(
                f"Keys {name!r} up to {largest} were looked up as {dtype}, which cannot tell whole numbers above "
                f"{exact} apart. Keras casts y_true to float32 before every loss: let such keys travel in x, as "
                "integers, and read them in a loss written as `@flatout.loss def loss(y_true, y_pred, x)`."
            )
        low_float, high_float = float(max(low, -exact)), float(min(high, exact))
        possible = ops.logical_and(keys >= low_float, keys <= high_float)
        possible = ops.logical_and(possible, ops.equal(keys, ops.round(keys)))
        safe = ops.where(possible, keys, ops.cast(low_float, dtype))
        return ops.cast(safe, "int32"), possible
    if dtype in ("bool", "int8", "uint8", "int16", "uint16"):
        keys, dtype = ops.cast(keys, "int32"), "int32"
    if dtype.startswith("u"):
        low = max(low, 0)
    possible = ops.ones_like(keys, dtype="bool")
    if low > INT32.min or dtype == "int64":
        possible = ops.logical_and(possible, keys >= low)
    if high < INT32.max or dtype != "int32":
        possible = ops.logical_and(possible, keys <= high)
    return ops.cast(ops.where(possible, keys, ops.cast(low, dtype)), "int32"), possible
