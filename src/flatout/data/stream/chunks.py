"""Chunks: the rows of several steps, put together in host memory and then sent to the device at once."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tree
from flatout.data.columnar.table_rows import TableRows
from flatout.data.device.copy_stream import LockedRows, Wanted, locked
from flatout.data.device.pinned_memory import borrowed, view, whole_pages
from flatout.data.device.sinks import Wait, nothing_to_wait_for
from flatout.data.files.file_rows import FileRows

# Large enough for the bus, small enough that the first one is soon there.
CHUNK_BYTES = 32 * 2**20
MOST_STEPS = 256
# On a device with memory of its own an epoch begins with some short chunks, the first of which is soon there, and goes
# on with long ones, between which the device waits for Python.
SHORT_CHUNKS_FIRST = 4
SHORT_IN_A_CHUNK = 4
SHORT_IN_A_LONG_CHUNK = 8
# A pass waits for rows if most of its chunks are begun soon after the last was done: this share of the time in between
# is gathering. A few are, whatever the pass waits for.
BUSY = 0.7
FEWEST_CHUNKS = 8
# Rows are gathered by several threads, each of which should have something to do.
_BYTES_PER_THREAD = 2**20
_THREADS = 8
# Of arrays that share a slot; all backends like it.
_ALIGNMENT = 128

Arrays = list[tuple[tuple[int, ...], np.dtype]]


@dataclass(frozen=True)
class Chunk:
    """The rows of some steps.

    Attributes:
        data: A structure of arrays, in host memory or on the device, or of `Wanted` rows that are to be fetched.
        rows: Rows that it has room for.
        batch_size: Rows of a step.
        steps: Steps that it has rows for; what is behind them is not to be read.
        landed: Those of the arrays on the device that go back to where they came from.
        arrived: Returns when the data are there; to be called once, before they are used.
    """

    data: Any
    rows: int
    batch_size: int
    steps: int
    landed: tuple[Any, ...] = ()
    arrived: Wait = nothing_to_wait_for


def steps_per_chunk(bytes_per_step: int, group: int = 1) -> int:
    """How many steps go together to the device, in whole groups."""
    steps = max(1, min(MOST_STEPS, CHUNK_BYTES // max(1, bytes_per_step)))
    return max(group, steps // group * group)


def even_chunks(steps: int, most: int, group: int = 1) -> int:
    """The length of chunks of at most `most` steps, in whole groups, that leaves few of `steps` over."""
    if steps <= most:
        return max(group, -(-steps // group) * group)
    return min(range(most, max(group, most // 2) - 1, -group), key=lambda length: steps % length)


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


class RowReader:
    """Reads rows of host arrays by number, in chunks, converted as Keras converts them.

    Args:
        inputs: A structure of arrays that can be indexed by row numbers: in memory, memory-mapped or in shards.
        dtypes: What each of them is converted to.
        batch_size: Rows of a step.
        group: Steps that must not be parted.
        memory: Gives host memory for a chunk.
        stretches: Whether to go over from short chunks to long ones.
        fetches: Whether the device can fetch rows of locked arrays by itself.
        own_rows: Which rows of x this process needs of a batch of so many; others are left as the memory has them.
    """

    def __init__(
        self,
        inputs: Any,
        dtypes: list[np.dtype],
        batch_size: int,
        group: int,
        memory: Memory,
        stretches: bool = False,
        fetches: bool = False,
        own_rows: Callable[[int], slice] | None = None,
    ):
        self._structure = inputs
        self._leaves = [as_host_array(leaf) for leaf in leaves_of(inputs)]
        self._own_rows = own_rows
        self._leaves_of_x = len(leaves_of(inputs[0])) if own_rows is not None else 0
        self._dtypes = dtypes
        self._memory = memory
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self.rows = len(self._leaves[0])
        self.batch_size = min(batch_size, self.rows)
        self.bytes_per_step = self.batch_size * sum(
            math.prod(leaf.shape[1:]) * dtype.itemsize for leaf, dtype in zip(self._leaves, dtypes, strict=True)
        )
        self._full = self.rows // self.batch_size
        most = steps_per_chunk(self.bytes_per_step, group)
        if stretches:
            most = max(group, most // SHORT_IN_A_CHUNK // group * group)
        self.short = even_chunks(self._full, most, group)
        self.long = self.short * SHORT_IN_A_LONG_CHUNK if stretches else self.short
        self._fetches = fetches
        self._locked: list[LockedRows | None] = [None] * len(self._leaves)
        self._busy: list[float] = []

    def chunks(self, order: np.ndarray | None, first: int, stop: int) -> Iterator[Chunk]:
        """The chunks of the steps `first` to `stop - 1` of a pass in this order."""
        last = time.perf_counter()
        for begin, end in self._spans(first, stop):
            began = time.perf_counter()
            chunk = self.chunk(order, begin, end)
            now = time.perf_counter()
            self._busy.append((now - began) / (now - last) if now > last else 1.0)
            last = now
            yield chunk

    def _spans(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        step, end = first, min(stop, self._full)
        # A pass that waits for the bus gains nothing by a first chunk that is soon there: the bus waits for short ones.
        all_short = 0 if any(self._locked) else SHORT_CHUNKS_FIRST * self.short
        while step < end:
            is_long = step - first >= all_short and end - step >= self.long
            length = self.long if is_long else min(self.short, end - step)
            yield step, step + length
            step += length
        if stop > self._full:
            yield self._full, self._full + 1

    def end_pass(self) -> None:
        """After a pass that waited for rows to be gathered, lock arrays: the device fetches their rows from then on.

        Not before: what fetches the rows is a kernel, which holds up those of the steps (seed model on an H200: 31 us
        a step, 27 with rows that are gathered and copied).
        """
        if self._fetches and len(self._busy) >= FEWEST_CHUNKS and statistics.median(self._busy) > BUSY:
            self._locked = [locked(leaf, dtype) for leaf, dtype in zip(self._leaves, self._dtypes, strict=True)]
            self._fetches = False
        self._busy.clear()

    def close(self) -> None:
        """End threads and give back memory; both come back if rows are read again, by way of host memory."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        self._memory.close()
        for table in self.tables:
            table.close()
        for number, rows in enumerate(self._locked):
            if rows is not None:
                self._locked[number] = None
                rows.close()

    @property
    def tables(self) -> list[TableRows]:
        """Those of the arrays that are decoded."""
        return [leaf for leaf in self._leaves if isinstance(leaf, TableRows)]

    def first_chunk(self) -> Chunk:
        """Rows to compile a program for."""
        return self.chunk(None, 0, max(1, min(self.short, self._full)))

    def chunk(self, order: np.ndarray | None, first: int, stop: int) -> Chunk:
        """The steps `first` to `stop - 1`: whole batches, or the partial last one alone."""
        begin, end = first * self.batch_size, min(stop * self.batch_size, self.rows)
        length = min(self.batch_size, end - begin)
        room = length
        if length == self.batch_size:
            room *= self.short if stop - first <= self.short else self.long
        numbers = slice(begin, end) if order is None else order[begin:end]
        leaves = list(zip(self._leaves, self._dtypes, self._locked, strict=True))
        on_host = [((room, *leaf.shape[1:]), dtype) for leaf, dtype, rows in leaves if rows is None]
        arrays, parts = iter(self._memory(on_host)), list[Any]()
        for number, (leaf, dtype, rows) in enumerate(leaves):
            if rows is None:
                parts.append(next(arrays))
                gather = self._gather_own if number < self._leaves_of_x else self._gather
                gather(leaf, numbers, parts[-1][: end - begin])
            else:
                parts.append(Wanted(rows, numbers, (room, *leaf.shape[1:]), dtype))
        return Chunk(packed(self._structure, parts), room, length, stop - first)

    def _gather_own(self, leaf: Any, numbers: slice | np.ndarray, out: np.ndarray) -> None:
        """Of each batch the rows that this process needs."""
        if self._own_rows is None or isinstance(leaf, TableRows):
            self._gather(leaf, numbers, out)
            return
        for begin in range(0, len(out), self.batch_size):
            batch = out[begin : begin + self.batch_size]
            own = self._own_rows(len(batch))
            first, stop = begin + own.start, begin + own.stop
            if isinstance(numbers, slice):
                wanted: slice | np.ndarray = slice(numbers.start + first, numbers.start + stop)
            else:
                wanted = numbers[first:stop]
            self._gather(leaf, wanted, batch[own])

    def _gather(self, leaf: Any, numbers: slice | np.ndarray, out: np.ndarray) -> None:
        pieces = max(1, min(_THREADS, os.cpu_count() or 1, out.nbytes // _BYTES_PER_THREAD))
        # A table is decoded from its beginning to its end.
        if pieces == 1 or isinstance(leaf, TableRows):
            _gather_piece(leaf, numbers, out)
            return
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="flatout-gather")
        bounds = np.linspace(0, len(out), pieces + 1).astype(int)

        def gather(begin: int, end: int) -> None:
            if isinstance(numbers, slice):
                _gather_piece(leaf, slice(numbers.start + begin, numbers.start + end), out[begin:end])
            else:
                _gather_piece(leaf, numbers[begin:end], out[begin:end])

        for _ in self._threads.map(gather, bounds[:-1], bounds[1:]):
            pass


def leaves_of(structure: Any) -> list[Any]:
    """The arrays of a structure, in the order in which Keras flattens it; without the `None`s."""
    return [leaf for leaf in tree.flatten(structure) if leaf is not None]


def packed(structure: Any, leaves: list[Any]) -> Any:
    """The leaves, in the order in which Keras flattens the structure, in its shape; `None` where it has none.

    Not by `tree.map_structure`: on torch that visits a dict in another order than `tree.flatten` does.
    """
    remaining = iter(leaves)
    return tree.pack_sequence_as(
        structure, [None if leaf is None else next(remaining) for leaf in tree.flatten(structure)]
    )


def as_host_array(leaf: Any) -> Any:
    """A thing with `shape`, `dtype` and rows that NumPy can take by number."""
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "paths"):
        return leaf
    if hasattr(leaf, "to_numpy"):
        leaf = leaf.to_numpy()
        return leaf[:, None] if leaf.ndim == 1 else leaf
    return keras.ops.convert_to_numpy(leaf)


def _gather_piece(leaf: Any, numbers: slice | np.ndarray, out: np.ndarray) -> None:
    if isinstance(leaf, np.ndarray) and leaf.dtype == out.dtype and not isinstance(numbers, slice):
        # Any mode but "raise" writes to `out` without a copy in between; Keras' row numbers are in range.
        np.take(leaf, numbers, axis=0, out=out, mode="clip")
    elif isinstance(numbers, slice) and (
        isinstance(leaf, TableRows) or (isinstance(leaf, FileRows) and leaf.dtype == out.dtype)
    ):
        leaf.read_into(numbers.start, out)
    else:
        out[...] = leaf[numbers]
