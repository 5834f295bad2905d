"""Tables become arrays: those of pandas, polars and Arrow.

Each library has a function that turns one of its columns into a `Column` of NumPy numbers; everything else (missing
values, categories, the common dtype of a matrix, errors) is the same for all of them. The three readers make the file
longer than others; they are here so that the rules for a dtype can be compared side by side.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Column:
    """A column as NumPy sees it.

    Attributes:
        dtype: As its own library names it.
        values: Numbers, a row for each sample; None if the column holds something else.
        missing: Where an integer or boolean is missing; None if nowhere. A missing float is NaN in `values`.
        categories: What `values` number, if they are codes.
        example: A value, to show to the user.
    """

    dtype: str
    values: np.ndarray | None = None
    missing: np.ndarray | None = None
    categories: tuple[Any, ...] | None = None
    example: Any = None


class Frame:
    """Named columns of one table, wherever they are.

    Args:
        names: Of all columns, in order.
        read: Reads columns by name.
        model: Whose data they are; the categories that it has seen keep their codes.
    """

    def __init__(self, names: Sequence[str], read: Callable[[Sequence[str]], list[Column]], model: Any):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"Columns must have different names to be taken by name. Received twice: {twice}.")
        self.names = tuple(names)
        self._read = read
        self._model = model

    def __repr__(self) -> str:
        return f"a table with the columns {shortened(self.names)}"

    def array(self, name: str, argument: str, integers: bool = False) -> np.ndarray:
        """One column: a number for each row, or a row of numbers where it holds lists of one length.

        Args:
            name: Of the column.
            argument: What it is taken for, to name it in errors.
            integers: Its integers are needed as such (labels, indices), so none may be missing.
        """
        return self._numbers([name], argument, integers)[0]

    def matrix(self, names: Sequence[str], argument: str, integers: bool = False) -> np.ndarray:
        """Columns side by side, in one dtype: the common one, or float32 if integers and floats are mixed."""
        require_columns(names, argument, self)
        blocks = [block.reshape(len(block), -1) for block in self._numbers(names, argument, integers)]
        dtype = common_dtype([block.dtype for block in blocks])
        matrix = np.empty((len(blocks[0]), sum(block.shape[1] for block in blocks)), dtype)
        position = 0
        for block in blocks:
            matrix[:, position : position + block.shape[1]] = block
            position += block.shape[1]
        return matrix

    def _numbers(self, names: Sequence[str], argument: str, integers: bool) -> list[np.ndarray]:
        columns = dict(zip(names, self._read(names), strict=True))
        require_numbers(columns, argument)
        return [self._filled(name, column, argument, integers) for name, column in columns.items()]

    def _filled(self, name: str, column: Column, argument: str, integers: bool) -> np.ndarray:
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


def require_columns(names: Sequence[str], argument: str, frame: Any) -> None:
    """Refuse a matrix of no columns."""
    if not names:
        raise ValueError(f"`{argument}` has no columns left. Received: {frame!r}.")


def require_numbers(columns: dict[str, Column], argument: str) -> None:
    """Refuse columns that hold something else.

    Raises:
        TypeError: Text, dates, objects, lists of several lengths.
    """
    others = {name: column for name, column in columns.items() if column.values is None}
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
    import keras

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

    Raises:
        ValueError: A value that the first data did not know.
    """
    known = categories_of_model(model, key, categories)
    if known == categories:
        return codes.astype(np.int32)
    position = {value: code for code, value in enumerate(known)}
    unseen = len(known)
    # The last entry is for -1, which stands for a missing value.
    translated = np.array([*(position.get(value, unseen) for value in categories), -1], np.int32)[codes]
    if (translated == unseen).any():
        value = categories[int(codes[translated == unseen][0])]
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


def _is_a(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of a class of a module, which is not imported for it."""
    kinds = (getattr(sys.modules.get(module), name, None) for name in names)
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


def is_frame(value: Any) -> bool:
    """Whether a value is a table or a column of pandas, polars or pyarrow."""
    return (
        _is_a(value, "pandas", "DataFrame", "Series")
        or _is_a(value, "polars", "DataFrame", "LazyFrame", "Series")
        or _is_a(value, "pyarrow", "Table", "RecordBatch", "Array", "ChunkedArray")
    )


def is_series(value: Any) -> bool:
    """Whether a frame is a single column without others beside it."""
    return (
        _is_a(value, "pandas", "Series")
        or _is_a(value, "polars", "Series")
        or _is_a(value, "pyarrow", "Array", "ChunkedArray")
    )


def is_plain(value: Any) -> bool:
    """Whether a frame is one that Keras takes as it is: of pandas, with columns of NumPy's numbers."""
    if not _is_a(value, "pandas", "DataFrame", "Series"):
        return False
    dtypes = list(value.dtypes) if hasattr(value, "columns") else [value.dtype]
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "O" for dtype in dtypes}
    # Booleans beside numbers become Python objects in pandas' `to_numpy`.
    return kinds <= set("iuf") or kinds == {"b"}


def open_frame(value: Any, model: Any) -> Frame:
    """The columns of a table in memory."""
    if _is_a(value, "polars", "LazyFrame"):
        value = value.collect()
    if is_series(value):
        return Frame([_name_of_series(value)], lambda names: [_column(value)], model)
    if _is_a(value, "pandas", "DataFrame"):
        labels = list(map(str, value.columns))
        return Frame(labels, lambda names: [_pandas_column(value.iloc[:, labels.index(n)]) for n in names], model)
    names = value.columns if _is_a(value, "polars", "DataFrame") else value.schema.names
    return Frame(names, lambda names: [_column(value[name]) for name in names], model)


