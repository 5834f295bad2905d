"""The value columns of a table: their types on the device, and what a missing key gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.base.when_used import keras

from .host_columns import FrameColumn
from .keys import INT32

AGGREGATES = ("mean", "sum", "min", "max", "first", "last")


@dataclass(frozen=True)
class ValueColumn:
    """One column as it goes to the device.

    Attributes:
        dtype: `"float32"` (Keras' floatx), `"int32"` or `"bool"`.
        shape: Of one entry: `()` or that of a vector.
        default: What a missing key gives.
        categories: What the integers of a column of text stand for.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    default: float
    categories: tuple[Any, ...] | None = None


def describe_values(
    frame: Mapping[str, FrameColumn], names: Sequence[str], missing: Any, takes_means: bool
) -> dict[str, ValueColumn]:
    """Decide each column's type and default."""
    columns = {}
    for name, default in _defaults(missing, names).items():
        if name not in frame:
            raise TableError(f"Unknown column {name!r} in argument `columns`. Expected some of {sorted(frame)}.")
        column = frame[name]
        categories = _categories(column, name)
        kind = "i" if categories is not None else column.values.dtype.kind
        if default is None:
            # Nothing may be read there; should it be read all the same, it shall be seen.
            default = math.nan if kind == "f" or column.missing is not None else 0.0
        if kind == "b" and default in (0, 1) and not takes_means:
            dtype = "bool"
        elif kind in "iub" and not takes_means and column.missing is None and float(default).is_integer():
            dtype = "int32"
        else:
            dtype = keras.config.floatx()
        columns[name] = ValueColumn(name, dtype, column.values.shape[1:], default, categories)
    return columns


def _defaults(missing: Any, names: Sequence[str]) -> dict[str, float | None]:
    if isinstance(missing, Mapping):
        if unknown := [name for name in missing if name not in names]:
            raise TableError(f"`missing` names unknown columns. Received: {unknown}. Expected {list(names)}.")
        if left := [name for name in names if name not in missing]:
            raise TableError(
                f"`missing` has no default for the columns {left}. Received: missing={dict(missing)}. Add one for "
                "each, or choose `columns`."
            )
        return {name: float(missing[name]) for name in names}
    if isinstance(missing, str):
        if missing == "raise":
            return dict.fromkeys(names)
        if missing == "nan":
            return dict.fromkeys(names, math.nan)
    elif isinstance(missing, (bool, int, float, np.number)):
        return dict.fromkeys(names, float(missing))
    raise TableError(
        f"Invalid value for argument `missing`. Received: missing={missing!r}. Expected 'raise', 'nan', a number, or a "
        "dict with a default for each column."
    )


def _categories(column: FrameColumn, name: str) -> tuple[Any, ...] | None:
    if column.categories is not None:
        return column.categories
    if column.intervals is not None or column.values.dtype.kind == "M":
        raise TableError(
            f"The column {name!r} holds {'intervals' if column.intervals is not None else 'dates'}, which a loss "
            "cannot compute with. Choose other columns with `columns=[...]`, or convert it to numbers."
        )
    if column.values.dtype.kind not in "OUS":
        return None
    present = column.values if column.missing is None else column.values[~column.missing]
    if not all(isinstance(value, (str, bytes, np.str_)) for value in present):
        raise TableError(f"The column {name!r} holds objects. Choose other columns with `columns=[...]`.")
    return tuple(sorted(set(present.tolist())))


def converted(column: FrameColumn, spec: ValueColumn, allow_nan: bool) -> np.ndarray:
    """A column's values in its type on the device; those that do not fit it are refused."""
    values, missing = column.values, column.missing
    if spec.categories is not None:
        names = values.tolist()
        if column.categories is not None:
            names = [column.categories[code] if code >= 0 else None for code in names]
        number = {name: code for code, name in enumerate(spec.categories)}
        known = [number.get(name, -1) for name in names]
        if missing is None and -1 in known:
            unknown = names[known.index(-1)]
            raise TableError(f"The column {spec.name!r} has the new value {unknown!r}. Expected {spec.categories}.")
        values = np.array(known, np.int64)
    if values.shape[1:] != spec.shape:
        raise TableError(f"The column {spec.name!r} has entries of shape {values.shape[1:]}. Expected {spec.shape}.")
    if values.dtype.kind not in "biuf":
        raise TableError(f"The column {spec.name!r} is of type {values.dtype}. Expected numbers.")
    gone = missing if missing is not None else (np.isnan(values) if values.dtype.kind == "f" else None)
    if gone is not None and gone.any():
        if not allow_nan or not spec.dtype.startswith(("float", "bfloat")):
            rows = np.flatnonzero(gone.reshape(len(values), -1).any(axis=1))
            raise TableError(
                f"The column {spec.name!r} is missing (NaN or None) in {len(rows)} of {len(values)} rows. Received: "
                f"rows {rows[:5].tolist()}. Fill or drop them, or pass `allow_nan=True`."
            )
        values = np.where(gone, np.nan, values) if values.ndim == gone.ndim else values
    if spec.dtype == "int32" and len(values) and (values.min() < INT32.min or values.max() > INT32.max):
        raise TableError(
            f"The column {spec.name!r} has integers that need more than 32 bits. Received: {int(values.min())} to "
            f"{int(values.max())}. Convert it to float, or to codes."
        )
    return values.astype(np.float32 if spec.dtype == "bfloat16" else spec.dtype)


def aggregated(values: np.ndarray, groups: np.ndarray, how: str | None) -> np.ndarray:
    """One value for each group of rows, in the order of the groups' numbers."""
    if how == "last":
        values, groups = values[::-1], groups[::-1]
    _, first, groups, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    results = values[first]
    if how in ("min", "max"):
        (np.minimum if how == "min" else np.maximum).at(results, groups, values)
    elif how in ("sum", "mean"):
        totals = np.zeros(results.shape, np.float64)
        np.add.at(totals, groups, values)
        if how == "mean":
            totals /= counts.reshape(-1, *[1] * (values.ndim - 1))
        results = totals.astype(values.dtype)
    return results
