"""Columns of pandas, polars and Arrow as NumPy arrays, each library imported only for columns of its own.

The one reader of all that takes frames: the data of a `fit`, and the tables of a loss.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Modules, with the names of their classes.
_SERIES = (("pandas", "Series"), ("polars", "Series"), ("pyarrow", "Array", "ChunkedArray"))
_TABLES = (("pandas", "DataFrame"), ("polars", "DataFrame", "LazyFrame"), ("pyarrow", "Table", "RecordBatch"))


@dataclass(frozen=True)
class Column:
    """A column as NumPy sees it.

    Attributes:
        dtype: As its own library names it.
        values: Numbers, or moments in nanoseconds, a row for each sample; None if the column holds something else.
        missing: Where an integer or boolean is missing; None if nowhere. A missing float is NaN in `values`.
        categories: What `values` number, if they are codes; those of missing values are -1.
        example: A value, to show to the user.
    """

    dtype: str
    values: np.ndarray | None = None
    missing: np.ndarray | None = None
    categories: tuple[Any, ...] | None = None
    example: Any = None

    @property
    def numbers(self) -> np.ndarray | None:
        """The values, unless they are moments."""
        return None if self.values is None or self.values.dtype.kind == "M" else self.values


def is_of(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of a class of a module, which is not imported for it."""
    kinds = (getattr(sys.modules.get(module), name, None) for name in names)
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


def is_series(value: Any) -> bool:
    """Whether a value is a single column of pandas, polars or pyarrow."""
    return any(is_of(value, *names) for names in _SERIES)


def is_table(value: Any) -> bool:
    """Whether a value is a table of pandas, polars or pyarrow."""
    return any(is_of(value, *names) for names in _TABLES)


def columns_of(frame: Any) -> list[tuple[str, Any]]:
    """The columns of a table by name, as its library gives them; a name may stand there twice."""
    if is_of(frame, "pandas", "DataFrame"):
        return [(str(name), frame.iloc[:, number]) for number, name in enumerate(frame.columns)]
    if is_of(frame, "polars", "DataFrame", "LazyFrame"):
        return [(series.name, series) for series in frame.lazy().collect()]
    return list(zip(frame.schema.names, frame.columns, strict=True))


def read_column(series: Any) -> Column:
    """A column as numbers, or with an example of what else it holds."""
    if is_of(series, "pandas", "Series"):
        return _pandas_column(series)
    return _polars_column(series) if is_of(series, "polars", "Series") else arrow_column(series)


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
    if dtype.kind == "M":
        # Of a zone's clock times, two may be one; the moments are compared.
        moments = pandas.to_datetime(series, utc=True).dt.tz_localize(None)
        return Column(name, moments.to_numpy("datetime64[ns]"), example=example)
    return Column(name, _stacked(series) if isinstance(example, (list, tuple, np.ndarray)) else None, example=example)


def _stacked(rows: Any) -> np.ndarray | None:
    """Lists of numbers as a matrix; None if they are something else or differ in length."""
    try:
        matrix = np.stack([np.asarray(row) for row in rows])
    except ValueError:
        return None
    return matrix if matrix.dtype.kind in "biuf" and matrix.ndim > 1 else None


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
    is_moment = dtype in (polars.Date, polars.Datetime)
    values = series.cast(polars.Datetime("ns")).to_numpy() if is_moment else _polars_lists(series)
    return Column(name, values, example=next(iter(series.drop_nulls().head(1)), None))


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
    """As `read_column`, of an Arrow array, in chunks or not."""
    from pyarrow import FixedShapeTensorType, scalar, timestamp, types

    array, kind = _in_one_piece(column), column.type
    name = str(kind)
    if types.is_dictionary(kind):
        return _arrow_categories(array)
    if types.is_integer(kind) or types.is_boolean(kind):
        missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        zero = scalar(False if types.is_boolean(kind) else 0, kind)
        return Column(name, array.fill_null(zero).to_numpy(zero_copy_only=False), missing)
    if types.is_floating(kind):
        return Column(name, array.to_numpy(zero_copy_only=False))
    if isinstance(kind, FixedShapeTensorType) and _arrow_lists(array.storage) is not None:
        return Column(name, array.to_numpy_ndarray())
    values = None
    if types.is_timestamp(kind) or types.is_date(kind):
        values = array.cast(timestamp("ns")).to_numpy(zero_copy_only=False)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        values = _arrow_lists(array)
    return Column(name, values, example=next((value.as_py() for value in array if value.is_valid), None))


def _in_one_piece(column: Any) -> Any:
    """An Arrow array without chunks."""
    import pyarrow

    array = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(array, pyarrow.ChunkedArray):
        # Too large for one Arrow array: more than 2 GB of strings or lists.
        array = pyarrow.concat_arrays(array.chunks) if array.num_chunks else pyarrow.array([], column.type)
    return array


def arrow_codes(array: Any) -> np.ndarray:
    """The positions of a dictionary array's values in its dictionary, -1 where one is missing."""
    return array.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False)


def renumbered(categories: Sequence[Any], known: Sequence[Any] | dict[Any, int]) -> np.ndarray:
    """The code of each category among the known ones, `len(known)` if it is none, and -1 for -1: a missing value."""
    position = known if isinstance(known, dict) else {value: code for code, value in enumerate(known)}
    return np.array([*(position.get(value, len(known)) for value in categories), -1], np.int32)


def _arrow_categories(array: Any) -> Column:
    names = array.dictionary.to_pylist()
    # A Parquet file keeps its dictionary in the order in which the values appear, which means nothing.
    categories = names if array.type.ordered else sorted(names)
    return Column(str(array.type), renumbered(names, categories)[arrow_codes(array)], categories=tuple(categories))


def _arrow_lists(array: Any) -> np.ndarray | None:
    """Lists of one length, nested to any depth, as an array; None if lengths differ or something is missing."""
    if array.null_count or not len(array):
        return None
    inner = array.flatten()
    is_fixed = hasattr(array.type, "list_size")
    lengths = np.full(1, array.type.list_size) if is_fixed else array.value_lengths().to_numpy()
    if lengths.min() != lengths.max():
        return None
    if hasattr(inner.type, "value_field"):
        values = _arrow_lists(inner)
    else:
        column = arrow_column(inner)
        values = column.numbers if column.missing is None and column.categories is None else None
    return None if values is None else values.reshape(len(array), int(lengths[0]), *values.shape[1:])
