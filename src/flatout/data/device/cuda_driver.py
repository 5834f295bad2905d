"""The CUDA driver, by ctypes: a few functions of a stable interface, for work beside the backends.

All is done in the device's primary context, which torch, jax and TensorFlow use too; their CUDA runtimes are not
touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Pinned for every context of the process, so that it does not matter which GPU takes the copy.
_REGISTER_PORTABLE = ctypes.c_uint(1)
_NON_BLOCKING = ctypes.c_uint(1)
# A thread that waits sleeps, since one that spins would take a core from those that gather; and nothing is timed.
_EVENT_FLAGS = ctypes.c_uint(1 | 2)
_QUICK = frozenset(
    (
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuLaunchKernel",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventDestroy_v2",
    )
)
# Of memory that nobody writes before the copy is done.
_SOURCE_IN_ANY_ORDER = 3


class _CopyAttributes(ctypes.Structure):
    """CUmemcpyAttributes: hints on where the memory is, all unknown, and flags."""

    _fields_ = (("source_order", ctypes.c_int), ("locations", ctypes.c_int * 4), ("flags", ctypes.c_uint))


class CudaError(Exception):
    """The CUDA driver is absent or refused; whoever calls it has another way."""


class Driver:
    """The few functions of libcuda that locking pages and copying rows take.

    Args:
        library: libcuda, as ctypes loads it.
        quick: The same, loaded so that calls keep Python's lock: between calls that return at once, giving it away
            would cost more than they do, where other threads want it.
    """

    def __init__(self, library: Any, quick: Any = None):
        self._library = library
        self._quick = quick or library
        # From CUDA 13 on.
        self.copies_batches = hasattr(library, "cuMemcpyBatchAsync_v2")
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def register(self, address: int, nbytes: int) -> None:
        self._call_in_context("cuMemHostRegister_v2", address, nbytes, _REGISTER_PORTABLE)

    def unregister(self, address: int) -> None:
        self._call_in_context("cuMemHostUnregister", address)

    def stream(self) -> int:
        """A stream that waits for no other one, behind all others where they compete."""
        stream, least, greatest = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        self._call_in_context("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        self._call_in_context("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, least)
        return int(stream.value or 0)

    def synchronize(self, stream: int) -> None:
        self._call_in_context("cuStreamSynchronize", stream)

    def destroy_stream(self, stream: int) -> None:
        self._call_in_context("cuStreamDestroy_v2", stream)

    def event(self, stream: int) -> int:
        """An event that comes when what the stream has to do now is done."""
        event = ctypes.c_void_p()
        self._call_in_context("cuEventCreate", ctypes.byref(event), _EVENT_FLAGS)
        self._call_in_context("cuEventRecord", event, stream)
        return int(event.value or 0)

    def wait_for(self, event: int) -> None:
        """Wait for an event, and forget it."""
        self._call_in_context("cuEventSynchronize", event)
        self._call_in_context("cuEventDestroy_v2", event)

    def allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_uint64()
        self._call_in_context("cuMemAlloc_v2", ctypes.byref(pointer), nbytes)
        return int(pointer.value)

    def free(self, pointer: int) -> None:
        self._call_in_context("cuMemFree_v2", pointer)

    def copy_to_device(self, target: int, address: int, nbytes: int, stream: int) -> None:
        """Start to copy host memory, at once if it is pinned; else it may be written again when this returns."""
        if not stream:
            # To the driver 0 is a stream too, the one that waits for all others.
            raise CudaError("the stream is closed")
        self._call_in_context("cuMemcpyHtoDAsync_v2", target, address, nbytes, stream)

    def copy_batch(self, targets: np.ndarray, sources: np.ndarray, nbytes: np.ndarray, stream: int) -> None:
        """Start to copy many pieces of pinned host memory, in any order; all arrays are numbers of 64 bits."""
        if not stream:
            raise CudaError("the stream is closed")
        addresses = [array.ctypes.data for array in (targets, sources, nbytes)]
        attributes, first = ctypes.byref(_CopyAttributes(_SOURCE_IN_ANY_ORDER)), ctypes.byref(ctypes.c_size_t(0))
        self._call_in_context("cuMemcpyBatchAsync_v2", *addresses, len(targets), attributes, first, 1, stream)

    def function(self, ptx: str, name: str) -> int:
        """A kernel, compiled by the driver for the GPU that there is; it stays for the life of the process."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call_in_context("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
        self._call_in_context("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        return int(function.value or 0)

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: Sequence[Any]) -> None:
        """Start a kernel, with ctypes values of the types that it declares."""
        addresses = [ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p) for argument in arguments]
        packed = (ctypes.c_void_p * len(addresses))(*addresses)
        shape_and_shared_memory = [ctypes.c_uint(size) for size in (blocks, 1, 1, threads, 1, 1, 0)]
        self._call_in_context("cuLaunchKernel", function, *shape_and_shared_memory, stream, packed, None)

    @contextlib.contextmanager
    def in_context(self) -> Iterator[None]:
        """Pushed and popped: what the thread had current before is current again."""
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call_in_context(self, name: str, *arguments: Any) -> None:
        """Numbers of Python are addresses, handles and sizes: of 64 bits."""
        wide = [ctypes.c_size_t(value) if isinstance(value, int) else value for value in arguments]
        with self.in_context():
            self._call(name, *wide)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._quick if name in _QUICK else self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(f"{name} failed with {(text.value or b'an unknown error').decode()} ({status})")


@functools.cache
def cuda_driver() -> Driver:
    """The driver, initialised; `CudaError` if there is none, or no GPU."""
    try:
        return Driver(ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1"))
    except OSError:
        raise CudaError("there is no CUDA driver (libcuda.so.1)") from None
