"""The keys of a table on the host: one form for every type, and the numbers that stand for them on the device."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import TableError

from .host_columns import FrameColumn, Intervals, as_column

INT32 = np.iinfo(np.int32)
_EXAMPLES = 5


@dataclass(frozen=True)
class Keys:
    """A column of keys, none of them missing.

    Attributes:
        kind: `"integer"`, `"text"`, `"date"` or `"interval"`.
        values: int64 for integers and dates (nanoseconds), text as Python strings; the row number for intervals.
        intervals: The ends of intervals.
    """

    kind: str
    values: np.ndarray
    intervals: Intervals | None = None

    @property
    def fits_int32(self) -> bool:
        return self.kind == "integer" and self.values.min() >= INT32.min and self.values.max() <= INT32.max

    def take(self, rows: np.ndarray) -> Keys:
        """The keys of some rows."""
        ends = self.intervals and Intervals(
            self.intervals.left[rows], self.intervals.right[rows], self.intervals.closed
        )
        return Keys(self.kind, self.values[rows], ends)

    def shown(self, rows: Sequence[int] | np.ndarray) -> list[Any]:
        """Some keys as the user knows them, for messages."""
        if self.intervals is not None:
            ends = self.intervals
            return [f"{float(ends.left[row]):g} to {float(ends.right[row]):g}" for row in rows]
        chosen = self.values[np.asarray(rows, np.int64)]
        if self.kind == "date":
            return [str(np.datetime64(int(value), "ns").astype("datetime64[s]")) for value in chosen]
        return chosen.tolist()


def read_keys(column: FrameColumn, name: str) -> Keys:
    """The keys of a column; some that are missing, or of a type that is no key, are refused."""
    if column.missing is not None:
        rows = np.flatnonzero(column.missing)
        raise TableError(
            f"The key {name!r} is missing (NaN, None or NaT) in {len(rows)} of {len(column.values)} rows. Received: "
            f"rows {rows[:_EXAMPLES].tolist()}{', ...' if len(rows) > _EXAMPLES else ''}. Drop these rows, or give "
            "them a key."
        )
    if column.intervals is not None:
        return Keys("interval", np.arange(len(column.values)), column.intervals)
    return as_keys(column, name)


def as_keys(column: FrameColumn, name: str) -> Keys:
    """As `read_keys`; a missing entry becomes what no table has as a key."""
    if column.values.ndim != 1:
        raise TableError(
            f"The key {name!r} must be one-dimensional. Received: an array of shape {column.values.shape}."
        )
    present = slice(None) if column.missing is None else ~column.missing
    if column.categories is None:
        kind, known = _canonical(column.values[present], name)
    else:
        names = as_keys(as_column(np.array(column.categories, dtype=object)), name)
        kind, known = names.kind, names.values[column.values[present]]
    keys = np.full(len(column.values), "\0missing" if kind == "text" else np.iinfo(np.int64).min, known.dtype)
    keys[present] = known
    return Keys(kind, keys)


def _canonical(values: np.ndarray, name: str) -> tuple[str, np.ndarray]:
    """The kind of keys, and their one form."""
    kind = values.dtype.kind
    if kind == "u" and len(values) and values.max() > np.iinfo(np.int64).max:
        raise TableError(f"The key {name!r} has values above 2**63. Received: {int(values.max())}.")
    if kind == "f":
        _refuse_inexact(values, name)
    if kind in "biuf":
        return "integer", values.astype(np.int64)
    if kind == "M":
        return "date", values.astype("datetime64[ns]").astype(np.int64)
    if kind not in "USO":
        raise TableError(f"The key {name!r} is of type {values.dtype}. Expected integers, text, dates or intervals.")
    entries = values.tolist()
    if all(isinstance(value, (str, bytes)) for value in entries):
        texts = [value.decode() if isinstance(value, bytes) else value for value in entries]
        return "text", np.array(texts, dtype=object)
    if all(isinstance(value, (datetime.date, np.datetime64)) for value in entries):
        return "date", np.array(entries, dtype="datetime64[ns]").astype(np.int64)
    kinds = sorted({type(value).__name__ for value in entries})
    raise TableError(f"The key {name!r} holds values of the types {kinds}. Expected integers, text or dates.")


def _refuse_inexact(values: np.ndarray, name: str) -> None:
    """Raise if floats are no whole numbers, or too large to be told apart."""
    broken = values[~np.isfinite(values) | (values != np.round(values))]
    if len(broken):
        raise TableError(
            f"The key {name!r} holds numbers that are not whole. Received: {broken[0]}. For ranges of numbers pass "
            "`intervals='left'` or 'right', or a column of pandas intervals."
        )
    if len(values) and np.abs(values).max() > 2 ** (np.finfo(values.dtype).nmant + 1):
        raise TableError(
            f"The key {name!r} is {values.dtype}, which cannot tell neighbouring whole numbers of this size apart. "
            f"Received: {np.abs(values).max():.0f}. Read the column as int64."
        )


def check_distinct(keys: Sequence[Keys], names: Sequence[str]) -> None:
    """Raise if a key occurs twice, with examples."""
    numbers = np.zeros(len(keys[0].values), np.int64)
    for part in keys:
        ends = part.intervals
        for column in (part.values,) if ends is None else (ends.left, ends.right):
            own = np.unique(column, return_inverse=True)[1]
            numbers = np.unique(numbers * (own.max() + 1) + own, return_inverse=True)[1]
    again = np.delete(np.arange(len(numbers)), np.unique(numbers, return_index=True)[1])
    if len(again):
        rows = np.flatnonzero(numbers == numbers[again[0]])[:3].tolist()
        raise TableError(
            f"The key {', '.join(map(repr, names))} occurs more than once. Received: {len(again)} repeated rows, such "
            f"as {', '.join(map(repr, _examples(keys, again)))} (rows {rows}). Drop the repeated rows, or pass "
            "`aggregate='mean'`, 'sum', 'min', 'max', 'first' or 'last'."
        )


def _examples(keys: Sequence[Keys], rows: np.ndarray) -> list[Any]:
    """Some keys at these rows, each once; as tuples if there are several columns."""
    shown = zip(*(part.shown(rows[:1000]) for part in keys), strict=True)
    return list(dict.fromkeys(one if len(keys) > 1 else one[0] for one in shown))[:_EXAMPLES]


def refuse_absent(table: str, keys: Sequence[Keys], slots: np.ndarray) -> None:
    """Raise if keys have no slot in a table, with examples."""
    rows = np.flatnonzero(slots < 0)
    if len(rows):
        examples = _examples(keys, rows)
        raise TableError(
            f"{len(rows)} of {len(slots)} keys are not in {table}. Received: {', '.join(map(repr, examples))}"
            f"{', ...' if len(rows) > len(examples) else ''}. Add these rows, or state what a missing key means: "
            "`missing={column: default}` or `missing='nan'`."
        )
