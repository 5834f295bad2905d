"""What a launcher is: it compiles a program's kernels, holds its memory and runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flatout.native.program.kernel_program import KernelProgram

from .buffers import DeviceArray


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: an argument is an array's address or, where it is None, the number of rows."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    arguments: tuple[int | None, ...]
    rows: int
    cluster: int = 1
    shared_bytes: int = 0


def launches(
    program: KernelProgram, names: Sequence[str], buffers: Mapping[str, DeviceArray], rows: int
) -> list[Launch]:
    """Launches of some of a program's kernels, for so many rows of a batch."""
    found = []
    for name in names:
        kernel = program.kernels[name]
        arguments = tuple(None if one.buffer is None else buffers[one.buffer].pointer for one in kernel.parameters)
        found.append(
            Launch(name, kernel.blocks(rows), kernel.threads, arguments, rows, kernel.cluster, kernel.shared_bytes)
        )
    return found


class Module(Protocol):
    """The compiled kernels of a program."""

    def run(self, launches: Sequence[Launch], repeat: int) -> None:
        """Run the launches in order, all of them `repeat` times; may return before they are done."""
        ...


class Launcher(Protocol):
    """Compiles and runs programs."""

    name: str

    @property
    def device_name(self) -> str: ...

    def load(self, program: KernelProgram) -> Module: ...
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray: ...
    def adopt(self, array: Any) -> DeviceArray | None:
        """An array that is already in this launcher's memory, without a copy; None if it is elsewhere."""
        ...

    def wait(self) -> None:
        """Wait for all that it has launched."""
        ...

    def synchronize(self) -> None:
        """Wait for all work on the device, also that of other libraries."""
        ...

    def why_no_clusters(self) -> str | None:
        """Why it cannot run kernels of thread-block clusters; None if it can."""
        ...
