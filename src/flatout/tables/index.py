"""The host's side of a table: which keys it has, in which slots, and the codes that stand for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.host_columns import INDEX, FrameColumn, Intervals, as_column
from flatout.tables.columns.keys import Keys, as_keys, check_distinct, missing_message, read_keys
from flatout.tables.joins.interval_join import IntervalJoin
from flatout.tables.joins.join import CodedJoin, Join
from flatout.tables.joins.product_join import ProductJoin, choose_joins


@dataclass(frozen=True)
class Placing:
    """Where the rows of a frame go.

    Attributes:
        slots: A slot for each group of rows with the same key.
        groups: The group of each row of the frame, or None if each row is its own.
    """

    slots: np.ndarray
    groups: np.ndarray | None


class TableIndex:
    """The keys of one table.

    Attributes:
        names: The key columns.
        join: How keys find their slots.
        rows: The slot of each key, in the order of the frame.
        present: Which slots hold a row.
        duplicates: Rows of the frame whose key had occurred before.
    """

    def __init__(
        self,
        name: str,
        frame: Mapping[str, FrameColumn],
        key: str | Sequence[str] | None,
        intervals: str | None,
        capacity: int | None,
        join: str,
    ):
        self._table = name
        self.names = (INDEX,) if key is None else (key,) if isinstance(key, str) else tuple(map(str, key))
        self._intervals = intervals
        keys = self._keys_of(frame)
        self._kinds = tuple(column.kind for column in keys)
        self.join: Join | ProductJoin | CodedJoin = choose_joins(self.names, keys, capacity, join)
        self.rows = np.zeros(0, np.int64)
        self.present = np.zeros(self.join.size, bool)
        self.duplicates = 0
        self._keys = keys

    def take(self, frame: Mapping[str, FrameColumn], may_repeat: bool) -> Placing:
        """Take the keys of a frame in the place of all.

        Raises:
            TableError: A key is missing or (unless `may_repeat`) occurs twice, or there is no room for it.
        """
        keys = self._keys_of(frame)
        if not may_repeat:
            check_distinct(keys, self.names)
        try:
            slots = self.join.assign(self._for_join(keys))
        except TableError:
            if len(self.rows):
                self.join.assign(self._for_join(self._keys))
            raise
        distinct, first, groups = np.unique(slots, return_index=True, return_inverse=True)
        self.duplicates = len(slots) - len(distinct)
        if self.duplicates:
            slots = distinct
            keys = [Keys(part.kind, part.values[first], _some(part.intervals, first)) for part in keys]
        self._keys, self.rows = keys, slots
        self.present = np.zeros(self.join.size, bool)
        self.present[slots] = True
        return Placing(slots, groups.reshape(-1) if self.duplicates else None)

    def slots(self, values: Sequence[Any]) -> np.ndarray:
        """The slots of keys; -1 for those that are not in the table."""
        return self._slots(self._columns(values))

    def codes(self, values: Sequence[Any], must_be_present: bool) -> np.ndarray:
        """What stands for keys in the step, as int32.

        Raises:
            TableError: A key is not in the table, and must be.
        """
        columns = self._columns(values)
        slots = self._slots(columns)
        if must_be_present:
            self._refuse_absent(columns, slots)
        if self._is_composite:
            return slots.astype(np.int32)
        join: Any = self.join
        codes = join.codes(columns[0])
        return np.where(slots >= 0, codes, -1).astype(np.int32) if join.takes_codes else codes

    def codes_of_part(self, name: str, values: Any, must_be_present: bool) -> np.ndarray:
        """As `codes`, of one key of several."""
        if name not in self.names:
            raise TableError(f"Unknown key {name!r}. Expected one of {list(self.names)}.")
        if len(self.names) == 1:
            return self.codes([values], must_be_present)
        if not isinstance(self.join, ProductJoin):
            raise TableError(
                f"The keys of {self._table} are coded together: they have too many combinations. Pass all of them: "
                f"`table.codes({', '.join(self.names)})`."
            )
        part, keys = self.join.parts[self.names.index(name)], as_keys(as_column(values), name)
        codes, slots = part.codes(keys), part.slots(keys)
        if must_be_present and (slots < 0).any():
            raise TableError(missing_message(f"{self._table} ({name})", [keys], np.flatnonzero(slots < 0), len(slots)))
        return codes

    def check(self, values: Sequence[Any]) -> None:
        """Raise if keys are not in the table, with examples."""
        columns = self._columns(values)
        self._refuse_absent(columns, self._slots(columns))

    def check_looked_up(self, arrays: Sequence[np.ndarray]) -> None:
        """Raise if arrays hold keys or codes that `locate` would not find."""
        takes_codes = len(arrays) < len(self.names) or getattr(self.join, "takes_codes", False)
        if takes_codes:
            codes = arrays[0].astype(np.int64)
            inside = (codes >= 0) & (codes < self.join.size)
            found = inside & self.present[np.where(inside, codes, 0)]
            if not found.all():
                examples = np.unique(codes[~found])[:5].tolist()
                raise TableError(
                    f"{int((~found).sum())} of {len(found)} codes are not of {self._table}. Received: {examples}. Put "
                    "`table.codes(values)` into x, made of this table."
                )
        elif not any(isinstance(part, CodedJoin) for part in getattr(self.join, "parts", ())):
            self.check(arrays)

    def shown(self) -> dict[str, np.ndarray]:
        """The keys as the user knows them, by column."""
        return {
            name: np.array(part.shown(range(len(part.values))))
            for name, part in zip(self.names, self._keys, strict=True)
        }

    def sample(self, count: int) -> list[np.ndarray]:
        """Some keys as `locate` takes them, spread over the table."""
        chosen = np.random.default_rng(0).integers(0, len(self.rows), count)
        if self._is_composite:
            return [self.rows[chosen].astype(np.int32)]
        if isinstance(self.join, IntervalJoin):
            ends = self._keys[0].intervals
            assert ends is not None
            return [np.where(np.isfinite(ends.left), ends.left, ends.right)[chosen].astype(np.float32)]
        part = Keys(self._kinds[0], self._keys[0].values[chosen])
        return [np.asarray(self.join.codes(part))]  # type: ignore[union-attr]

    def digest(self) -> bytes:
        """A number that changes with the keys and the slots they have."""
        content = hashlib.sha256()
        for part in self._keys:
            content.update(repr(part.values.tolist()).encode())
        content.update(np.ascontiguousarray(self.rows).tobytes())
        return content.digest()

    def _for_join(self, keys: list[Keys]) -> Any:
        """Keys as the join takes them: all of them, or the only one."""
        return keys if self._is_composite else keys[0]

    @property
    def _is_composite(self) -> bool:
        return len(self.names) > 1

    def _keys_of(self, frame: Mapping[str, FrameColumn]) -> list[Keys]:
        keys = []
        for name in self.names:
            if name not in frame:
                raise TableError(f"Unknown column {name!r} in argument `key`. Expected one of {sorted(frame)}.")
            column = frame[name]
            if self._intervals is not None and column.intervals is None and not self._is_composite:
                column = _ranges(column, name, self._intervals)
            keys.append(read_keys(column, name))
        if not len(keys[0].values):
            raise TableError("A table needs at least one row. Received: an empty frame.")
        return keys

    def _columns(self, values: Sequence[Any]) -> list[Keys]:
        if len(values) != len(self.names):
            raise TableError(
                f"Expected values of {len(self.names)} keys ({', '.join(self.names)}). Received: {len(values)}."
            )
        columns = []
        for name, kind, given in zip(self.names, self._kinds, values, strict=True):
            column = as_column(given)
            if kind == "interval":
                columns.append(Keys("number", np.asarray(column.values, np.float64)))
                continue
            keys = as_keys(column, name)
            if keys.kind != kind and len(keys.values):
                raise TableError(f"The key {name!r} is of kind {kind}. Received: values of kind {keys.kind}.")
            columns.append(Keys(kind, keys.values))
        return columns

    def _slots(self, columns: list[Keys]) -> np.ndarray:
        slots = self.join.slots(self._for_join(columns))
        return np.where((slots >= 0) & self.present[np.maximum(slots, 0)], slots, -1)

    def _refuse_absent(self, columns: list[Keys], slots: np.ndarray) -> None:
        if (slots < 0).any():
            raise TableError(missing_message(self._table, columns, np.flatnonzero(slots < 0), len(slots)))


def _ranges(column: FrameColumn, name: str, closed: str) -> FrameColumn:
    if column.values.dtype.kind not in "iuf" or column.missing is not None:
        raise TableError(f"The ends of intervals {name!r} must be numbers, none of them missing.")
    ends = column.values.astype(np.float64)
    order = np.argsort(ends, kind="stable")
    ordered = ends[order]
    left, right = np.empty_like(ends), np.empty_like(ends)
    if closed == "left":
        left[order], right[order] = ordered, np.append(ordered[1:], np.inf)
    else:
        left[order], right[order] = np.append(-np.inf, ordered[:-1]), ordered
    return FrameColumn(column.values, intervals=Intervals(left, right, closed))


def _some(intervals: Intervals | None, rows: np.ndarray) -> Intervals | None:
    return intervals and Intervals(intervals.left[rows], intervals.right[rows], intervals.closed)
