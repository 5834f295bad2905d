"""Keys as they arrive in the step, of whatever type, as integers of 32 bits that are surely in range."""

from __future__ import annotations

from typing import Any

from flatout.base.errors import TableError
from flatout.tables.columns.keys import INT32

# The largest whole number up to which a float tells neighbours apart.
_EXACT_UP_TO = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}


def whole_numbers(keys: Any, low: int, high: int, name: str, checked: bool = False) -> tuple[Any, Any]:
    """Keys as int32 inside `low` to `high`, and which of them were: the others became `low`.

    Raises:
        TableError: They come as floats that cannot tell such keys apart.
    """
    import keras
    from keras import ops

    keys = ops.convert_to_tensor(keys)
    dtype = keras.backend.standardize_dtype(keys.dtype)
    if dtype in _EXACT_UP_TO:
        if not checked:
            refuse_inexact(keys, max(abs(low), abs(high)), name)
        exact = _EXACT_UP_TO[dtype]
        low_float, high_float = float(max(low, -exact)), float(min(high, exact))
        possible = ops.logical_and(keys >= low_float, keys <= high_float)
        possible = ops.logical_and(possible, ops.equal(keys, ops.round(keys)))
        safe = ops.where(possible, keys, ops.cast(low_float, dtype))
        return ops.cast(safe, "int32"), possible
    if dtype in ("bool", "int8", "uint8", "int16", "uint16"):
        keys, dtype = ops.cast(keys, "int32"), "int32"
    bounds = []
    if dtype.startswith("u"):
        low = max(low, 0)
    if low > INT32.min or dtype == "int64":
        bounds.append(keys >= low)
    if high < INT32.max or dtype != "int32":
        bounds.append(keys <= high)
    possible = ops.ones_like(keys, dtype="bool")
    for bound in bounds:
        possible = ops.logical_and(possible, bound)
    return ops.cast(ops.where(possible, keys, ops.cast(low, dtype)), "int32"), possible


def refuse_inexact(keys: Any, largest: int, name: str) -> None:
    """Raise if keys up to `largest` were looked up as floats that cannot tell them apart."""
    import keras

    dtype = keras.backend.standardize_dtype(keys.dtype)
    exact = _EXACT_UP_TO.get(dtype)
    if exact is not None and largest > exact:
        raise TableError(
            f"Keys {name!r} up to {largest} were looked up as {dtype}, which cannot tell whole numbers above {exact} "
            "apart. Keras casts y_true to float32 before every loss: let such keys travel in x, as integers, and read "
            "them in a loss written as `@flatout.loss def loss(y_true, y_pred, x)`."
        )
