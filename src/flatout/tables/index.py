"""The host's side of a table: which keys it has, in which slots, and the codes that stand for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.host_columns import INDEX, FrameColumn, Intervals, as_column
from flatout.tables.columns.keys import Keys, as_keys, check_distinct, read_keys, refuse_absent
from flatout.tables.joins.join import CodedJoin, Join, ProductJoin, choose_join


class TableIndex:
    """The keys of one table.

    Attributes:
        names: The key columns.
        join: How keys find their slots.
        codes_are_slots: Whether what stands for keys in the step are their slots; else it is the keys themselves.
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
        self._keys = self._keys_of(frame)
        self.join: Join = choose_join(self.names, self._keys, capacity, join)
        self.codes_are_slots = self._is_composite or isinstance(self.join, CodedJoin)
        self.rows = np.zeros(0, np.int64)
        self.present = np.zeros(self.join.size, bool)
        self.duplicates = 0

    def take(self, frame: Mapping[str, FrameColumn], may_repeat: bool) -> np.ndarray:
        """Take the keys of a frame in the place of all, or refuse them all; returns the slot of each row."""
        keys = self._keys_of(frame)
        for name, own, given in zip(self.names, self._keys, keys, strict=True):
            _refuse_other_kind(name, own, given)
        if not may_repeat:
            check_distinct(keys, self.names)
        try:
            slots = self.join.assign(self._for_join(keys))
        except TableError:
            if len(self.rows):
                self.join.assign(self._for_join(self._keys))
            raise
        distinct, first = np.unique(slots, return_index=True)
        self.duplicates = len(slots) - len(distinct)
        self._keys, self.rows = keys, slots
        if self.duplicates:
            self._keys, self.rows = [part.take(first) for part in keys], distinct
        self.present = np.zeros(self.join.size, bool)
        self.present[slots] = True
        return slots

    def found(self, values: Sequence[Any], must_be_present: bool) -> tuple[list[Keys], np.ndarray]:
        """Values as keys, and their slots; -1 for those that are not in the table, unless they must be."""
        if len(values) != len(self.names):
            raise TableError(
                f"Expected values of {len(self.names)} keys ({', '.join(self.names)}). Received: {len(values)}."
            )
        columns = []
        for name, given, own in zip(self.names, map(as_column, values), self._keys, strict=True):
            is_range = own.intervals is not None
            keys = Keys(own.kind, np.asarray(given.values, np.float64)) if is_range else as_keys(given, name)
            _refuse_other_kind(name, own, keys)
            columns.append(Keys(own.kind, keys.values))
        slots = self.join.slots(self._for_join(columns))
        slots = np.where((slots >= 0) & self.present[np.maximum(slots, 0)], slots, -1)
        if must_be_present:
            refuse_absent(self._table, columns, slots)
        return columns, slots

    def codes(self, values: Sequence[Any], must_be_present: bool) -> np.ndarray:
        """What stands for keys in the step, as int32."""
        columns, slots = self.found(values, must_be_present)
        return slots.astype(np.int32) if self.codes_are_slots else self.join.codes(columns[0])

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
        if must_be_present:
            refuse_absent(f"{self._table} ({name})", [keys], part.slots(keys))
        return part.codes(keys)

    def check_looked_up(self, arrays: Sequence[np.ndarray]) -> None:
        """Raise if arrays hold keys or codes that `locate` would not find."""
        if self.codes_are_slots and len(arrays) == 1:
            unknown = arrays[0][~np.isin(arrays[0], self.rows)]
            if len(unknown):
                examples = np.unique(unknown)[:5].astype(np.int64).tolist()
                raise TableError(
                    f"{len(unknown)} of {len(arrays[0])} codes are not of {self._table}. Received: {examples}. Put "
                    "`table.codes(values)` into x, made of this table."
                )
        elif not any(isinstance(part, CodedJoin) for part in getattr(self.join, "parts", ())):
            self.found(arrays, must_be_present=True)

    def shown(self) -> dict[str, np.ndarray]:
        """The keys as the user knows them, by column."""
        return {
            name: np.array(part.shown(range(len(part.values))))
            for name, part in zip(self.names, self._keys, strict=True)
        }

    def sample(self, count: int) -> np.ndarray:
        """Some keys as a step takes them, spread over the table."""
        chosen = np.random.default_rng(0).integers(0, len(self.rows), count)
        if self.codes_are_slots:
            return self.rows[chosen].astype(np.int32)
        keys = self._keys[0].take(chosen)
        if keys.intervals is None:
            return self.join.codes(keys)
        ends = keys.intervals
        return np.where(np.isfinite(ends.left), ends.left, ends.right).astype(np.float32)

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


def _refuse_other_kind(name: str, own: Keys, given: Keys) -> None:
    if given.kind != own.kind and len(given.values):
        raise TableError(f"The key {name!r} is of kind {own.kind}. Received: values of kind {given.kind}.")


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
