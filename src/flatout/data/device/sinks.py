"""Where rows go on their way from a file: what a reader asks of a destination, and the destination in host memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flatout.base.errors import UnreadableFile

# Returns when the block that was given to `write` may be overwritten.
Wait = Callable[[], None]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on a GPU that may be written by their address, for engines that need no host memory at all."""

    pointer: int
    nbytes: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3}


class Sink(Protocol):
    """One array, allocated once, filled block by block in any order and from any thread."""

    @property
    def wants_pinned(self) -> bool:
        """Whether a GPU will read the blocks, from page-locked memory if it can."""

    @property
    def device_memory(self) -> DeviceMemory | None:
        """The array's own memory on a GPU, if it may be written by its address and holds just the file's bytes."""

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        """Start to copy a contiguous block, whose memory is used again once the returned function has returned.

        It goes to `(row,)`; a part of a row that is too long for a block, and has fewer axes, to a longer index. The
        last number is the first position along the block's first axis.
        """

    def finish(self) -> Any:
        """The array, complete. Called once, after all blocks were waited for."""


# Allocates an array of a shape and dtype. The last argument says where in a page the file's first byte lies: device
# memory that starts there can be read into without a copy. Other sinks ignore it.
MakeSink = Callable[[tuple[int, ...], np.dtype[Any], int], Sink]


def position(at: tuple[int, ...], block: np.ndarray) -> tuple[int | slice, ...]:
    """The index of a block in the whole array."""
    return (*at[:-1], slice(at[-1], at[-1] + block.shape[0]))


def nothing_to_wait_for() -> None:
    """The wait of a sink that copies before `write` returns."""


class HostSink:
    """Rows in a NumPy array: in `out`, or in a new one."""

    wants_pinned = False
    device_memory: DeviceMemory | None = None

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0, *, out: np.ndarray | None = None
    ):
        self._array = np.empty(shape, dtype) if out is None else out

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        self._array[position(at, block)] = block
        return nothing_to_wait_for

    def finish(self) -> Any:
        return self._array


def require_numbers(dtype: np.dtype[Any], backend: str) -> None:
    """Refuse what no tensor can hold: text, dates, records, or numbers that NumPy saved as raw bytes."""
    if dtype.kind not in "biufc":
        raise UnreadableFile(
            f"These values cannot become a {backend} tensor. Received: dtype {dtype}. Expected booleans, integers, "
            "floats or complex numbers. (NumPy saves bfloat16 as raw bytes: save `x.view('uint16')` and view it back.)"
        )
