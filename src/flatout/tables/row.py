"""What `Table.at` returns: the columns of a batch of rows, gathered when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatout.base.errors import TableError
from flatout.tables.joins.gather import gather


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
