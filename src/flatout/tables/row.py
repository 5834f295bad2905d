"""The rows of a batch: what `Table.at` returns, gathered when it is asked for, and writes from inside a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.base.errors import TableError
from flatout.base.when_used import jax, keras, ops, tf, torch
from flatout.seam.variable_state import is_stateless
from flatout.tables.columns.value_columns import ValueColumn
from flatout.tables.joins.device_rows import gather


class Row:
    """The joined rows of a batch.

    Attributes:
        found: Which keys are in the table; of the shape of the keys, as every column is.
        numbers: Where in the device columns the rows are.

    Example:
        >>> import flatout, numpy as np
        >>> table = flatout.Table({"id": [10, 20], "w": [0.5, 2.0]}, key="id", missing={"w": 1.0})
        >>> row = table.at(np.array([20, 30]))
        >>> [float(value) for value in row.w], [bool(value) for value in row.found]
        ([2.0, 1.0], [True, False])
    """

    def __init__(self, table: str, columns: Mapping[str, Any], numbers: Any, found: Any):
        self._table, self._columns, self.numbers, self.found = table, columns, numbers, found
        self._gathered: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._columns:
            raise TableError(f"{self._table} has no column {name!r}. Expected one of {list(self._columns)}.")
        if name not in self._gathered:
            self._gathered[name] = gather(self._columns[name], self.numbers)
        return self._gathered[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except TableError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return ["found", *self._columns]


def write_rows(variable: Any, row: Row, values: Any, column: ValueColumn) -> None:
    """Write values at rows of a column; those of missing keys go to the last row, which nobody reads."""
    values = ops.stop_gradient(ops.cast(ops.convert_to_tensor(values), column.dtype))
    expected = (*row.numbers.shape, *column.shape)
    if len(values.shape) != len(expected) or any(
        a != b for a, b in zip(values.shape, expected, strict=True) if a and b
    ):
        raise TableError(
            f"Values for the column {column.name!r} must have the shape of the keys. Received: {tuple(values.shape)} "
            f"for keys of shape {tuple(row.numbers.shape)}. A (B,) against a (B, 1) needs a reshape."
        )
    rows = ops.reshape(ops.where(row.found, row.numbers, variable.shape[0] - 1), (-1,))
    _scatter(variable, rows, ops.reshape(values, (-1, *column.shape)))


def add_missed(counter: Any, found: Any) -> None:
    """Count keys that were not found, on the device."""
    if keras.config.backend() == "torch" and not is_stateless():
        counter.value.add_(found.logical_not().sum())
        return
    missed = ops.sum(ops.cast(ops.logical_not(found), "int32"))
    total = ops.add(ops.convert_to_tensor(counter), ops.cast(missed, "int32"))
    if _may_assign(total):
        counter.assign(total)


def _scatter(variable: Any, rows: Any, values: Any) -> None:
    backend = keras.config.backend()
    if is_stateless() or backend == "jax":
        written = ops.scatter_update(ops.convert_to_tensor(variable), ops.expand_dims(rows, -1), values)
        if not _may_assign(written):
            raise TableError("`Table.set` works inside a step of Keras, or outside of all compiled code.")
        variable.assign(written)
    elif backend == "torch":
        with torch.no_grad():
            variable.value.index_put_((rows.long(),), values)
    else:
        # Not `assign`: it would write the whole column at every step.
        variable.value.scatter_update(tf.IndexedSlices(values, rows))


def _may_assign(value: Any) -> bool:
    """Whether an assignment changes a variable; inside a `jax.jit` of the user's own it would put a tracer into it."""
    if keras.config.backend() != "jax" or is_stateless():
        return True
    return not isinstance(value, jax.core.Tracer)
