"""The default launcher: NVIDIA's cuda.core, with NVRTC, a cache of cubins on disk, and CUDA graphs."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc
from cuda.core import Device, LaunchConfig, ObjectCode, ProgramOptions, launch
from cuda.core import Program as CudaProgram

from flatout.base import disk_cache
from flatout.base.errors import MissingExtra, Refusal, reason
from flatout.native.program.kernel_program import Kernel, KernelProgram
from flatout.native.program.kernel_source import cuda_source

from .buffers import DeviceArray
from .launcher import GraphRun, Launch, Launcher, Run

# What is copied from pageable memory is first copied elsewhere, and no state of a model lies in other memory.
_STAGED_BYTES = 64 * 1024
# Blocks of a cluster that every GPU with clusters has; more must be allowed kernel by kernel.
_PORTABLE_CLUSTER = 8


@functools.cache
def _config(grid: tuple[int, int, int], threads: int, cluster: int, shared_bytes: int) -> LaunchConfig:
    """A launch; its grid counts clusters where there are any."""
    sizes: dict[str, Any] = {"cluster": cluster} if cluster > 1 else {}
    return LaunchConfig(grid=grid, block=(threads, 1, 1), shmem_size=shared_bytes, **sizes)


def checked(result: tuple[Any, ...]) -> Any:
    """The value of a call of the driver.

    Raises:
        RuntimeError: It failed.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(status)
        raise RuntimeError(f"The CUDA driver says {name.decode() if isinstance(name, bytes) else name}.")
    return values[0] if values else None


def compile_to_cubin(source: str, arch: str) -> bytes:
    """Compile with NVRTC for an architecture such as `"sm_90"`, or take what was compiled before from the disk."""
    _, major, minor = nvrtc.nvrtcVersion()
    options = ("c++17", arch, f"nvrtc {major}.{minor}")
    digest = hashlib.sha256("\n".join([source, *options]).encode()).hexdigest()
    file = disk_cache.folder_for_now("kernels") / f"{digest}.cubin"
    if not file.exists():
        made = CudaProgram(source, "c++", ProgramOptions(std="c++17", arch=arch)).compile("cubin")
        disk_cache.put(file, bytes(made.code))
    return file.read_bytes()


@functools.lru_cache(maxsize=64)
def _loaded(source: str, arch: str) -> ObjectCode:
    """Kernels on the device, once for all programs that have the same ones."""
    return ObjectCode.from_cubin(compile_to_cubin(source, arch))


