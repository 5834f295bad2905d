"""Tables become arrays: missing values, categories, the common dtype of a matrix, errors."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from flatout.base.foreign_columns import Column, columns_of, is_of, is_series, is_table, read_column, renumbered
from flatout.base.when_used import keras
from flatout.data.files.npy_files import SideBySide


class Frame(ABC):
    """Named columns of one table, for a model: the categories that it has seen keep their codes."""

    def __init__(self, names: Sequence[str], model: Any):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"Columns must have different names to be taken by name. Received twice: {twice}.")
        self.names = tuple(names)
        self._model = model

    def __repr__(self) -> str:
        return f"a table with the columns {shortened(self.names)}"

    def array(self, name: str, argument: str, integers: bool = False) -> Any:
        """One column: a number for each row, or a row of numbers where it holds lists of one length.

        Errors name it by the `argument` that it is taken for. None of its `integers` may be missing where they are
        needed as such (labels, indices).
        """
        return self._rows([name], argument, integers, is_matrix=False)

    def matrix(self, names: Sequence[str], argument: str, integers: bool = False) -> Any:
        """Columns side by side, in one dtype: the common one, or float32 if integers and floats are mixed."""
        if not names:
            raise ValueError(f"`{argument}` has no columns left. Received: {self!r}.")
        return self._rows(list(dict.fromkeys(names)), argument, integers, is_matrix=True)

    @abstractmethod
    def _rows(self, names: list[str], argument: str, integers: bool, is_matrix: bool) -> Any: ...


class MemoryFrame(Frame):
    """Columns of pandas, polars or pyarrow."""

    def __init__(self, columns: list[tuple[str, Any]], model: Any):
        super().__init__([name for name, _ in columns], model)
        self._columns = dict(columns)

    def _rows(self, names: list[str], argument: str, integers: bool, is_matrix: bool) -> np.ndarray:
        columns = {name: read_column(self._columns[name]) for name in names}
        require_numbers(columns, argument)
        arrays = [self._numbers(name, column, argument, integers) for name, column in columns.items()]
        return SideBySide(arrays, common_dtype([array.dtype for array in arrays]))[:] if is_matrix else arrays[0]

    def _numbers(self, name: str, column: Column, argument: str, integers: bool) -> np.ndarray:
        assert column.values is not None
        if column.categories is not None:
            return codes_of_model(self._model, (argument, name), column.categories, column.values)
        if column.missing is not None and integers:
            raise missing_integers(argument, name, column.dtype, int(column.missing.sum()), len(column.values))
        return filled(column)


def filled(column: Column) -> np.ndarray:
    """The numbers of a column that are no codes, NaN where one is missing."""
    assert column.values is not None
    values = column.values.astype(np.uint8) if column.values.dtype == np.bool_ else column.values
    if column.missing is None:
        return values
    return np.where(column.missing, np.float32("nan"), values.astype(mixed_dtype()))


def require_numbers(columns: dict[str, Column], argument: str) -> None:
    """Refuse columns that hold something else: text, dates, objects, lists of several lengths."""
    others = {name: column for name, column in columns.items() if column.numbers is None}
    if others:
        listed = ", ".join(f"{name!r} ({c.dtype}, such as {_example(c.example)})" for name, c in others.items())
        first = next(iter(others))
        raise TypeError(
            f"`{argument}` has columns that are no numbers: {listed}. Encode them "
            f"(pandas: `frame[{first!r}].astype('category')`), drop them or select the other columns."
        )


def missing_integers(argument: str, name: str, dtype: str, missing: int, rows: int) -> ValueError:
    """The error of a column that is needed as integers and lacks some."""
    return ValueError(
        f"`{argument}` takes column {name!r} ({dtype}) as integers, and {missing} of its {rows} values are missing. "
        f"Fill them (pandas: `frame[{name!r}].fillna(...)`) or drop those rows."
    )


def common_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """That of a matrix with columns of these."""
    if len({dtype.kind == "f" for dtype in dtypes}) > 1:
        return mixed_dtype()
    return np.result_type(*dtypes)


def mixed_dtype() -> np.dtype[Any]:
    """What Keras would make of the float64 that integers and floats have in common."""
    return np.dtype("float64" if keras.config.floatx() == "float64" else "float32")


# What the codes of a model's columns stand for, by the argument and the name of the column.
_categories: weakref.WeakKeyDictionary[Any, dict[Hashable, tuple[Any, ...]]] = weakref.WeakKeyDictionary()


def categories_of_model(model: Any, key: tuple[str, str], categories: tuple[Any, ...]) -> tuple[Any, ...]:
    """The categories that a model's first data had in this place; these, if they are the first."""
    return _categories.setdefault(model, {}).setdefault(key, categories)


def codes_of_model(model: Any, key: tuple[str, str], categories: tuple[Any, ...], codes: np.ndarray) -> np.ndarray:
    """Codes that mean the same in all data that a model is given: those of the first.

    A validation file seldom holds all the categories of the training file, so each numbering its own would evaluate
    the model on other classes than it was trained on.
    """
    known = categories_of_model(model, key, categories)
    if known == categories:
        return codes.astype(np.int32)
    translated = renumbered(categories, known)[codes]
    if (translated == len(known)).any():
        value = categories[int(codes[translated == len(known)][0])]
        raise ValueError(
            f"`{key[0]}` has the value {value!r} in the categories {key[1]!r}, and the first data of this model had "
            f"only {shortened(known)}. Declare every category in both (pandas: `pandas.CategoricalDtype([...])`), or "
            "number them yourself."
        )
    return translated


def shortened(names: Sequence[Any], most: int = 12) -> str:
    """A list for an error message."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"[{shown}, ... {len(names)} in all]" if len(names) > most else f"[{shown}]"


def _example(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def is_frame(value: Any) -> bool:
    """Whether a value is a table or a column of pandas, polars or pyarrow."""
    return is_table(value) or is_series(value)


def is_plain(value: Any) -> bool:
    """Whether a frame is one that Keras takes as it is: of pandas, with columns of NumPy's numbers."""
    if not is_of(value, "pandas", "DataFrame", "Series"):
        return False
    dtypes = list(value.dtypes) if hasattr(value, "columns") else [value.dtype]
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "O" for dtype in dtypes}
    # Booleans beside numbers become Python objects in pandas' `to_numpy`.
    return kinds <= set("iuf") or kinds == {"b"}


def open_frame(value: Any, model: Any) -> MemoryFrame:
    """The columns of a table, or a single column, in memory."""
    name = str(getattr(value, "name", None) or "values")
    return MemoryFrame([(name, value)] if is_series(value) else columns_of(value), model)


def as_array(value: Any, argument: str, model: Any, integers: bool = False) -> np.ndarray:
    """A whole table as a matrix. A single column gets the shape that Keras gives it."""
    frame = open_frame(value, model)
    if is_series(value) and not is_of(value, "pandas", "Series"):
        return frame.array(frame.names[0], argument, integers)
    return frame.matrix(frame.names, argument, integers)
