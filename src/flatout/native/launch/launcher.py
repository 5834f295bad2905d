"""Launchers: what compiles a program's kernels, holds its memory and runs it: one a library, one on the CPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flatout.base.errors import InvalidOption, MissingExtra, Reason, reason

from .buffers import DeviceArray

if TYPE_CHECKING:
    from flatout.native.program.program import Program

LAUNCHERS = ("cuda.core", "cupy", "pycuda", "cpu")


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


def launches(program: Program, names: Sequence[str], buffers: Mapping[str, DeviceArray], rows: int) -> list[Launch]:
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

    def load(self, program: Program) -> Module: ...
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


def make_launcher(name: str) -> Launcher:
    """The launcher of a name of `LAUNCHERS`.

    Raises:
        InvalidOption: There is no launcher of that name.
        MissingExtra: Its library, or a device, is not there.
    """
    if name not in LAUNCHERS:
        raise InvalidOption(
            f"Invalid value for argument `launcher`. Received: launcher={name!r}. "
            f"Expected one of {', '.join(map(repr, LAUNCHERS))}."
        )
    if name == "cpu":
        from .launch_cpu import CpuLauncher

        return CpuLauncher()
    try:
        if name == "cuda.core":
            from .launch_cuda_core import CudaCoreLauncher

            return CudaCoreLauncher()
        if name == "cupy":
            from .launch_cupy import CupyLauncher

            return CupyLauncher()
        from .launch_pycuda import PycudaLauncher

        return PycudaLauncher()
    except ImportError as error:
        raise MissingExtra(f"The launcher {name!r} is not to be had: {error}. {_REMEDIES[name]}") from error


_REMEDIES = {
    "cuda.core": "Install it with: pip install 'flatout[gpu]'.",
    "cupy": "Install it with: pip install cupy-cuda13x.",
    "pycuda": "Install it with: pip install pycuda (it needs nvcc and a C++ compiler).",
}


def default_launcher() -> str:
    """`"cuda.core"`, unless FLATOUT_NATIVE=cpu asks for the emulation on the CPU that the tests use."""
    return "cpu" if os.environ.get("FLATOUT_NATIVE") == "cpu" else "cuda.core"


def why_not_here() -> Reason | None:
    """Why native programs cannot run on this machine; None if they can."""
    if default_launcher() == "cpu":
        from .launch_cpu import compiler

        return None if compiler() else reason("native_device", "FLATOUT_NATIVE=cpu needs g++ or clang++")
    try:
        from cuda.core import Device
    except ImportError as error:
        return reason("native_device", f"cuda-core cannot be imported ({error}): pip install 'flatout[gpu]'")
    try:
        Device(0).set_current()
    except Exception as error:
        return reason("native_device", f"there is no CUDA device ({str(error).partition(chr(10))[0]})")
    return None
