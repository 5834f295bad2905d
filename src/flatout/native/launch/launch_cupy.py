"""Kernels through CuPy: its NVRTC, its memory pool, its streams and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from flatout.native.program.kernel_program import KernelProgram
from flatout.native.program.kernel_source import cuda_source

from .buffers import DeviceArray, adopted
from .launcher import Launch

_STEPS_PER_GRAPH = 32


class CupyLauncher:
    """Compiles with CuPy's `RawModule`."""

    name = "cupy"

    def __init__(self) -> None:
        try:
            cupy.cuda.Device(0).use()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ImportError(f"there is no CUDA device ({error})") from error
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def load(self, program: KernelProgram) -> CupyModule:
        module = cupy.RawModule(code=cuda_source(program), options=("-std=c++17",), backend="nvrtc")
        return CupyModule(self._stream, {name: module.get_function(name) for name in program.kernels})

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        memory = cupy.zeros(shape, dtype)
        return DeviceArray(memory.data.ptr, tuple(shape), dtype, memory, True, self._fetch, self._fill)

    def adopt(self, array: Any) -> DeviceArray | None:
        return adopted(array, self._fetch, self._fill)

    @property
    def device_name(self) -> str:
        return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def why_no_clusters(self) -> str | None:
        return "CuPy launches no clusters of blocks"

    def wait(self) -> None:
        self.synchronize()

    def synchronize(self) -> None:
        cupy.cuda.Device().synchronize()

    def _view(self, array: DeviceArray) -> Any:
        return cupy.asarray(array)

    def _fetch(self, array: DeviceArray) -> np.ndarray:
        self._stream.synchronize()
        return self._view(array).get()

    def _fill(self, array: DeviceArray, values: np.ndarray) -> None:
        self._stream.synchronize()
        self._view(array).set(values.reshape(array.shape))
        self.synchronize()


class CupyModule:
    """Compiled kernels; a step's launches become a CUDA graph the first time they are repeated."""

    def __init__(self, stream: Any, kernels: dict[str, Any]):
        self._stream = stream
        self._kernels = kernels
        self._graphs: dict[Any, Any] = {}

    def run(self, launches: Sequence[Launch], repeat: int) -> None:
        with self._stream:
            for times in (_STEPS_PER_GRAPH, 1):
                graphs, repeat = divmod(repeat, times)
                if graphs:
                    graph = self._graph(tuple(launches), times)
                    for _ in range(graphs):
                        graph.launch(self._stream)

    def _graph(self, launches: tuple[Launch, ...], times: int) -> Any:
        key = (launches, times)
        if key not in self._graphs:
            self._stream.begin_capture()
            try:
                for _ in range(times):
                    for one in launches:
                        self._launch(one)
            finally:
                graph = self._stream.end_capture()
            self._graphs[key] = graph
        return self._graphs[key]

    def _launch(self, one: Launch) -> None:
        if one.cluster > 1:
            raise NotImplementedError(f"The launcher 'cupy' has no clusters. Received: cluster={one.cluster}.")
        arguments = tuple(np.int32(one.rows) if value is None else np.uint64(value) for value in one.arguments)
        self._kernels[one.kernel](one.grid, (one.threads, 1, 1), arguments, shared_mem=one.shared_bytes)
