"""Arrays of the user that are locked in host memory for a while, so that a GPU can fetch their rows by itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .copy_stream import NARROWEST
from .cuda_driver import CudaError, cuda_driver

# Shorter rows take more requests on the bus than it has room for, and few rows are soon gathered.
SHORTEST_ROW = 512
FEWEST_BYTES = 64 * 2**20
# Locked pages are no longer the system's to move.
_SHARE_OF_MEMORY = 0.5


class LockedRows:
    """A C-contiguous array whose pages are locked until it is closed; who writes into it changes what is fetched."""

    def __init__(self, array: np.ndarray):
        cuda_driver().register(array.ctypes.data, array.nbytes)
        self._array: np.ndarray | None = array
        self.address = array.ctypes.data
        self.row_bytes = array.nbytes // len(array)

    def close(self) -> None:
        """Give the pages back; the array stays the user's."""
        if self._array is not None:
            self._array = None
            cuda_driver().unregister(self.address)


@dataclass(frozen=True)
class Wanted:
    """Rows of a locked array that are to be fetched, to the beginning of an array of this shape."""

    rows: LockedRows
    numbers: np.ndarray | slice
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def is_lockable(leaf: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a GPU could fetch the rows of an array as they lie in memory, where they become this dtype, and gain."""
    if type(leaf) is not np.ndarray or leaf.dtype != dtype or not leaf.flags.c_contiguous:
        return False
    row_bytes = leaf.nbytes // max(1, len(leaf))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        _is_of_the_heap(leaf)
        and row_bytes >= SHORTEST_ROW
        and row_bytes % NARROWEST == 0
        and leaf.ctypes.data % NARROWEST == 0
        and FEWEST_BYTES <= leaf.nbytes <= memory * _SHARE_OF_MEMORY
        and len(leaf) < 2**31
    )


def locked(leaf: Any, dtype: np.dtype[Any]) -> LockedRows | None:
    """Lock an array, or None if that is of no use or the driver does not do it."""
    if not is_lockable(leaf, dtype):
        return None
    try:
        return LockedRows(leaf)
    except CudaError:
        return None


def _is_of_the_heap(array: Any) -> bool:
    """Whether NumPy allocated its memory: pages of a file, or of another library, may not be there to be locked."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array is None
