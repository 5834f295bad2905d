"""Kernels through PyCUDA: nvcc compiles them, and each is launched by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# The primary context, which jax and torch use too.
import pycuda.autoprimaryctx
from pycuda import driver
from pycuda.compiler import SourceModule

from flatout.native.program.kernel_program import KernelProgram
from flatout.native.program.kernel_source import cuda_source

from .buffers import DeviceArray
from .launcher import Launch, Launcher, Run


class PycudaLauncher(Launcher):
    """Compiles with PyCUDA's `SourceModule`."""

    name = "pycuda"

    def __init__(self) -> None:
        self.device_name = driver.Device(0).name()

    def load(self, program: KernelProgram) -> Run:
        module = SourceModule(cuda_source(program), no_extern_c=True, options=["-std=c++17", "-w"])
        kernels = {name: module.get_function(name) for name in program.kernels}

        def run(launches: Sequence[Launch], repeat: int) -> None:
            for one in [*launches] * repeat:
                kernels[one.kernel](*one.values, grid=one.grid, block=(one.threads, 1, 1), shared=one.shared_bytes)

        return run

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        nbytes = max(1, int(np.prod(shape)) * dtype.itemsize)
        memory = driver.mem_alloc(nbytes)
        driver.memset_d8(memory, 0, nbytes)
        return DeviceArray(int(memory), tuple(shape), dtype, memory, True, self._fetch, self._fill)

    def synchronize(self) -> None:
        pycuda.autoprimaryctx.context.synchronize()

    def _fetch(self, array: DeviceArray) -> np.ndarray:
        out = np.empty(array.shape, array.dtype)
        if out.nbytes:
            driver.memcpy_dtoh(out, array.pointer)
        return out

    def _fill(self, array: DeviceArray, values: np.ndarray) -> None:
        driver.memcpy_htod(array.pointer, values)
