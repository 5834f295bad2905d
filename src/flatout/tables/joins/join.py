"""From keys to rows, inside the compiled step, for one key or several: none with a hash table or a trip to the host.

Every join maps a batch of keys to *slots*, the positions of a table's rows in its device columns, and says which of
the keys it can have at all. No slot is ever outside the columns, whatever the keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from flatout.base.errors import TableError
from flatout.base.when_used import keras, ops
from flatout.tables.columns.host_columns import Intervals
from flatout.tables.columns.keys import INT32, Keys

from .device_rows import gather, rows_between, search, variable, whole_numbers

# Up to this many slots a table with gaps is held without an index; a larger one if at least a quarter is filled.
_SMALL = 65_536
_MOST_GAPS = 4


class Join(Protocol):
    """How keys find their slots.

    Attributes:
        kind: `"dense"`, `"searchsorted"`, `"codes"` or `"intervals"`.
        size: Number of slots.
    """

    kind: str
    size: int

    def variables(self) -> list[Any]:
        """What it holds on the device."""
        return []

    def assign(self, keys: Any) -> np.ndarray:
        """Take other keys, or raise TableError if there is no room for them; returns the slot of each."""

    def slots(self, keys: Any) -> np.ndarray:
        """The slots of keys on the host; -1 for one that it cannot have."""

    def locate(self, keys: Any) -> tuple[Any, Any]:
        """Slots (int32, always inside) and whether each key is possible, in the compiled step."""

    def rows(self, keys: Any) -> Any:
        """The rows of keys in the device columns: slot and 1; a reserved row, before or after all, if impossible."""
        slots, possible = self.locate(keys)
        return ops.where(possible, slots + 1, 0)

    def codes(self, keys: Keys) -> np.ndarray:
        """What `locate` takes for these keys, as int32: the keys themselves, or a number that it cannot have."""
        return np.where(self.slots(keys) >= 0, keys.values, self.impossible()).astype(np.int32)

    def impossible(self) -> int:
        """A number of 32 bits that is no key."""
        return -1


class DenseJoin(Join):
    """Whole numbers without large gaps: the slot is the key itself, less the smallest one."""

    kind = "dense"

    def __init__(self, name: str, low: int, size: int):
        self._name, self._low = name, low
        self.size = min(size, INT32.max - low + 1)
        self._high = low + self.size - 1

    def assign(self, keys: Keys) -> np.ndarray:
        slots = self.slots(keys)
        if (slots < 0).any():
            raise TableError(
                f"The key {self._name!r} has values outside {self._low} to {self._high}, for which this table has "
                f"room. Received: {keys.shown(np.flatnonzero(slots < 0)[:5])}. Make the table with a larger "
                "`capacity`."
            )
        return slots

    def slots(self, keys: Keys) -> np.ndarray:
        if keys.kind != "integer":
            return np.full(len(keys.values), -1)
        inside = (keys.values >= self._low) & (keys.values <= self._high)
        return np.where(inside, keys.values - self._low, -1)

    def impossible(self) -> int:
        # None is outside of a table that has them all.
        return self._low - 1 if self._low > INT32.min else INT32.max

    def locate(self, keys: Any) -> tuple[Any, Any]:
        numbers, possible = whole_numbers(keys, self._low, self._high, self._name)
        return numbers - self._low if self._low else numbers, possible

    def rows(self, keys: Any) -> Any:
        return rows_between(keys, self._low, self._high, self._name)


class CodedJoin(DenseJoin):
    """Text, dates, 64-bit integers, and combinations of keys: numbered once on the host; the number is the slot.

    A key keeps its number for good, so that data coded before an `update` stay right after it.
    """

    kind = "codes"

    def __init__(self, name: str, keys: Keys | Sequence[Keys], capacity: int | None):
        super().__init__(name, 0, max(1, capacity or 0, len(set(_entries(keys)))))
        self._numbers: dict[Any, int] = {}
        self._has_integers = isinstance(keys, Keys) and keys.kind == "integer"

    def assign(self, keys: Keys | Sequence[Keys]) -> np.ndarray:
        new = [entry for entry in dict.fromkeys(_entries(keys)) if entry not in self._numbers]
        if len(self._numbers) + len(new) > self.size:
            raise TableError(
                f"This table has room for {self.size} keys {self._name!r}, those that it has had so far included. "
                f"Received: {len(new)} new ones, such as {new[:5]}. Make it with a larger `capacity`."
            )
        for entry in new:
            self._numbers[entry] = len(self._numbers)
        return self.slots(keys)

    def slots(self, keys: Keys | Sequence[Keys]) -> np.ndarray:
        return np.array([self._numbers.get(entry, -1) for entry in _entries(keys)], np.int64)

    def codes(self, keys: Keys) -> np.ndarray:
        return self.slots(keys).astype(np.int32)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        return super().locate(self._as_codes(keys))

    def rows(self, keys: Any) -> Any:
        return super().rows(self._as_codes(keys))

    def _as_codes(self, keys: Any) -> Any:
        if self._has_integers and keras.backend.standardize_dtype(keys.dtype) in ("int64", "uint64"):
            raise TableError(
                f"The keys {self._name!r} of this table are coded, because they need more than 32 bits or join='codes' "
                "was asked for. Received: int64, which look like the keys themselves. Put "
                "`table.codes(values)` into x in their place (int32)."
            )
        return keys


def _entries(keys: Keys | Sequence[Keys]) -> list[Any]:
    if isinstance(keys, Keys):
        return keys.values.tolist()
    return list(zip(*(part.values.tolist() for part in keys), strict=True))


class SearchJoin(Join):
    """Whole numbers with large gaps: a binary search among the sorted keys, log2(n) dependent reads."""

    kind = "searchsorted"

    def __init__(self, name: str, size: int):
        self._name, self.size = name, size
        self._known = np.zeros(0, np.int64)
        self._keys = variable(np.full(size, INT32.max, np.int32), "int32", "keys")

    def variables(self) -> list[Any]:
        return [self._keys]

    def assign(self, keys: Keys) -> np.ndarray:
        distinct = np.unique(keys.values)
        if not keys.fits_int32 or len(distinct) > self.size:
            raise TableError(
                f"This table has room for {self.size} keys {self._name!r} of 32 bits. Received: {len(distinct)} keys. "
                "Make it with a larger `capacity`."
            )
        self._known = distinct
        self._keys.assign(np.pad(distinct.astype(np.int32), (0, self.size - len(distinct)), constant_values=INT32.max))
        return self.slots(keys)

    def slots(self, keys: Keys) -> np.ndarray:
        if keys.kind != "integer":
            return np.full(len(keys.values), -1)
        places = np.minimum(np.searchsorted(self._known, keys.values), len(self._known) - 1)
        return np.where(self._known[places] == keys.values, places, -1)

    def impossible(self) -> int:
        candidates = np.arange(INT32.min, INT32.min + len(self._known) + 1, dtype=np.int64)
        return int(np.setdiff1d(candidates, self._known)[0])

    def locate(self, keys: Any) -> tuple[Any, Any]:
        numbers, possible = whole_numbers(keys, INT32.min, INT32.max, self._name, int(np.abs(self._known).max()))
        places = ops.minimum(search(self._keys, numbers, "left"), self.size - 1)
        return places, ops.logical_and(possible, gather(self._keys, places) == numbers)


class IntervalJoin(Join):
    """Ranges of numbers, as of `pandas.cut`: a search among their left ends, then a look at the right end."""

    kind = "intervals"

    def __init__(self, name: str, ends: Intervals, capacity: int | None):
        self._name, self._closed = name, ends.closed
        self._has_left, self._has_right = (ends.closed in (side, "both") for side in ("left", "right"))
        self._side: Any = "right" if self._has_left else "left"
        self.size = max(1, capacity or 0, len(ends.left))
        self._ends = np.full((2, self.size), np.inf, np.float32)
        self._left = variable(self._ends[0], "float32", "left")
        self._right = variable(self._ends[1], "float32", "right")

    def variables(self) -> list[Any]:
        return [self._left, self._right]

    def assign(self, keys: Keys) -> np.ndarray:
        ends = keys.intervals
        if ends is None or ends.closed != self._closed or len(keys.values) > self.size:
            raise TableError(
                f"Expected at most {self.size} intervals {self._name!r} closed on the {self._closed}. Received: "
                f"{'no intervals' if ends is None else f'{len(ends.left)}, closed on the {ends.closed}'}."
            )
        order = np.lexsort((ends.right, ends.left))
        left, right = ends.left[order], ends.right[order]
        same = (left[1:] == left[:-1]) & (right[1:] == right[:-1])
        overlap = np.flatnonzero((left[1:] < right[:-1]) & ~same)
        if len(overlap):
            pair = keys.shown([order[overlap[0]], order[overlap[0] + 1]])
            raise TableError(f"Intervals {self._name!r} overlap. Received: {pair[0]} and {pair[1]}.")
        first = np.append(True, ~same)
        self._ends = np.full((2, self.size), np.inf, np.float32)
        self._ends[:, : first.sum()] = left[first], right[first]
        self._left.assign(self._ends[0])
        self._right.assign(self._ends[1])
        slots = np.empty(len(order), np.int64)
        slots[order] = np.cumsum(first) - 1
        return slots

    def codes(self, keys: Keys) -> np.ndarray:
        raise TableError(f"The key {self._name!r} is a range: its values need no codes. Pass them to `at` as they are.")

    def slots(self, keys: Keys) -> np.ndarray:
        """By the comparisons of `locate`."""
        numbers = np.asarray(keys.values, np.float32)
        places = np.searchsorted(self._ends[0], numbers, side=self._side) - 1
        right = self._ends[1][np.maximum(places, 0)]
        return np.where((places >= 0) & (numbers <= right if self._has_right else numbers < right), places, -1)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        numbers = ops.cast(keys, "float32")
        slots = ops.maximum(search(self._left, numbers, self._side) - 1, 0)
        begin, end = gather(self._left, slots), gather(self._right, slots)
        # The left end once more: where a NaN is sorted differs between backends.
        inside = numbers >= begin if self._has_left else numbers > begin
        return slots, ops.logical_and(inside, numbers <= end if self._has_right else numbers < end)


class ProductJoin(Join):
    """One join for each key: the slot is the number of the combination, the first key counting most."""

    def __init__(self, parts: Sequence[Join]):
        self.parts = tuple(parts)
        self.size = math.prod(part.size for part in parts)
        self.kind = " x ".join(part.kind for part in parts)

    def variables(self) -> list[Any]:
        return [variable for part in self.parts for variable in part.variables()]

    def assign(self, keys: Sequence[Keys]) -> np.ndarray:
        return self._combined([part.assign(column) for part, column in zip(self.parts, keys, strict=True)])

    def slots(self, keys: Sequence[Keys]) -> np.ndarray:
        return self._combined([part.slots(column) for part, column in zip(self.parts, keys, strict=True)])

    def _combined(self, slots: Sequence[np.ndarray]) -> np.ndarray:
        """The slot of each combination; -1 where one of its keys has none."""
        sizes = tuple(part.size for part in self.parts)
        return np.where(np.min(slots, axis=0) < 0, -1, np.ravel_multi_index(tuple(slots), sizes, mode="clip"))

    def locate(self, keys: Sequence[Any]) -> tuple[Any, Any]:
        slots, possible = self.parts[0].locate(keys[0])
        for part, column in zip(self.parts[1:], keys[1:], strict=True):
            own, own_possible = part.locate(column)
            slots = slots * part.size + own
            possible = ops.logical_and(possible, own_possible)
        return slots, possible


def choose_join(names: Sequence[str], keys: Sequence[Keys], capacity: int | None, wish: str) -> Join:
    """The join of a table: of one key, of the combinations of several, or of combinations coded as a whole."""
    if len(names) == 1:
        return _single_join(names[0], keys[0], capacity, wish)
    most = _most_slots(max(len(keys[0].values), capacity or 0))
    if wish == "codes" or math.prod(len(np.unique(column.values)) for column in keys) > most:
        return CodedJoin(" and ".join(names), keys, capacity)
    parts = [_single_join(name, column, None, wish) for name, column in zip(names, keys, strict=True)]
    if math.prod(part.size for part in parts) > most:
        # Gaps multiply; without them the combinations are few.
        parts = [_single_join(name, column, None, _gapless(column)) for name, column in zip(names, keys, strict=True)]
    return ProductJoin(parts)


def _single_join(name: str, keys: Keys, capacity: int | None, wish: str) -> Join:
    """The cheapest join that is right for these keys."""
    if keys.intervals is not None:
        return IntervalJoin(name, keys.intervals, capacity)
    if not keys.fits_int32 or wish == "codes":
        if wish in ("dense", "searchsorted"):
            raise TableError(
                f"join={wish!r} needs integers of 32 bits. Received: the key {name!r} of kind {keys.kind}. Leave "
                "`join` out: such keys are coded on the host with `table.codes(values)`."
            )
        return CodedJoin(name, keys, capacity)
    rows = max(capacity or 0, len(keys.values))
    if wish == "dense" or (wish == "auto" and _span(keys) <= _most_slots(rows)):
        return DenseJoin(name, int(keys.values.min()), max(_span(keys), capacity or 0))
    return SearchJoin(name, rows)


def _gapless(keys: Keys) -> str:
    if not keys.fits_int32:
        return "auto"
    return "dense" if _span(keys) == len(np.unique(keys.values)) else "searchsorted"


def _span(keys: Keys) -> int:
    return int(keys.values.max()) - int(keys.values.min()) + 1


def _most_slots(rows: int) -> int:
    return max(_SMALL, _MOST_GAPS * rows)
