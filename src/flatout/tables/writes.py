"""Writes to a table's columns from inside a step: each backend's own way to change rows of a variable in place."""

from __future__ import annotations

from typing import Any

from flatout.base.errors import TableError
from flatout.seam.variable_state import is_stateless
from flatout.tables.columns.value_columns import ValueColumn


def write_rows(variable: Any, rows: Any, found: Any, values: Any, column: ValueColumn) -> None:
    """Write values at rows of a column; those of missing keys go to the last row, which nobody reads."""
    from keras import ops

    values = ops.stop_gradient(ops.cast(ops.convert_to_tensor(values), column.dtype))
    expected = (*rows.shape, *column.shape)
    if len(values.shape) != len(expected) or any(
        a != b for a, b in zip(values.shape, expected, strict=True) if a and b
    ):
        raise TableError(
            f"Values for the column {column.name!r} must have the shape of the keys. Received: {tuple(values.shape)} "
            f"for keys of shape {tuple(rows.shape)}. A (B,) against a (B, 1) needs a reshape."
        )
    scrap = variable.shape[0] - 1
    flat = ops.reshape(ops.where(found, rows, scrap), (-1,))
    _scatter(variable, flat, ops.reshape(values, (-1, *column.shape)))


def add_missed(counter: Any, found: Any) -> None:
    """Count keys that were not found, on the device."""
    import keras
    from keras import ops

    if keras.config.backend() == "torch" and not is_stateless():
        counter.value.add_(found.logical_not().sum())
        return
    missed = ops.sum(ops.cast(ops.logical_not(found), "int32"))
    total = ops.add(ops.convert_to_tensor(counter), ops.cast(missed, "int32"))
    if _may_assign(total):
        counter.assign(total)


def _may_assign(value: Any) -> bool:
    """Whether an assignment here changes a variable, now or when the step runs.

    Inside a `jax.jit` of the user's own it would put a tracer into the variable.
    """
    import keras

    if keras.config.backend() != "jax" or is_stateless():
        return True
    import jax

    return not isinstance(value, jax.core.Tracer)


def _scatter(variable: Any, rows: Any, values: Any) -> None:
    import keras
    from keras import ops

    backend = keras.config.backend()
    if is_stateless() or backend == "jax":
        written = ops.scatter_update(ops.convert_to_tensor(variable), ops.expand_dims(rows, -1), values)
        if not _may_assign(written):
            raise TableError("`Table.set` works inside a step of Keras, or outside of all compiled code.")
        variable.assign(written)
    elif backend == "torch":
        import torch

        with torch.no_grad():
            variable.value.index_put_((rows.long(),), values)
    else:
        import tensorflow as tf

        # Not `assign`: it would write the whole column at every step.
        variable.value.scatter_update(tf.IndexedSlices(values, rows))