def as_array(value: Any, argument: str, model: Any, integers: bool = False) -> np.ndarray:
    """A whole table as a matrix. A single column gets the shape that Keras gives it."""
    frame = open_frame(value, model)
    if is_series(value) and not _is_a(value, "pandas", "Series"):
        return frame.array(frame.names[0], argument, integers)
    return frame.matrix(frame.names, argument, integers)


def _name_of_series(series: Any) -> str:
    return str(getattr(series, "name", None) or "values")


def _column(series: Any) -> Column:
    if _is_a(series, "pandas", "Series"):
        return _pandas_column(series)
    return _polars_column(series) if _is_a(series, "polars", "Series") else arrow_column(series)


def _pandas_column(series: Any) -> Column:
    import pandas

    dtype = series.dtype
    name = str(dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        return Column(name, series.cat.codes.to_numpy(), categories=tuple(dtype.categories))
    if dtype.kind in "biuf":
        if isinstance(dtype, np.dtype):
            return Column(name, series.to_numpy())
        plain = np.dtype(dtype.subtype if isinstance(dtype, pandas.SparseDtype) else dtype.numpy_dtype)
        missing = series.isna().to_numpy()
        values = series.to_numpy(dtype=plain, na_value=np.nan if plain.kind == "f" else 0)
        return Column(name, values, missing if plain.kind != "f" and missing.any() else None)
    example = next(iter(series.dropna().head(1)), None)
    holds_lists = isinstance(example, (list, tuple, np.ndarray))
    return Column(name, _stacked(list(series)) if holds_lists else None, example=example)


def _stacked(rows: list[Any]) -> np.ndarray | None:
    """Lists of numbers as a matrix; None if they are something else or differ in length."""
    try:
        stacked = np.stack([np.asarray(row) for row in rows])
    except ValueError:
        return None
    return stacked if stacked.dtype.kind in "biuf" and stacked.ndim > 1 else None


def _polars_column(series: Any) -> Column:
    import polars

    dtype = series.dtype
    name = str(dtype)
    if isinstance(dtype, (polars.Categorical, polars.Enum)):
        text = series.cast(polars.String)
        # A Categorical numbers its values in the order in which the process met them.
        values = dtype.categories if isinstance(dtype, polars.Enum) else text.drop_nulls().unique().sort()
        codes = text.cast(polars.Enum(values)).to_physical().cast(polars.Int32).fill_null(-1)
        return Column(name, codes.to_numpy(), categories=tuple(values))
    if dtype.is_integer() or dtype == polars.Boolean:
        missing = series.is_null().to_numpy() if series.null_count() else None
        return Column(name, series.fill_null(0 if dtype.is_integer() else False).to_numpy(), missing)
    if dtype.is_float():
        return Column(name, series.to_numpy())
    example = next(iter(series.drop_nulls().head(1)), None)
    return Column(name, _polars_lists(series), example=example)


def _polars_lists(series: Any) -> np.ndarray | None:
    """Lists of one length as an array; None if the series holds something else."""
    import polars

    if series.null_count() or not isinstance(series.dtype, (polars.List, polars.Array)):
        return None
    if isinstance(series.dtype, polars.List):
        lengths = series.list.len().unique()
        if len(lengths) != 1:
            return None
        series = series.list.to_array(lengths[0])
    values = series.to_numpy()
    return values if values.dtype.kind in "biuf" else None


def arrow_column(column: Any) -> Column:
    import pyarrow

    types = pyarrow.types
    kind = column.type
    array = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(array, pyarrow.ChunkedArray):
        # Too large for one Arrow array: more than 2 GB of strings or lists.
        array = pyarrow.concat_arrays(array.chunks)
    if types.is_dictionary(kind):
        return _arrow_categories(array)
    if types.is_integer(kind) or types.is_boolean(kind):
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        zero = pyarrow.scalar(False if types.is_boolean(kind) else 0, kind)
        return Column(str(kind), array.fill_null(zero).to_numpy(zero_copy_only=False), missing)
    if types.is_floating(kind):
        return Column(str(kind), array.to_numpy(zero_copy_only=False))
    if isinstance(kind, pyarrow.FixedShapeTensorType) and _arrow_lists(array.storage) is not None:
        return Column(str(kind), array.to_numpy_ndarray())
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        values = _arrow_lists(array)
        if values is not None:
            return Column(str(kind), values)
    example = next((value.as_py() for value in array if value.is_valid), None)
    return Column(str(kind), example=example)


def arrow_codes(array: Any) -> np.ndarray:
    """The positions of a dictionary array's values in its dictionary, -1 where one is missing."""
    return array.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)


def _arrow_categories(array: Any) -> Column:
    names = array.dictionary.to_pylist()
    codes = arrow_codes(array)
    if array.type.ordered:
        return Column(str(array.type), codes, categories=tuple(names))
    # A Parquet file keeps its dictionary in the order in which the values appear, which means nothing.
    order = sorted(range(len(names)), key=names.__getitem__)
    position = np.empty(len(names) + 1, np.int32)
    position[order] = np.arange(len(names))
    position[-1] = -1
    return Column(str(array.type), position[codes], categories=tuple(names[number] for number in order))


def _arrow_lists(array: Any) -> np.ndarray | None:
    """Lists of one length, nested to any depth, as an array; None if lengths differ or something is missing."""
    if array.null_count or not len(array):
        return None
    inner = array.flatten()
    is_fixed = hasattr(array.type, "list_size")
    lengths = np.full(1, array.type.list_size) if is_fixed else array.value_lengths().to_numpy()
    if lengths.min() != lengths.max():
        return None
    if hasattr(inner.type, "value_type"):
        values = _arrow_lists(inner)
    else:
        column = arrow_column(inner)
        values = column.values if column.missing is None and column.categories is None else None
    return None if values is None else values.reshape(len(array), int(lengths[0]), *values.shape[1:])
