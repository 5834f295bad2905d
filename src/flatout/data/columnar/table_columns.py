"""What a column of a table in files becomes: dtype and shape of its numbers, what is missing, what codes stand for.

The metadata of the files tell most of it. A pass over the column tells the rest (categories, lengths of lists), with
one piece of it in memory at a time, so that everything that is wrong with a column is said before its rows are used.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.foreign_columns import Column, arrow_codes, arrow_column, renumbered
from flatout.base.when_used import pyarrow

from .frame_columns import categories_of_model, codes_of_model, filled, missing_integers, mixed_dtype, require_numbers
from .stored_tables import Tables

# Rows of a piece where nothing else is known of them.
_ROWS = 65_536


@dataclass(frozen=True)
class TableColumn:
    """How a column becomes numbers: floats for integers of which any is missing, codes for categories."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    categories: tuple[Any, ...] | None = None

    def numbers(self, array: Any) -> np.ndarray:
        """The numbers of some rows, given as an Arrow array."""
        if self.categories is None:
            return filled(arrow_column(array))
        return renumbered(array.dictionary.to_pylist(), self._codes)[arrow_codes(array)]

    @functools.cached_property
    def _codes(self) -> dict[Any, int]:
        return {value: code for code, value in enumerate(self.categories or ())}


def describe_columns(
    tables: Tables, names: Sequence[str], argument: str, integers: bool, model: Any
) -> list[TableColumn]:
    """What columns become; see `Frame.array`. What is wrong with them is said here."""
    found: dict[str, TableColumn | Column] = {}
    for name in names:
        kind = tables.schema.field(name).type
        if pyarrow.types.is_floating(kind):
            found[name] = TableColumn(name, np.dtype(kind.to_pandas_dtype()))
        elif not (
            pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind) or pyarrow.types.is_dictionary(kind)
        ):
            found[name] = _lists(tables, name)
    require_numbers({name: other for name, other in found.items() if isinstance(other, Column)}, argument)
    for name in names:
        if name not in found and pyarrow.types.is_dictionary(tables.schema.field(name).type):
            found[name] = _coded(tables, name, argument, model)
        elif name not in found:
            found[name] = _integers(tables, name, argument, integers)
    return [column for name in names if isinstance(column := found[name], TableColumn)]


def _pieces(tables: Tables, name: str) -> Iterator[Any]:
    for batch in tables.batches([name], 0, len(tables), _ROWS):
        if batch.num_rows:
            yield batch.column(0)


def _integers(tables: Tables, name: str, argument: str, integers: bool) -> TableColumn:
    kind = tables.schema.field(name).type
    missing = tables.null_count(name)
    if missing is None:
        missing = sum(array.null_count for array in _pieces(tables, name))
    if missing and integers:
        raise missing_integers(argument, name, str(kind), missing, len(tables))
    dtype = np.dtype(np.uint8 if pyarrow.types.is_boolean(kind) else kind.to_pandas_dtype())
    return TableColumn(name, mixed_dtype() if missing else dtype)


def _coded(tables: Tables, name: str, argument: str, model: Any) -> TableColumn:
    """A column of categories; its codes stand for those of the model's first data."""
    is_used: dict[Any, bool] = {}
    dictionary, values = None, []
    for array in _pieces(tables, name):
        # Most pieces share a dictionary with the last one.
        if dictionary is None or not array.dictionary.equals(dictionary):
            dictionary = array.dictionary
            values = dictionary.to_pylist()
            is_used = {**is_used, **{value: is_used.get(value, False) for value in values}}
        for code in array.indices.drop_null().unique().to_pylist():
            is_used[values[code]] = True
    names = list(is_used) if tables.schema.field(name).type.ordered else sorted(is_used)
    used = np.flatnonzero([is_used[value] for value in names])
    key = (argument, name)
    codes_of_model(model, key, tuple(names), used)
    return TableColumn(name, np.dtype(np.int32), categories=categories_of_model(model, key, tuple(names)))


def _lists(tables: Tables, name: str) -> TableColumn | Column:
    """A column of lists of one length, or something that is no numbers."""
    kind = tables.schema.field(name).type
    is_fixed = pyarrow.types.is_fixed_size_list(kind) or isinstance(kind, pyarrow.FixedShapeTensorType)
    one_tells_all = is_fixed and tables.null_count(name) == 0
    first: np.ndarray | None = None
    example, is_of_numbers = None, True
    for array in _pieces(tables, name):
        column = arrow_column(array)
        numbers = column.numbers
        if numbers is None:
            is_of_numbers, example = False, column.example
        elif first is None:
            first = filled(column)[:1].copy()
        elif numbers.shape[1:] != first.shape[1:]:
            is_of_numbers = False
        has_something_to_show = example is not None or first is not None
        if one_tells_all or (has_something_to_show and not is_of_numbers):
            break
    if first is None or not is_of_numbers:
        return Column(str(kind), example=example if example is not None or first is None else first[0].tolist())
    return TableColumn(name, first.dtype, first.shape[1:])
