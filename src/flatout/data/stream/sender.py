"""Sends chunks to the device: each is on its way while the next one is put together, and steps run meanwhile."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from flatout.data.device.copy_stream import CopyStream, Wanted
from flatout.data.device.cuda_driver import CudaError
from flatout.data.device.sinks import DeviceMemory, Wait
from flatout.data.workers.background import Background

from .chunks import Chunk, FreshMemory, Memory, Ring, leaves_of, packed

# Chunks on the device beyond the one that is used: those on their way last while Python draws the order of an epoch.
_CHUNKS_AHEAD = 4
# Where the device uses the host's memory nothing is on its way.
_CHUNKS_READY = 2
# Chunks in host memory at once: one being filled, one filled, one being sent, those on their way and one that arrives.
_CHUNKS_ON_HOST = _CHUNKS_AHEAD + 4


class Landing(Protocol):
    """Arrays on the device that may be written by their address until they are used."""

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether rows of this dtype arrive as they are; the backend converts others on their way."""

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, DeviceMemory]:
        """An array that nobody uses, and where it is."""

    def give_back(self, array: Any) -> None:
        """Steps that are dispatched from now on do not use this array any more."""


class Sender:
    """Puts chunks on the device.

    Args:
        send: Puts a structure of NumPy arrays on the device and returns when that is done.
        copies: False where the device uses the host's memory, so that sending takes no time.
        landing: Where chunks arrive that are copied past the backend, which would wait for steps under way.
    """

    def __init__(self, send: Callable[[Any], Any], copies: bool, landing: Landing | None = None):
        self._send = send
        self._copies = copies
        self._landing: Any = landing
        self._stream: CopyStream | None = None
        if landing is not None:
            # Without a stream, chunks go by way of the backend.
            with contextlib.suppress(CudaError):
                self._stream = CopyStream()

    @property
    def fetches(self) -> bool:
        """Whether the device can fetch rows of locked arrays by itself."""
        return self._stream is not None

    def memory(self) -> Memory:
        """Host memory to put chunks together in."""
        return Ring(_CHUNKS_ON_HOST) if self._copies else FreshMemory()

    def one(self, chunk: Chunk) -> Chunk:
        """The chunk on the device, arrived."""
        sent = self._start(chunk)
        sent.arrived()
        return sent

    def ahead(self, chunks: Iterator[Chunk], at_once: bool = True) -> Background:
        """The chunks on the device, in order, sent ahead of being asked for; unless `at_once`, from the second on.

        What is in them is there when their `arrived` has returned.
        """
        items = _CHUNKS_AHEAD if self._copies else _CHUNKS_READY
        return Background(self._sent(chunks, at_once), items=items, at_once=at_once)

    def give_back(self, chunk: Chunk) -> None:
        """Another chunk has taken its place."""
        for array in chunk.landed:
            self._landing.give_back(array)

    def settle(self) -> None:
        """Wait for what is on its way: arrays that nobody will take must not be freed before."""
        if self._stream is not None:
            self._stream.settle()

    def close(self) -> None:
        """Wait for what is on its way, and send nothing more."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _sent(self, chunks: Iterator[Chunk], at_once: bool) -> Iterator[Chunk]:
        if not self._copies:
            yield from map(self._start, chunks)
            return
        with Background(chunks, items=1, at_once=at_once) as filled:
            yield from map(self._start, filled)

    def _start(self, chunk: Chunk) -> Chunk:
        if self._stream is None:
            return dataclasses.replace(chunk, data=self._send(chunk.data))
        placed, landed = [], []
        for leaf in leaves_of(chunk.data):
            if isinstance(leaf, Wanted) or self._can_land(leaf):
                placed.append(self._land(leaf, self._stream))
                landed.append(placed[-1])
            else:
                placed.append(self._send(leaf))
        arrived = functools.partial(_arrived, self._stream.mark(), chunk.data)
        return dataclasses.replace(chunk, data=packed(chunk.data, placed), landed=tuple(landed), arrived=arrived)

    def _can_land(self, leaf: np.ndarray) -> bool:
        return leaf.flags.c_contiguous and leaf.nbytes > 0 and self._landing.takes(leaf.dtype)

    def _land(self, leaf: np.ndarray | Wanted, stream: CopyStream) -> Any:
        array, memory = self._landing(leaf.shape, leaf.dtype)
        if isinstance(leaf, np.ndarray):
            stream.copy(memory, leaf.ctypes.data, leaf.nbytes)
        elif isinstance(leaf.numbers, slice):
            begin, end = (number * leaf.rows.row_bytes for number in (leaf.numbers.start, leaf.numbers.stop))
            stream.copy(memory, leaf.rows.address + begin, end - begin)
        else:
            stream.gather(memory, leaf.rows.address, leaf.rows.row_bytes, leaf.numbers)
        return array


def _arrived(wait: Wait, source: Any) -> None:
    """Wait; until then the source must not be freed: if it is pinned, as a DataLoader may have it, it is still read."""
    wait()
