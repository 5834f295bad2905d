"""Kernels through CuPy: its NVRTC, its memory pool, its streams and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from flatout.base.errors import MissingExtra
from flatout.native.program.kernel_program import KernelProgram
from flatout.native.program.kernel_source import cuda_source

from .buffers import DeviceArray
from .launcher import GraphRun, Launch, Launcher, Run


class CupyLauncher(Launcher):
    """Compiles with CuPy's `RawModule`."""

    name = "cupy"

    def __init__(self) -> None:
        try:
            cupy.cuda.Device(0).use()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise MissingExtra(f"There is no CUDA device ({error}).") from error
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self.device_name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def load(self, program: KernelProgram) -> Run:
        module = cupy.RawModule(code=cuda_source(program), options=("-std=c++17",), backend="nvrtc")
        return _CupyRun(self._stream, {name: module.get_function(name) for name in program.kernels})

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        memory = cupy.zeros(shape, dtype)
        return DeviceArray(memory.data.ptr, tuple(shape), dtype, memory, True, self._fetch, self._fill)

    def synchronize(self) -> None:
        cupy.cuda.Device().synchronize()

    def _fetch(self, array: DeviceArray) -> np.ndarray:
        self._stream.synchronize()
        return cupy.asarray(array).get()

    def _fill(self, array: DeviceArray, values: np.ndarray) -> None:
        self._stream.synchronize()
        cupy.asarray(array).set(values.reshape(array.shape))
        self.synchronize()


class _CupyRun(GraphRun):
    def _captured(self, launches: Sequence[Launch]) -> Any:
        with self._stream:
            self._stream.begin_capture()
            try:
                for one in launches:
                    kernel, block = self._kernels[one.kernel], (one.threads, 1, 1)
                    kernel(one.grid, block, tuple(one.values), shared_mem=one.shared_bytes)
            finally:
                graph = self._stream.end_capture()
        return graph

    def _replay(self, graph: Any) -> None:
        graph.launch(self._stream)
