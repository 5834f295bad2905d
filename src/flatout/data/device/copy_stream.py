"""Host memory into device memory, past the backend: plain copies, and rows in any order that the GPU fetches itself.

Gathering rows in host memory before they are copied moves each byte three times through it, which is slower than the
bus: on an H200 14 GB/s against the 55 of a bare copy. A kernel of eight blocks that reads the rows over the bus, where
they lie, reaches 50 with rows of 4 kB or more and 35 with rows of 1 kB; beside the kernels of a training, 46. Rows of
64 kB or more go faster by copies of their own, 51 to 53 (of 32 kB: 46, of 16 kB: 5), and leave the GPU to the training.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cuda_driver import CudaError, Driver, cuda_driver
from .sinks import DeviceMemory, Wait

# Shorter rows take more requests on the bus than it has room for, and few rows are soon gathered.
SHORTEST_ROW = 512
FEWEST_BYTES = 64 * 2**20
# Locked pages are no longer the system's to move.
_SHARE_OF_MEMORY = 0.5
# From here on a row is worth a copy of its own.
_LONG_ROW = 64 * 2**10
# More blocks than this fetch no more.
_BLOCKS = 8
_THREADS = 1024
# The kernel counts in 32 bits.
_MOST_UNITS = 2**31 - _BLOCKS * _THREADS
# Bytes that a thread reads at once, with its instructions; the widest that divides a row is the fastest.
_UNITS = {
    16: ("ld.global.v4.u32 {%v0, %v1, %v2, %v3}, [%from];", "st.global.v4.u32 [%to], {%v0, %v1, %v2, %v3};"),
    4: ("ld.global.u32 %v0, [%from];", "st.global.u32 [%to], %v0;"),
}
_NARROWEST = min(_UNITS)

# Thread i of n copies the units i, i + n, i + 2n ... of all rows: unit u lies in row u / per_row of the target.
_PTX = """
.version 6.0
.target sm_60
.address_size 64
.visible .entry gather(
    .param .u64 target, .param .u64 source, .param .u64 numbers, .param .u32 total, .param .u32 per_row)
{
    .reg .pred %done;
    .reg .b32 %unit, %stride, %total, %per_row, %row, %column, %number, %block, %threads, %blocks, %v<4>;
    .reg .b64 %target, %source, %numbers, %from, %to, %offset;
    ld.param.u64 %target, [target];
    ld.param.u64 %source, [source];
    ld.param.u64 %numbers, [numbers];
    ld.param.u32 %total, [total];
    ld.param.u32 %per_row, [per_row];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %unit, %tid.x;
    mad.lo.u32 %unit, %block, %threads, %unit;
    mul.lo.u32 %stride, %blocks, %threads;
NEXT:
    setp.ge.u32 %done, %unit, %total;
    @%done bra END;
    div.u32 %row, %unit, %per_row;
    mul.lo.u32 %column, %row, %per_row;
    sub.u32 %column, %unit, %column;
    mul.wide.u32 %offset, %row, 4;
    add.s64 %offset, %numbers, %offset;
    ld.global.u32 %number, [%offset];
    mul.wide.u32 %from, %number, %per_row;
    cvt.u64.u32 %offset, %column;
    add.s64 %from, %from, %offset;
    mul.lo.s64 %from, %from, BYTES;
    add.s64 %from, %source, %from;
    LOAD
    mul.wide.u32 %to, %unit, BYTES;
    add.s64 %to, %target, %to;
    STORE
    add.u32 %unit, %unit, %stride;
    bra NEXT;
END:
    ret;
}
"""


@functools.cache
def _kernel(driver: Driver, unit: int) -> int:
    load, store = _UNITS[unit]
    text = _PTX.replace("BYTES", str(unit)).replace("LOAD", load).replace("STORE", store)
    return driver.function(text, "gather")


class CopyStream:
    """Copies to device memory, in order, on a stream of their own, from any thread; `CudaError` without a GPU."""

    def __init__(self) -> None:
        self._driver = cuda_driver()
        self._kernels = {unit: _kernel(self._driver, unit) for unit in _UNITS}
        self._stream = self._driver.stream()
        self._numbers = self._room = 0
        self._copies_rows = self._driver.copies_batches
        self._lock = threading.Lock()

    def copy(self, target: DeviceMemory, address: int, nbytes: int) -> None:
        """Start to copy host memory. Unless it is locked, it may be written again when this returns."""
        with self._lock:
            self._driver.copy_to_device(target.pointer, address, nbytes, self._stream)

    def gather(self, target: DeviceMemory, address: int, row_bytes: int, numbers: np.ndarray) -> None:
        """Start to copy rows of locked host memory; address and length of a row are multiples of `_NARROWEST`."""
        if row_bytes >= _LONG_ROW and self._copies_rows:
            try:
                self._copy_rows(target, address, row_bytes, numbers)
                return
            except CudaError:
                # Not every GPU of a driver that has the function supports it.
                self._copies_rows = False
        self._fetch_rows(target, address, row_bytes, numbers)

    def _copy_rows(self, target: DeviceMemory, address: int, row_bytes: int, numbers: np.ndarray) -> None:
        sources = numbers.astype(np.uint64) * np.uint64(row_bytes) + np.uint64(address)
        targets = np.arange(len(numbers), dtype=np.uint64) * np.uint64(row_bytes) + np.uint64(target.pointer)
        with self._lock:
            self._driver.copy_batch(targets, sources, np.full(len(numbers), row_bytes, np.uint64), self._stream)

    def _fetch_rows(self, target: DeviceMemory, address: int, row_bytes: int, numbers: np.ndarray) -> None:
        numbers = np.ascontiguousarray(numbers, np.int32)
        unit = max(unit for unit in _UNITS if not (row_bytes % unit or address % unit or target.pointer % unit))
        per_row = row_bytes // unit
        at_once = _MOST_UNITS // per_row
        with self._lock:
            if numbers.nbytes > self._room:
                # Freed memory is not used by others before the kernels that read it are done: freeing waits for them.
                self._free_numbers()
                self._numbers = self._driver.allocate(numbers.nbytes)
                self._room = numbers.nbytes
            self._driver.copy_to_device(self._numbers, numbers.ctypes.data, numbers.nbytes, self._stream)
            for first in range(0, len(numbers), at_once):
                arguments = (
                    ctypes.c_uint64(target.pointer + first * row_bytes),
                    ctypes.c_uint64(address),
                    ctypes.c_uint64(self._numbers + first * numbers.itemsize),
                    ctypes.c_uint32(min(at_once, len(numbers) - first) * per_row),
                    ctypes.c_uint32(per_row),
                )
                self._driver.launch(self._kernels[unit], _BLOCKS, _THREADS, self._stream, arguments)

    def mark(self) -> Wait:
        """Returns what waits for all copies that were started so far; to be called once."""
        with self._lock:
            event = self._driver.event(self._stream)
        return functools.partial(self._driver.wait_for, event)

    def settle(self) -> None:
        """Wait for all copies that were started."""
        with self._lock:
            self._driver.synchronize(self._stream)

    def close(self) -> None:
        """Wait for all copies, and give the stream and its memory back."""
        with self._lock:
            if self._stream:
                self._driver.synchronize(self._stream)
                self._free_numbers()
                self._driver.destroy_stream(self._stream)
                self._stream = 0

    def _free_numbers(self) -> None:
        if self._room:
            self._driver.free(self._numbers)
            self._room = 0


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
        and row_bytes % _NARROWEST == 0
        and leaf.ctypes.data % _NARROWEST == 0
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
