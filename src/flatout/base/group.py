"""A group of processes that train one model together: which of them this is, and what they tell each other.

There is one way to talk, a sum over all of them, which every backend has. Rows of which each has some become rows that
all have by a sum with zeros in the place of what others have.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Place:
    """Which process of a group: its number, how many there are, and where each listens (`host:port`)."""

    rank: int
    addresses: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.addresses)

    def rows_of(self, total: Any) -> tuple[Any, Any]:
        """The first of this process' rows of a batch, and the first that is another's; of numbers or tensors."""
        return total * self.rank // self.size, total * (self.rank + 1) // self.size

    def computed_rows(self, total: Any) -> slice:
        """Those rows; of a batch with fewer rows than processes some have none, and compute one that nobody gets."""
        first, last = self.rows_of(total)
        return slice(first, last + 1 // (last - first + 1))


class Group(ABC):
    """A process' view of its group.

    Attributes:
        place: Which process it is.
    """

    def __init__(self, place: Place):
        self.place = place
        self._is_alone = False

    @property
    def is_first(self) -> bool:
        return self.place.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether what runs now runs in this process and in no other: a callback."""
        return self._is_alone

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        before, self._is_alone = self._is_alone, True
        try:
            yield
        finally:
            self._is_alone = before

    @abstractmethod
    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """The sum of everybody's array of int32."""

    def told_by_first(self, message: Any, arrays: list[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        """What the first process passes here: something that JSON holds, and arrays of known shapes."""
        head = json.dumps(message).encode()
        length = int(self._from_first(np.array([len(head)], np.int32))[0])
        head = self._from_first(_as_numbers(head, length)).tobytes()[:length]
        sizes = [array.nbytes for array in arrays]
        everything = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        data = self._from_first(_as_numbers(everything, len(everything))).tobytes() if everything else b""
        ends = np.cumsum([0, *sizes])
        found = [
            np.frombuffer(data[start:stop], array.dtype).reshape(array.shape)
            for array, start, stop in zip(arrays, ends[:-1], ends[1:], strict=True)
        ]
        return json.loads(head), found

    def _from_first(self, numbers: np.ndarray) -> np.ndarray:
        return self.sum_numbers(numbers if self.is_first else np.zeros_like(numbers))


class GroupOfOne(Group):
    """A worker process without others."""

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        return numbers


class DividingGroup(Group):
    """A group whose processes each call the model on rows of their own; elsewhere the engine divides batches."""

    @abstractmethod
    def rows_of_all(self, part: Any, first: Any, last: Any, total: Any) -> Any:
        """Rows `first` to `last` of `total`, of each process its own, as all rows, in each; differentiable.

        `part` may have more rows than that, which nobody gets. Its gradient is that of all rows times the number of
        processes, so that the mean of everybody's gradients is that of the whole batch.
        """

    @abstractmethod
    def means(self, values: list[Any]) -> list[Any]:
        """The mean of everybody's, for each of these."""


def _as_numbers(data: bytes, length: int) -> np.ndarray:
    return np.frombuffer(data[:length].ljust(-(-length // 4) * 4, b"\0"), np.int32)


_joined: Group | None = None


def joined() -> Group | None:
    """The group that this process belongs to, if any."""
    return _joined


def join(group: Group) -> None:
    """Belong to a group from here on; a process belongs to one in its life."""
    global _joined
    _joined = group
