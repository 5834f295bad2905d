"""The CPU launcher: the very kernels, compiled by g++ or clang++, with the threads of a block emulated. For tests."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base import disk_cache
from flatout.base.errors import MissingExtra
from flatout.native.program.kernel_program import KernelProgram
from flatout.native.program.kernel_source import cpu_source

from .buffers import DeviceArray
from .launcher import Launch, Launcher, Run

_FLAGS = ("-std=c++17", "-O1", "-w")


@functools.cache
def compiler() -> str | None:
    """The C++ compiler of this machine: `$CXX`, g++ or clang++."""
    return next((path for path in map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")) if path), None)


def compile_source(source: str, target: Path, *flags: str) -> None:
    """Compile C++ into `target`."""
    found = str(compiler())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.cpp"
        file.write_text(source)
        made = Path(folder) / "made"
        done = subprocess.run([found, *_FLAGS, *flags, str(file), "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"The kernels did not compile with {found}:\n{done.stderr[:4000]}")
        disk_cache.put(target, made.read_bytes())
        target.chmod(0o700)


class _LaunchRecord(ctypes.Structure):
    """`FlatoutLaunch` of shim_cpu.h."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in ("kernel", "grid_x", "grid_y", "grid_z", "threads", "cluster", "shared_bytes", "first_argument")
    )


class CpuLauncher(Launcher):
    """Runs kernels on the CPU. Nothing runs in the background."""

    name = "cpu"
    device_name = "emulated"

    def __init__(self) -> None:
        if compiler() is None:
            raise MissingExtra("The launcher 'cpu' needs a C++ compiler. Install g++ or clang++, or set CXX.")

    def load(self, program: KernelProgram) -> Run:
        source = cpu_source(program)
        digest = hashlib.sha256("\n".join([source, *_FLAGS, str(compiler())]).encode()).hexdigest()
        file = disk_cache.folder_for_now("kernels") / f"{digest}.so"
        if not file.exists():
            compile_source(source, file, "-shared", "-fPIC")
        # Not CDLL: the emulation has one set of fibers, so only one thread may be in it.
        flatout_run = ctypes.PyDLL(str(file)).flatout_run
        flatout_run.restype = None
        numbers = {name: number for number, name in enumerate(program.kernels)}

        def run(launches: Sequence[Launch], repeat: int) -> None:
            records = (_LaunchRecord * len(launches))()
            arguments: list[int] = []
            rows = [ctypes.c_int(one.rows) for one in launches]
            for n, one in enumerate(launches):
                sizes = (*one.grid, one.threads, one.cluster, one.shared_bytes)
                records[n] = _LaunchRecord(numbers[one.kernel], *sizes, len(arguments))
                arguments += [ctypes.addressof(rows[n]) if value is None else value for value in one.arguments]
            pointers = (ctypes.c_void_p * max(1, len(arguments)))(*arguments)
            flatout_run(records, len(launches), pointers, repeat)

        return run

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        return self._of_host(np.zeros(shape, dtype))

    def adopt(self, array: Any) -> DeviceArray | None:
        return self._of_host(array) if isinstance(array, np.ndarray) and array.flags.c_contiguous else None

    def _of_host(self, array: np.ndarray) -> DeviceArray:
        return DeviceArray(array.ctypes.data, array.shape, array.dtype, array, False, self._fetch, self._fill)

    def _fetch(self, array: DeviceArray) -> np.ndarray:
        return np.array(array)

    def _fill(self, array: DeviceArray, values: np.ndarray) -> None:
        np.asarray(array)[...] = values.reshape(array.shape)

    def synchronize(self) -> None: ...

    def why_no_clusters(self) -> str | None:
        return None
