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
        if self.kind != "integer":
            return False
        return not len(self.values) or (self.values.min() >= INT32.min and self.values.max() <= INT32.max)

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
    """The keys of a column.

    Raises:
        TableError: Some are missing, or of a type that is no key.
    """
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
    values = column.values
    if column.categories is not None:
        names = as_keys(as_column(np.array(column.categories, dtype=object)), name)
        filler = np.append(names.values, _absent(names.kind))
        codes = np.where(values < 0, len(names.values), values)
        return Keys(names.kind, filler[codes])
    if values.ndim != 1:
        raise TableError(f"The key {name!r} must be one-dimensional. Received: an array of shape {values.shape}.")
    kind, keys = _canonical(values, name, column.missing)
    if column.missing is not None:
        keys = keys.copy()
        keys[column.missing] = _absent(kind)
    return Keys(kind, keys)


def _absent(kind: str) -> Any:
    return "\0missing" if kind == "text" else np.iinfo(np.int64).min


def _canonical(values: np.ndarray, name: str, missing: np.ndarray | None) -> tuple[str, np.ndarray]:
    kind = values.dtype.kind
    if kind in "bi":
        return "integer", values.astype(np.int64)
    if kind == "u":
        if len(values) and values.max() > np.iinfo(np.int64).max:
            raise TableError(f"The key {name!r} has values above 2**63. Received: {int(values.max())}.")
        return "integer", values.astype(np.int64)
    if kind == "f":
        present = values if missing is None else values[~missing]
        if not (np.isfinite(present).all() and (present == np.round(present)).all()):
            example = present[~np.isfinite(present) | (present != np.round(present))][0]
            raise TableError(
                f"The key {name!r} holds numbers that are not whole. Received: {example}. For ranges of numbers pass "
                "`intervals='left'` or 'right', or a column of pandas intervals."
            )
        if len(present) and np.abs(present).max() > 2 ** (np.finfo(values.dtype).nmant + 1):
            raise TableError(
                f"The key {name!r} is {values.dtype}, which cannot tell neighbouring whole numbers of this size apart. "
                f"Received: {np.abs(present).max():.0f}. Read the column as int64."
            )
        return "integer", np.where(np.isnan(values), 0, values).astype(np.int64)
    if kind == "M":
        return "date", values.astype("datetime64[ns]").astype(np.int64)
    if kind in "US":
        return "text", np.array([_text(value) for value in values.tolist()], dtype=object)
    if kind == "O":
        return _canonical_objects(values, name, missing)
    raise TableError(f"The key {name!r} is of type {values.dtype}. Expected integers, text, dates or intervals.")


def _canonical_objects(values: np.ndarray, name: str, missing: np.ndarray | None) -> tuple[str, np.ndarray]:
    absent = np.zeros(len(values), bool) if missing is None else missing
    present = values[~absent]
    if all(isinstance(value, (str, bytes)) for value in present):
        texts = np.array(
            ["" if gone else _text(value) for value, gone in zip(values, absent, strict=True)], dtype=object
        )
        return "text", texts
    if all(isinstance(value, (datetime.date, np.datetime64)) for value in present):
        dates = [np.datetime64(0, "ns") if gone else value for value, gone in zip(values, absent, strict=True)]
        return "date", np.array(dates, dtype="datetime64[ns]").astype(np.int64)
    if all(isinstance(value, (bool, int, np.integer)) for value in present):
        return "integer", np.array([0 if gone else int(value) for value, gone in zip(values, absent, strict=True)])
    kinds = sorted({type(value).__name__ for value in present})
    raise TableError(f"The key {name!r} holds values of the types {kinds}. Expected integers, text or dates.")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def numbered(keys: Sequence[Keys]) -> np.ndarray:
    """A number for each row, the same for rows with the same key."""
    combined = np.zeros(len(keys[0].values), np.int64)
    for part in keys:
        if part.intervals is None:
            own = np.unique(part.values, return_inverse=True)[1].reshape(-1)
        else:
            ends = np.stack([part.intervals.left, part.intervals.right], axis=1)
            own = np.unique(ends, axis=0, return_inverse=True)[1].reshape(-1)
        combined = np.unique(combined * (own.max(initial=0) + 1) + own, return_inverse=True)[1].reshape(-1)
    return combined


def check_distinct(keys: Sequence[Keys], names: Sequence[str]) -> None:
    """Raise if a key occurs twice.

    Raises:
        TableError: With examples.
    """
    numbers = numbered(keys)
    order = np.argsort(numbers, kind="stable")
    again = np.sort(order[1:][numbers[order][1:] == numbers[order][:-1]])
    if not len(again):
        return
    rows = np.flatnonzero(numbers == numbers[again[0]])[:3].tolist()
    raise TableError(
        f"The key {', '.join(map(repr, names))} occurs more than once. Received: {len(again)} repeated rows, such as "
        f"{', '.join(map(repr, _examples(keys, again)))} (rows {rows}). Drop the repeated "
        "rows, or pass `aggregate='mean'`, 'sum', 'min', 'max', 'first' or 'last'."
    )


def _examples(keys: Sequence[Keys], rows: np.ndarray) -> list[Any]:
    """Some keys at these rows, each once; as tuples if there are several columns."""
    shown = zip(*(part.shown(rows[:1000]) for part in keys), strict=True)
    return list(dict.fromkeys(one if len(keys) > 1 else one[0] for one in shown))[:_EXAMPLES]


def missing_message(name: str, keys: Sequence[Keys], rows: np.ndarray, total: int) -> str:
    """What to say of keys that a table does not have."""
    examples = _examples(keys, rows)
    return (
        f"{len(rows)} of {total} keys are not in {name}. Received: {', '.join(map(repr, examples))}"
        f"{', ...' if len(rows) > len(examples) else ''}. Add these rows, or state what a missing key means: "
        "`missing={column: default}` or `missing='nan'`."
    )
