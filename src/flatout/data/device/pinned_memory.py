"""Host memory that a GPU can read by itself: a page-aligned slab, registered with the CUDA driver and used again.

Locking pages is slow (about 60 ms for a GB), so that a slab outlives its first use. Without a GPU a slab is plain
memory and everything else stays as it is.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .cuda_driver import CudaError, cuda_driver

# One at most.
_idle: list[Slab] = []
_lock = threading.Lock()


class Slab:
    """A page-aligned piece of host memory.

    The mapping is shared, not private: after a `fork`, copy-on-write would move the parent's pages away from under
    the GPU.

    Attributes:
        memory: The bytes, as an array of uint8.
        is_pinned: Whether the GPU may read it by itself.
        why_not: What the driver said if it was asked to pin and did not.
    """

    def __init__(self, nbytes: int, pin: bool = False):
        self.memory = np.frombuffer(mmap.mmap(-1, whole_pages(nbytes)), np.uint8)
        self.is_pinned = False
        self.why_not = ""
        if pin:
            try:
                cuda_driver().register(self.memory.ctypes.data, self.memory.size)
                self.is_pinned = True
            except CudaError as error:
                self.why_not = str(error)

    def slots(self, count: int, slot_bytes: int) -> list[np.ndarray]:
        """Cut the slab into slots, each starting on a page."""
        size = whole_pages(slot_bytes)
        return [self.memory[number * size : (number + 1) * size] for number in range(count)]

    def unpin(self) -> None:
        """Give the pages back to the system; views of them stay valid."""
        if self.is_pinned:
            self.is_pinned = False
            with contextlib.suppress(CudaError):
                cuda_driver().unregister(self.memory.ctypes.data)


def view(slot: np.ndarray, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The bytes of a slot from an offset on, as an array; nothing is copied."""
    return np.ndarray(shape, dtype, buffer=slot, offset=offset)  # type: ignore[arg-type]


@contextlib.contextmanager
def borrowed(nbytes: int, pin: bool = False) -> Iterator[Slab]:
    """Lend the process' slab, or a new one where it is lent out, too small or not pinned; the largest is kept."""
    with _lock:
        fits = [s for s in _idle if s.memory.size >= nbytes and (s.is_pinned or not pin or s.why_not)]
        if fits:
            _idle.clear()
    slab = fits[0] if fits else Slab(nbytes, pin)
    try:
        yield slab
    finally:
        with _lock:
            *superfluous, largest = sorted([*_idle, slab], key=lambda slab: (slab.is_pinned, slab.memory.size))
            _idle[:] = [largest]
        for other in superfluous:
            other.unpin()


def whole_pages(nbytes: int) -> int:
    """Bytes of the pages that so many take, at least one."""
    return max(-(-nbytes // mmap.PAGESIZE), 1) * mmap.PAGESIZE


@atexit.register
def _unpin_all() -> None:
    with _lock:
        slabs = list(_idle)
        _idle.clear()
    for slab in slabs:
        slab.unpin()


def _forget_in_child() -> None:
    """A forked child shares the parent's pages, which are not its own to write, and must not call its CUDA driver."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_in_child)
