"""Reads what a `Table` is made of: frames of pandas, polars and Arrow, dicts of arrays, and files with columns."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import MissingExtra, TableError

_SUFFIXES = (".csv", ".parquet", ".feather", ".arrow", ".npz")
# The name of an index that has none.
INDEX = "(index)"


@dataclass(frozen=True)
class Intervals:
    """The ends of a column of intervals, all closed on the same side."""

    left: np.ndarray
    right: np.ndarray
    closed: str


@dataclass(frozen=True)
class FrameColumn:
    """One column on the host.

    Attributes:
        values: One entry a row; what stands at a missing entry means nothing.
        missing: Which entries are missing, or None if none is.
        categories: The names that the values stand for, if these are codes.
        intervals: The ends, if the column holds intervals.
        is_index: Whether it is the index of a frame, which is a column only if it is asked for.
    """

    values: np.ndarray
    missing: np.ndarray | None = None
    categories: tuple[Any, ...] | None = None
    intervals: Intervals | None = None
    is_index: bool = False


def read_frame(frame: Any) -> dict[str, FrameColumn]:
    """The columns of a frame by name; the named index of a pandas object is among them.

    Raises:
        FileNotFoundError: No such file.
        MissingExtra: A package that reads the file is not installed.
        TableError: The frame is something else, or its columns differ in length.
    """
    if isinstance(frame, (str, Path)):
        frame = _read_file(Path(frame))
    if _is_of("pandas", frame, ("DataFrame", "Series")):
        columns = _pandas_columns(frame)
    elif _is_of("polars", frame, ("DataFrame", "LazyFrame")):
        frame = frame.collect() if hasattr(frame, "collect") else frame
        columns = {name: _polars_column(frame[name]) for name in frame.columns}
    elif _is_of("pyarrow", frame, ("Table", "RecordBatch")):
        columns = {name: _arrow_column(frame.column(name)) for name in frame.schema.names}
    elif isinstance(frame, Mapping):
        columns = {str(name): as_column(values) for name, values in frame.items()}
    else:
        raise TableError(
            f"Invalid value for argument `frame`. Received: a {type(frame).__name__}. Expected a frame of pandas, "
            f"polars or Arrow, a dict of arrays, or a path that ends in {', '.join(_SUFFIXES)}."
        )
    lengths = {name: len(column.values) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise TableError(f"The columns of a table must have the same length. Received: {lengths}.")
    return columns


def as_column(values: Any) -> FrameColumn:
    """Any one-dimensional values: arrays, lists, series, and tensors on the host."""
    if _is_of("pandas", values, ("Series", "Index", "Categorical", "DatetimeIndex", "IntervalIndex")):
        import pandas

        return _pandas_column(pandas.Series(values))
    if _is_of("polars", values, ("Series",)):
        return _polars_column(values)
    if _is_of("pyarrow", values, ("Array", "ChunkedArray")) or hasattr(values, "combine_chunks"):
        return _arrow_column(values)
    if isinstance(values, (list, tuple)) and any(isinstance(value, str) for value in values):
        # NumPy's own text drops a NUL at its end, and two keys would be one.
        return _numpy_column(np.array(values, dtype=object))
    return _numpy_column(np.asarray(values))


def _is_of(package: str, thing: Any, names: tuple[str, ...]) -> bool:
    return package in sys.modules and any(
        cls.__name__ in names and cls.__module__.partition(".")[0] == package for cls in type(thing).__mro__
    )


def _read_file(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"`frame` names a file that does not exist. Received: {str(path)!r}.")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    if suffix not in _SUFFIXES:
        raise TableError(f"`frame` names a file of an unknown kind. Received: {str(path)!r}. Expected {_SUFFIXES}.")
    try:
        if suffix == ".csv":
            import pyarrow.csv

            return pyarrow.csv.read_csv(path)
        if suffix == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path)
        import pyarrow.feather

        return pyarrow.feather.read_table(path)
    except ImportError as error:
        raise MissingExtra(f"{path.name} is read by pyarrow. It is not installed: pip install flatout[data]") from error


def _numpy_column(values: np.ndarray) -> FrameColumn:
    if values.ndim == 0:
        raise TableError(f"A column must hold one entry for each row. Received: {values[()]!r}.")
    if values.dtype.kind == "M":
        return FrameColumn(values, _or_none(np.isnat(values)))
    if values.dtype.kind == "O":
        # `x != x` holds for NaN and NaT alone.
        missing = np.array([value is None or bool(value != value) for value in values], bool)
        present = values[~missing]
        if len(present) and all(isinstance(value, (bool, np.bool_)) for value in present):
            return FrameColumn(np.where(missing, False, values).astype(bool), _or_none(missing))
        if len(present) and all(isinstance(value, (int, np.integer)) for value in present):
            return FrameColumn(np.where(missing, 0, values).astype(np.int64), _or_none(missing))
        return FrameColumn(values, _or_none(missing))
    if values.dtype.kind == "f" and values.ndim == 1:
        return FrameColumn(values, _or_none(np.isnan(values)))
    return FrameColumn(values)


def _or_none(missing: np.ndarray) -> np.ndarray | None:
    return missing if missing.any() else None


def _pandas_columns(frame: Any) -> dict[str, FrameColumn]:
    import pandas

    if isinstance(frame, pandas.Series):
        frame = frame.to_frame(frame.name if frame.name is not None else "value")
    columns = {str(name): _pandas_column(frame.iloc[:, number]) for number, name in enumerate(frame.columns)}
    named = isinstance(frame.index, pandas.MultiIndex) or frame.index.name is not None
    if named or not isinstance(frame.index, pandas.RangeIndex):
        for level, name in enumerate(frame.index.names):
            label = INDEX if name is None else str(name)
            column = _pandas_column(pandas.Series(frame.index.get_level_values(level)))
            columns.setdefault(label, dataclasses.replace(column, is_index=True))
    return columns


def _pandas_column(series: Any) -> FrameColumn:
    import pandas

    dtype = series.dtype
    missing = series.isna().to_numpy()
    if isinstance(dtype, pandas.CategoricalDtype):
        codes = series.cat.codes.to_numpy().astype(np.int32)
        if isinstance(dtype.categories, pandas.IntervalIndex):
            ends = dtype.categories
            return FrameColumn(codes, _or_none(missing), intervals=_ends(ends[np.maximum(codes, 0)]))
        return FrameColumn(codes, _or_none(missing), categories=tuple(dtype.categories))
    if isinstance(dtype, pandas.IntervalDtype):
        ends = pandas.IntervalIndex(series)
        return FrameColumn(np.arange(len(series), dtype=np.int32), _or_none(missing), intervals=_ends(ends))
    if dtype.kind == "M":
        # Of a zone's clock times, two may be one; the moments are compared.
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None) if getattr(dtype, "tz", None) else series
        return FrameColumn(moments.to_numpy("datetime64[ns]"), _or_none(missing))
    if dtype.kind in "biu" and not isinstance(dtype, np.dtype):
        plain = np.dtype(dtype.subtype if isinstance(dtype, pandas.SparseDtype) else dtype.numpy_dtype)
        return FrameColumn(series.to_numpy(dtype=plain, na_value=0), _or_none(missing))
    if dtype.kind == "f":
        return FrameColumn(series.to_numpy(dtype=np.float64, na_value=np.nan), _or_none(missing))
    if dtype.kind == "b" or dtype.kind in "iu":
        return FrameColumn(series.to_numpy())
    return _objects(series.to_numpy(dtype=object, na_value=None))


def _objects(values: np.ndarray) -> FrameColumn:
    """Texts, dates, or lists of one length as a matrix."""
    example = next((value for value in values if value is not None), None)
    if isinstance(example, (list, tuple, np.ndarray)):
        try:
            return FrameColumn(np.stack([np.asarray(value) for value in values]))
        except ValueError as error:
            raise TableError(
                f"Lists in a column must be of one length. Received: {list(example)!r} and others."
            ) from error
    return _numpy_column(values)


def _ends(index: Any) -> Intervals:
    return Intervals(np.asarray(index.left, np.float64), np.asarray(index.right, np.float64), str(index.closed))


def _polars_column(series: Any) -> FrameColumn:
    import polars

    missing = _or_none(series.is_null().to_numpy())
    if isinstance(series.dtype, (polars.Categorical, polars.Enum)):
        series = series.cast(polars.String)
    if series.dtype.is_integer() or series.dtype == polars.Boolean:
        zero = 0 if series.dtype.is_integer() else False
        return FrameColumn(series.fill_null(zero).to_numpy(), missing)
    if series.dtype.is_temporal():
        return FrameColumn(series.cast(polars.Datetime("ns")).to_numpy(), missing)
    if isinstance(series.dtype, (polars.List, polars.Array)):
        return _objects(np.array([None if row is None else list(row) for row in series.to_list()], object))
    return _numpy_column(series.to_numpy())


def _arrow_column(column: Any) -> FrameColumn:
    import pyarrow

    kind = column.type
    array = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
    if isinstance(array, pyarrow.ChunkedArray):
        array = pyarrow.concat_arrays(array.chunks) if array.num_chunks else pyarrow.array([], kind)
    if pyarrow.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind):
        zero = pyarrow.scalar(False if pyarrow.types.is_boolean(kind) else 0, kind)
        return FrameColumn(array.fill_null(zero).to_numpy(zero_copy_only=False), missing)
    if pyarrow.types.is_temporal(kind):
        return FrameColumn(array.cast(pyarrow.timestamp("ns")).to_numpy(zero_copy_only=False), missing)
    if hasattr(kind, "value_type"):
        rows = np.empty(len(array), object)
        rows[:] = array.to_pylist()
        return _objects(rows)
    return _numpy_column(array.to_numpy(zero_copy_only=False))


def with_row_numbers(read: dict[str, FrameColumn], key: Any) -> dict[str, FrameColumn]:
    """With the row number as the key where there is neither a key nor an index."""
    if key is None and INDEX not in read:
        rows = len(next(iter(read.values())).values) if read else 0
        return {**read, INDEX: FrameColumn(np.arange(rows))}
    return read
