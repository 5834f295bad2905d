"""What a launcher is: it compiles a program's kernels, holds its memory and runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flatout.native.program.kernel_program import KernelProgram

from .buffers import DeviceArray, adopted

# Steps in a graph: long enough that launching it costs the host less than it costs the device.
_STEPS_PER_GRAPH = 32


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


class GraphModule(ABC):
    """Kernels whose launches become a CUDA graph the first time they are repeated."""

    def __init__(self) -> None:
        self._graphs: dict[Any, Any] = {}

    def run(self, launches: Sequence[Launch], repeat: int) -> None:
        for times in (_STEPS_PER_GRAPH, 1):
            count, repeat = divmod(repeat, times)
            key = (tuple(launches), times)
            if count and key not in self._graphs:
                self._graphs[key] = self._captured([*launches] * times)
            graph = self._graphs[key] if count else None
            for _ in range(count):
                self._replay(graph)

    @abstractmethod
    def _captured(self, launches: Sequence[Launch]) -> Any:
        """A graph of launches."""

    @abstractmethod
    def _replay(self, graph: Any) -> None: ...


class Launcher(ABC):
    """Compiles and runs programs, on a GPU unless a subclass says otherwise."""

    name: str
    device_name: str

    @abstractmethod
    def load(self, program: KernelProgram) -> Module: ...

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        """Memory, filled with zeros."""

    @abstractmethod
    def _fetch(self, array: DeviceArray) -> np.ndarray: ...

    @abstractmethod
    def _fill(self, array: DeviceArray, values: np.ndarray) -> None: ...

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work on the device, also that of other libraries."""

    def wait(self) -> None:
        """Wait for all that it has launched."""
        self.synchronize()

    def adopt(self, array: Any) -> DeviceArray | None:
        """An array that is already in this launcher's memory, without a copy; None if it is elsewhere."""
        return adopted(array, self._fetch, self._fill)

    def why_no_clusters(self) -> str | None:
        """Why it cannot run kernels of thread-block clusters; None if it can."""
        return f"the launcher {self.name!r} has no clusters of blocks"
