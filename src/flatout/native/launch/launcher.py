"""What a launcher is, one for each library: it compiles a program's kernels, holds its memory and runs it."""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption, MissingExtra, Reason, reason
from flatout.native.program.kernel_program import KernelProgram

from .buffers import DeviceArray, adopted

# Steps in a graph: long enough that launching it costs the host less than it costs the device.
_STEPS_PER_GRAPH = 32
# Of each its class, and what to do where it is not to be had.
_LAUNCHERS = {
    "cuda.core": ("launch_cuda_core.CudaCoreLauncher", "Install it with: pip install 'flatout[gpu]'."),
    "cupy": ("launch_cupy.CupyLauncher", "Install it with: pip install cupy-cuda13x."),
    "pycuda": (
        "launch_pycuda.PycudaLauncher",
        "Install it with: pip install pycuda (it needs nvcc and a C++ compiler).",
    ),
    "cpu": ("launch_cpu.CpuLauncher", ""),
}


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

    @property
    def values(self) -> list[Any]:
        """The arguments as a CUDA library takes them."""
        return [np.int32(self.rows) if value is None else np.uint64(value) for value in self.arguments]


# Runs launches in order, all of them so many times; may return before they are done.
Run = Callable[[Sequence[Launch], int], None]


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


class GraphRun(ABC):
    """A `Run` of compiled kernels on a stream, whose launches become a CUDA graph the first time."""

    def __init__(self, stream: Any, kernels: dict[str, Any]) -> None:
        self._stream, self._kernels = stream, kernels
        self._graphs: dict[Any, Any] = {}

    def __call__(self, launches: Sequence[Launch], repeat: int) -> None:
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
    """Compiles and runs programs, on a GPU unless a subclass says otherwise.

    Attributes:
        processors: Blocks of a cluster's size that it runs at once, as far as it has clusters.
    """

    name: str
    device_name: str
    processors: int = 1

    @abstractmethod
    def load(self, program: KernelProgram) -> Run:
        """Compile a program's kernels; returns what runs them."""

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

    def follow(self, other: Launcher) -> None:
        """Have what is launched from now on begin when all is done that `other` has launched; may return before."""
        other.wait()

    def copy(self, to: DeviceArray, source: DeviceArray) -> None:
        """Copy one array into another, when all that was launched before is done."""
        to.assign(source.numpy())

    def assign_soon(self, to: DeviceArray, values: np.ndarray) -> None:
        """Copy values into an array, when all that was launched before is done; may return before."""
        to.assign(values)

    def fetch_soon(self, arrays: Sequence[DeviceArray]) -> Callable[[], list[np.ndarray]]:
        """Copy arrays to the host when all that was launched before is done; returns what waits for the copies."""
        values = [array.numpy() for array in arrays]
        return lambda: values

    def adopt(self, array: Any) -> DeviceArray | None:
        """An array that is already in this launcher's memory, without a copy; None if it is elsewhere."""
        return adopted(array, self._fetch, self._fill)

    def why_no_clusters(self) -> str | None:
        """Why it cannot run kernels of thread-block clusters; None if it can."""
        return f"the launcher {self.name!r} has no clusters of blocks"


def make_launcher(name: str) -> Launcher:
    """The launcher of a name: `"cuda.core"`, `"cupy"`, `"pycuda"` or `"cpu"`.

    Raises:
        InvalidOption: There is no launcher of that name.
        MissingExtra: Its library, or a device, is not there.
    """
    if name not in _LAUNCHERS:
        raise InvalidOption(
            f"Invalid value for argument `launcher`. Received: launcher={name!r}. "
            f"Expected one of {', '.join(map(repr, _LAUNCHERS))}."
        )
    where, remedy = _LAUNCHERS[name]
    file, _, kind = where.partition(".")
    try:
        module = importlib.import_module(f".{file}", __package__)
    except ImportError as error:
        raise MissingExtra(f"The launcher {name!r} cannot be imported ({error}). {remedy}") from error
    launcher: Launcher = getattr(module, kind)()
    return launcher


def default_launcher() -> str:
    """`"cuda.core"`, unless FLATOUT_NATIVE=cpu asks for the emulation on the CPU that the tests use."""
    return "cpu" if os.environ.get("FLATOUT_NATIVE") == "cpu" else "cuda.core"


def why_not_here() -> Reason | None:
    """Why native programs cannot run on this machine; None if they can."""
    try:
        make_launcher(default_launcher())
    except MissingExtra as error:
        return reason("native_device", str(error).removesuffix("."))
    return None
