"""The join of ranges of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.tables.columns.keys import Keys

from .device_columns import variable
from .gather import gather
from .search import search


class IntervalJoin:
    """Ranges of numbers, as of `pandas.cut`: a search among their left ends, then a look at the right end."""

    kind = "intervals"
    takes_codes = False

    def __init__(self, name: str, keys: Keys, capacity: int | None):
        if keys.intervals is None:
            raise TableError(f"The key {name!r} holds no intervals.")
        self._name, self._closed = name, keys.intervals.closed
        self.size = max(1, capacity or 0, len(keys.values))
        self._left_host = self._right_host = np.full(self.size, np.inf, np.float32)
        self._left, self._right = (variable(self._left_host, "float32", end) for end in ("left", "right"))

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
        first = np.concatenate([[True], ~same]) if len(left) else np.zeros(0, bool)
        self._left_host, self._right_host = (np.full(self.size, np.inf, np.float32) for _ in range(2))
        self._left_host[: first.sum()], self._right_host[: first.sum()] = left[first], right[first]
        self._left.assign(self._left_host)
        self._right.assign(self._right_host)
        slots = np.empty(len(order), np.int64)
        slots[order] = np.cumsum(first) - 1
        return slots

    def codes(self, keys: Keys) -> np.ndarray:
        raise TableError(f"The key {self._name!r} is a range: its values need no codes. Pass them to `at` as they are.")

    def slots(self, keys: Keys) -> np.ndarray:
        """The slots of numbers on the host, by the comparisons of `locate`; -1 outside of all intervals."""
        numbers = np.asarray(keys.values, np.float32)
        side: Any = "right" if self._closed in ("left", "both") else "left"
        places = np.searchsorted(self._left_host, numbers, side=side) - 1
        right = self._right_host[np.maximum(places, 0)]
        inside = numbers <= right if self._closed in ("right", "both") else numbers < right
        return np.where((places >= 0) & inside, places, -1)

    def locate(self, keys: Any) -> tuple[Any, Any]:
        from keras import ops

        numbers = ops.cast(keys, "float32")
        side = "right" if self._closed in ("left", "both") else "left"
        places = search(self._left, ops.reshape(numbers, (-1,)), side)
        places = ops.reshape(ops.cast(places, "int32") - 1, ops.shape(numbers))
        slots = ops.maximum(places, 0)
        end = gather(self._right, slots)
        inside = numbers <= end if self._closed in ("right", "both") else numbers < end
        # The left end once more: where a NaN is sorted differs between backends.
        begin = gather(self._left, slots)
        inside = ops.logical_and(inside, numbers >= begin if self._closed in ("left", "both") else numbers > begin)
        return slots, inside
