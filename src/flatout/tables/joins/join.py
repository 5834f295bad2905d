"""From keys to rows, inside the compiled step: joins of single keys, none with a hash table or a trip to the host.

Every join maps a batch of keys to *slots*, the positions of a table's rows in its device columns, and says which of
the keys it can have at all. No slot is ever outside the columns, whatever the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.keys import INT32, Keys

from .device_columns import variable
from .device_keys import refuse_inexact, whole_numbers
from .gather import clipped, gather
from .search import search


class Join(Protocol):
    """How one key finds its slot.

    Attributes:
        kind: `"dense"`, `"searchsorted"`, `"codes"` or `"intervals"`.
        size: Number of slots.
        takes_codes: Whether `locate` takes codes, which `codes` makes on the host, in the place of keys.
    """

    kind: str
    size: int
    takes_codes: bool

    def variables(self) -> list[Any]:
        """What it holds on the device."""
        ...

    def assign(self, keys: Keys) -> np.ndarray:
        """Take other keys; returns the slot of each.

        Raises:
            TableError: There is no room for them.
        """
        ...

    def slots(self, keys: Keys) -> np.ndarray:
        """The slots of keys on the host; -1 for one that it cannot have."""
        ...

    def codes(self, keys: Keys) -> np.ndarray:
        """What `locate` takes for these keys, as int32; -1 or a key that it cannot have stays one."""
        ...

    def locate(self, keys: Any) -> tuple[Any, Any]:
        """Slots (int32, always inside) and whether each key is possible, in the compiled step."""
        ...


def rows_of(join: Any, keys: Any) -> Any:
    """The rows of keys in the device columns: slot and 1; a reserved row, before or after them all, if impossible."""
    from keras import ops

    if isinstance(join, (DenseJoin, CodedJoin)):
        return join.rows(keys)
    slots, possible = join.locate(keys)
    return ops.where(possible, slots + 1, 0)


def rows_between(keys: Any, low: int, high: int, name: str) -> Any:
    """The rows of keys or codes that are their own slots, counted from `low`; in two operations where that will do."""
    from keras import ops

    rows = clipped(keys, low, high)
    if rows is not None:
        return rows
    numbers, possible = whole_numbers(keys, low, high, name)
    return ops.where(possible, numbers - low + 1, 0)


class DenseJoin:
    """Whole numbers without large gaps: the slot is the key itself, less the smallest one."""

    kind = "dense"
    takes_codes = False

    def __init__(self, name: str, low: int, size: int):
        self._name, self._low = name, low
        self.size = min(size, INT32.max - low + 1)

    def variables(self) -> list[Any]:
        return []

    def assign(self, keys: Keys) -> np.ndarray:
        slots = self.slots(keys)
        if (slots < 0).any():
            raise TableError(
                f"The key {self._name!r} has values outside {self._low} to {self._low + self.size - 1}, for which this "
                f"table has room. Received: {keys.shown(np.flatnonzero(slots < 0)[:5])}. Make the table with a larger "
                "`capacity`."
            )
        return slots

    def slots(self, keys: Keys) -> np.ndarray:
        offsets = keys.values - self._low if keys.kind == "integer" else np.full(len(keys.values), -1)
        # A difference of int64 may wrap; the key itself may not.
        possible = (keys.values >= self._low) & (offsets >= 0) & (offsets < self.size) if len(offsets) else offsets > 0
        return np.where(possible, offsets, -1)

    def codes(self, keys: Keys) -> np.ndarray:
        return np.where(self.slots(keys) >= 0, keys.values, _impossible(self._low)).astype(np.int32)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        numbers, possible = whole_numbers(keys, self._low, self._low + self.size - 1, self._name)
        return numbers - self._low, possible

    def rows(self, keys: Any) -> Any:
        """`rows_of`, without a look at slots."""
        return rows_between(keys, self._low, self._low + self.size - 1, self._name)


class SearchJoin:
    """Whole numbers with large gaps: a binary search among the sorted keys, log2(n) dependent reads."""

    kind = "searchsorted"
    takes_codes = False

    def __init__(self, name: str, size: int):
        self._name, self.size = name, size
        self._host = np.full(size, INT32.max, np.int32)
        self._used = 0
        self._keys = variable(self._host, "int32", "keys")

    def variables(self) -> list[Any]:
        return [self._keys]

    def assign(self, keys: Keys) -> np.ndarray:
        distinct = np.unique(keys.values)
        if not keys.fits_int32 or len(distinct) > self.size:
            raise TableError(
                f"This table has room for {self.size} keys {self._name!r} of 32 bits. Received: {len(distinct)} keys. "
                "Make it with a larger `capacity`."
            )
        self._used = len(distinct)
        self._host[: self._used], self._host[self._used :] = distinct, INT32.max
        self._keys.assign(self._host)
        return self.slots(keys)

    def slots(self, keys: Keys) -> np.ndarray:
        if keys.kind != "integer" or not self._used:
            return np.full(len(keys.values), -1)
        known = self._host[: self._used].astype(np.int64)
        places = np.minimum(np.searchsorted(known, keys.values), self._used - 1)
        return np.where(known[places] == keys.values, places, -1)

    def codes(self, keys: Keys) -> np.ndarray:
        unknown = _unused(self._host[: self._used])
        return np.where(self.slots(keys) >= 0, keys.values, unknown).astype(np.int32)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        from keras import ops

        largest = int(np.abs(self._host[: self._used].astype(np.int64)).max()) if self._used else 0
        refuse_inexact(keys, largest, self._name)
        numbers, possible = whole_numbers(keys, INT32.min, INT32.max, self._name, checked=True)
        places = search(self._keys, ops.reshape(numbers, (-1,)), "left")
        places = ops.reshape(ops.minimum(ops.cast(places, "int32"), self.size - 1), ops.shape(numbers))
        return places, ops.logical_and(possible, gather(self._keys, places) == numbers)


class CodedJoin:
    """Text, dates, 64-bit integers, and combinations of keys: numbered once on the host.

    A key keeps its number for good, so that data coded before an `update` stay right after it.
    """

    kind = "codes"
    takes_codes = True

    def __init__(self, name: str, keys: Keys | Sequence[Keys], capacity: int | None):
        self._name = name
        self._numbers: dict[Any, int] = {}
        self._has_integers = isinstance(keys, Keys) and keys.kind == "integer"
        distinct = len(set(_entries(keys)))
        self.size = max(1, capacity or 0, distinct)

    def variables(self) -> list[Any]:
        return []

    def assign(self, keys: Keys | Sequence[Keys]) -> np.ndarray:
        entries = _entries(keys)
        new = [entry for entry in dict.fromkeys(entries) if entry not in self._numbers]
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

    def codes(self, keys: Keys | Sequence[Keys]) -> np.ndarray:
        return self.slots(keys).astype(np.int32)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        self._refuse_keys(keys)
        return whole_numbers(keys, 0, self.size - 1, self._name)

    def rows(self, keys: Any) -> Any:
        """`rows_of`, without a look at slots."""
        self._refuse_keys(keys)
        return rows_between(keys, 0, self.size - 1, self._name)

    def _refuse_keys(self, keys: Any) -> None:
        import keras

        if self._has_integers and keras.backend.standardize_dtype(keys.dtype) in ("int64", "uint64"):
            raise TableError(
                f"The keys {self._name!r} of this table are coded, because they need more than 32 bits or join='codes' "
                "was asked for. Received: int64, which look like the keys themselves. Put "
                "`table.codes(values)` into x in their place (int32)."
            )


def _entries(keys: Keys | Sequence[Keys]) -> list[Any]:
    if isinstance(keys, Keys):
        return keys.values.tolist()
    return list(zip(*(part.values.tolist() for part in keys), strict=True))


def _impossible(low: int) -> int:
    """A number of 32 bits that lies outside a dense table: none is outside of one that has them all."""
    return low - 1 if low > INT32.min else INT32.max


def _unused(known: np.ndarray) -> int:
    """A number of 32 bits that is not among sorted keys."""
    candidates = np.arange(INT32.min, INT32.min + len(known) + 1, dtype=np.int64)
    return int(np.setdiff1d(candidates, known.astype(np.int64))[0])
