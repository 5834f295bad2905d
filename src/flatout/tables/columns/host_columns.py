"""Reads what a `Table` is made of: frames of pandas, polars and Arrow, dicts of arrays, and files with columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import MissingExtra, TableError
from flatout.base.foreign_columns import columns_of, is_of, is_series, is_table, read_column
from flatout.base.when_used import pandas

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


def read_frame(frame: Any, needs_index: bool) -> dict[str, FrameColumn]:
    """The columns of a frame by name; the index of a pandas object is among them, or the row number if it is needed."""
    if isinstance(frame, (str, Path)):
        frame = _read_file(Path(frame))
    if is_of(frame, "pandas", "Series"):
        frame = frame.to_frame(frame.name if frame.name is not None else "value")
    if is_table(frame):
        columns = {name: as_column(series) for name, series in columns_of(frame)}
        if is_of(frame, "pandas", "DataFrame"):
            columns |= {name: level for name, level in _index_columns(frame.index).items() if name not in columns}
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
    if needs_index and INDEX not in columns:
        columns[INDEX] = FrameColumn(np.arange(max(lengths.values(), default=0)))
    return columns


def as_column(values: Any) -> FrameColumn:
    """Any one-dimensional values: arrays, lists, series, and tensors on the host."""
    if is_of(values, "pandas", "Index", "Categorical"):
        values = pandas.Series(values)
    if is_series(values):
        return _series_column(values)
    if isinstance(values, (list, tuple)) and any(isinstance(value, str) for value in values):
        # NumPy's own text drops a NUL at its end, and two keys would be one.
        return _numpy_column(np.array(values, dtype=object))
    return _numpy_column(np.asarray(values))


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
        from pyarrow import csv, feather, parquet
    except ImportError as error:
        raise MissingExtra(f"{path.name} is read by pyarrow. It is not installed: pip install flatout[data]") from error
    read = {".csv": csv.read_csv, ".parquet": parquet.read_table}.get(suffix, feather.read_table)
    return read(path)


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


def _index_columns(index: Any) -> dict[str, FrameColumn]:
    """The levels of a pandas index, unless it only counts rows."""
    if isinstance(index, pandas.RangeIndex) and index.name is None:
        return {}
    levels = [as_column(index.get_level_values(level)) for level in range(index.nlevels)]
    names = [INDEX if name is None else str(name) for name in index.names]
    return {name: dataclasses.replace(level, is_index=True) for name, level in zip(names, levels, strict=True)}


def _series_column(series: Any) -> FrameColumn:
    """A column of pandas, polars or Arrow."""
    found = read_column(series)
    if found.categories is not None and is_of(series, "pandas", "Series"):
        codes, names = np.asarray(found.values, np.int32), series.cat.categories
        if hasattr(names, "closed"):
            return FrameColumn(codes, _or_none(codes < 0), intervals=_ends(names[np.maximum(codes, 0)]))
        return FrameColumn(codes, _or_none(codes < 0), categories=found.categories)
    if found.categories is not None and hasattr(series, "type"):
        return as_column(series.cast(series.type.value_type))
    if hasattr(getattr(series, "dtype", None), "closed"):
        ends = pandas.IntervalIndex(series)
        return FrameColumn(np.arange(len(ends), dtype=np.int32), _or_none(ends.isna()), intervals=_ends(ends))
    if found.values is None or found.categories is not None:
        values = _as_objects(series)
        example = next((value for value in values if value is not None), None)
        if isinstance(example, (list, tuple, np.ndarray)):
            shown = np.asarray(example).tolist()
            raise TableError(f"Lists in a column must be of one length. Received: {shown!r} and others, or no numbers.")
        return _numpy_column(values)
    return _numpy_column(found.values) if found.missing is None else FrameColumn(found.values, found.missing)


def _ends(index: Any) -> Intervals:
    return Intervals(np.asarray(index.left, np.float64), np.asarray(index.right, np.float64), str(index.closed))


def _as_objects(series: Any) -> np.ndarray:
    """The values as Python has them, None where one is missing."""
    if is_of(series, "pandas", "Series"):
        return series.to_numpy(dtype=object, na_value=None)
    if is_of(series, "polars", "Series"):
        return series.to_numpy()
    rows = np.empty(len(series), object)
    rows[:] = series.to_pylist()
    return rows