class CudaCoreLauncher(Launcher):
    """Compiles with NVRTC and launches on a stream of its own, in the primary context that jax and torch use too."""

    name = "cuda.core"

    def __init__(self) -> None:
        try:
            self._device = Device(0)
            self._device.set_current()
        except Exception as error:
            raise MissingExtra(f"There is no CUDA device ({str(error).partition(chr(10))[0]}).") from error
        self._stream = self._device.create_stream()
        self._handle = driver.CUstream(int(self._stream.handle))
        # From where arrays are filled, and to where others may be fetched.
        self._sources: weakref.WeakKeyDictionary[DeviceArray, _PinnedMemory] = weakref.WeakKeyDictionary()
        self._fetched: list[_PinnedMemory] = []
        self.device_name = str(self._device.name)
        self.processors = int(self._device.properties.multiprocessor_count)

    def load(self, program: KernelProgram) -> Run:
        arch = self._device.arch
        code = _loaded(cuda_source(program), f"sm_{arch}{'a' if program.form == 'fused' and arch == '90' else ''}")
        kernels = {name: code.get_kernel(name) for name in program.kernels}
        for name, kernel in program.kernels.items():
            if kernel.cluster > 1:
                self._allow_cluster(kernels[name], kernel)
        run = _CudaCoreRun(self._stream, kernels)
        return run.launch if program.form == "fused" else run

    def _allow_cluster(self, loaded: Any, kernel: Kernel) -> None:
        """Let a kernel have its shared memory and its blocks.

        Raises:
            Refusal: The GPU has no place for its cluster.
        """
        attribute = driver.CUfunction_attribute
        handle, device = driver.CUkernel(int(loaded.handle)), driver.CUdevice(self._device.device_id)
        values = {attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: kernel.shared_bytes}
        if kernel.cluster > _PORTABLE_CLUSTER:
            values[attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] = 1
        config = _config(kernel.blocks(1), kernel.threads, kernel.cluster, kernel.shared_bytes)
        try:
            for name, value in values.items():
                checked(driver.cuKernelSetAttribute(name, value, handle, device))
            resident = loaded.occupancy.max_active_clusters(config, stream=self._stream)
        except Exception as error:
            raise Refusal(
                reason("native_device", f"a cluster of {kernel.cluster} blocks is refused: {error}")
            ) from error
        if resident < 1:
            raise Refusal(reason("native_device", f"the GPU holds no cluster of {kernel.cluster} such blocks"))

    def why_no_clusters(self) -> str | None:
        major, minor = self._device.compute_capability
        return None if major >= 9 else f"the GPU is sm_{major}{minor}, and clusters of blocks need sm_90"

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        nbytes = max(1, int(np.prod(shape)) * dtype.itemsize)
        memory = self._device.allocate(nbytes, stream=self._stream)
        pointer = int(memory.handle)
        checked(driver.cuMemsetD8Async(pointer, 0, nbytes, self._handle))
        return DeviceArray(pointer, tuple(shape), dtype, memory, True, self._fetch, self._fill)

    def wait(self) -> None:
        self._stream.sync()

    def synchronize(self) -> None:
        checked(driver.cuCtxSynchronize())

    def follow(self, other: Launcher) -> None:
        if isinstance(other, CudaCoreLauncher):
            self._stream.wait(other._stream)
        else:
            super().follow(other)

    def copy(self, to: DeviceArray, source: DeviceArray) -> None:
        checked(driver.cuMemcpyDtoDAsync(to.pointer, source.pointer, to.nbytes, self._handle))

    def assign_soon(self, to: DeviceArray, values: np.ndarray) -> None:
        if to not in self._sources:
            self._sources[to] = _PinnedMemory(to.nbytes)
        source = self._sources[to]
        source.wait()
        source.bytes[: to.nbytes] = np.ascontiguousarray(values, to.dtype).reshape(-1).view(np.uint8)
        checked(driver.cuMemcpyHtoDAsync(to.pointer, source.pointer, to.nbytes, self._handle))
        source.wait = self._stream.record().sync

    def fetch_soon(self, arrays: Sequence[DeviceArray]) -> Callable[[], list[np.ndarray]]:
        ends = [*itertools.accumulate(array.nbytes for array in arrays)]
        there = next((memory for memory in self._fetched if len(memory.bytes) >= ends[-1]), None)
        if there is None:
            there = _PinnedMemory(ends[-1])
        else:
            self._fetched.remove(there)
        for array, end in zip(arrays, ends, strict=True):
            start = there.pointer + end - array.nbytes
            checked(driver.cuMemcpyDtoHAsync(start, array.pointer, array.nbytes, self._handle))
        done = self._stream.record()

        @functools.cache
        def values() -> list[np.ndarray]:
            done.sync()
            parts = (there.bytes[end - array.nbytes : end] for array, end in zip(arrays, ends, strict=True))
            return [
                part.copy().view(array.dtype).reshape(array.shape) for array, part in zip(arrays, parts, strict=True)
            ]

        # Whoever takes it next writes to it behind what is copied to it now, which perhaps nobody asks for.
        weakref.finalize(values, self._fetched.append, there).atexit = False
        return values

    def _fetch(self, array: DeviceArray) -> np.ndarray:
        out = np.empty(array.shape, array.dtype)
        if out.nbytes:
            checked(driver.cuMemcpyDtoHAsync(out.ctypes.data, array.pointer, out.nbytes, self._handle))
            self._stream.sync()
        return out

    def _fill(self, array: DeviceArray, values: np.ndarray) -> None:
        checked(driver.cuMemcpyHtoDAsync(array.pointer, values.ctypes.data, values.nbytes, self._handle))
        if values.nbytes > _STAGED_BYTES:
            # The driver may read `values` after the call if it is in pinned memory.
            self._stream.sync()


class _PinnedMemory:
    """Memory of the host that a GPU copies from and to by itself.

    Attributes:
        wait: Waits until it was copied.
    """

    def __init__(self, nbytes: int):
        self.pointer = int(checked(driver.cuMemHostAlloc(nbytes, 0)))
        self.bytes = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(self.pointer))
        self.wait: Callable[[], object] = lambda: None
        # Not at exit, when the driver may be gone already.
        weakref.finalize(self, driver.cuMemFreeHost, self.pointer).atexit = False


def _destroy(graphs: dict[Any, Any]) -> None:
    for graph in graphs.values():
        driver.cuGraphExecDestroy(graph)


class _CudaCoreRun(GraphRun):
    def __init__(self, stream: Any, kernels: dict[str, Any]):
        super().__init__(stream, kernels)
        self._handle = driver.CUstream(int(stream.handle))
        # Not at exit, when the driver may be gone already.
        weakref.finalize(self, _destroy, self._graphs).atexit = False

    def _captured(self, launches: Sequence[Launch]) -> Any:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(self._handle, mode))
        try:
            self.launch(launches)
        finally:
            graph = checked(driver.cuStreamEndCapture(self._handle))
        executable = checked(driver.cuGraphInstantiate(graph, 0))
        checked(driver.cuGraphDestroy(graph))
        return executable

    def _replay(self, graph: Any) -> None:
        checked(driver.cuGraphLaunch(graph, self._handle))

    def launch(self, launches: Sequence[Launch], repeat: int = 1) -> None:
        """A `Run` without graphs."""
        for one in [*launches] * repeat:
            config = _config(one.grid, one.threads, one.cluster, one.shared_bytes)
            launch(self._stream, config, self._kernels[one.kernel], *one.values)
