"""Host memory that chunks are put together in."""

from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np

from flatout.data.device.pinned_memory import borrowed, view, whole_pages

# Of arrays that share a slot; all backends like it.
_ALIGNMENT = 128

Arrays = list[tuple[tuple[int, ...], np.dtype]]


class FreshMemory:
    """Host memory that nobody else has, for devices that keep what they are sent."""

    def __call__(self, arrays: Arrays) -> list[np.ndarray]:
        return [np.empty(shape, dtype) for shape, dtype in arrays]

    def close(self) -> None:
        pass


class Ring:
    """Pinned host memory, used in turns: what was given out is given out again `slots` calls later."""

    def __init__(self, slots: int):
        self._count = slots
        self._slots: list[np.ndarray] = []
        self._next = 0
        self._lent = contextlib.ExitStack()

    def __call__(self, arrays: Arrays) -> list[np.ndarray]:
        if not arrays:
            return []
        sizes = [-(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for shape, dtype in arrays]
        if not self._slots or sum(sizes) > self._slots[0].size:
            # Chunks on their way still refer to the old slots, which live as long as they do.
            self._slots = self._lent.enter_context(borrowed(self._count * whole_pages(sum(sizes)), pin=True)).slots(
                self._count, sum(sizes)
            )
        slot = self._slots[self._next % self._count]
        self._next += 1
        offsets = itertools.accumulate(sizes, initial=0)
        return [view(slot, offset, shape, dtype) for offset, (shape, dtype) in zip(offsets, arrays, strict=False)]

    def close(self) -> None:
        """Give the memory back, once nothing is on its way any more."""
        self._slots = []
        self._lent.close()

    __del__ = close


# Gives host memory for arrays of given shapes and dtypes, and gives back what it keeps for the next call.
Memory = FreshMemory | Ring
