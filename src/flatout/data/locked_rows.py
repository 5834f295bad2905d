"""Arrays of the user that are locked in host memory for a while, so that a GPU can fetch their rows by itself."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .bus_gather import NARROWEST, BusGather
from .cuda_driver import CudaError, cuda_driver
from .direct_sinks import DeviceMemory

# Shorter rows take more requests on the bus than it has room for, and few rows are soon gathered.
SHORTEST_ROW = 512
FEWEST_BYTES = 64 * 2**20
# Locked pages are no longer the system's to move.
_SHARE_OF_MEMORY = 0.5


class Landing(Protocol):
    """Arrays on the device that may be written by their address until they are used."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, DeviceMemory]:
        """An array that nobody uses, and where it is."""
        ...

    def give_back(self, array: Any) -> None:
        """Steps that are dispatched from now on do not use this array any more."""
        ...


@dataclass(frozen=True)
class Wanted:
    """Rows of a locked array that are to be fetched.

    Attributes:
        source: The array.
        numbers: Which rows.
        room: Rows that the result has; those behind the wanted ones are not to be read.
    """

    source: LockedRows
    numbers: np.ndarray | slice
    room: int

    @property
    def nbytes(self) -> int:
        """Of host memory: none."""
        return 0

    def fetched(self, landing: Landing) -> Any:
        """The rows, in an array on the device."""
        return self.source.fetch(self, landing)


class LockedRows:
    """An array whose pages are locked until it is closed.

    Args:
        array: C-contiguous; whoever writes into it meanwhile changes what is fetched.

    Raises:
        CudaError: The driver does not lock it.
    """

    def __init__(self, array: np.ndarray):
        self._array = array
        self._gather = BusGather()
        try:
            cuda_driver().register(array.ctypes.data, array.nbytes)
        except CudaError:
            self._gather.close()
            raise
        self._is_locked = True

    def fetch(self, wanted: Wanted, landing: Landing) -> Any:
        array, memory = landing((wanted.room, *self._array.shape[1:]), self._array.dtype)
        row_bytes = math.prod(self._array.shape[1:]) * self._array.itemsize
        self._gather.rows(memory, self._array.ctypes.data, row_bytes, wanted.numbers)
        return array

    def close(self) -> None:
        """Give the pages back; the array stays the user's."""
        if self._is_locked:
            self._is_locked = False
            self._gather.close()
            cuda_driver().unregister(self._array.ctypes.data)


def is_lockable(leaf: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a GPU could fetch the rows of an array as they lie in memory, and would gain by it.

    Args:
        leaf: The array.
        dtype: What its rows become on the device.
    """
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
