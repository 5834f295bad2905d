"""Arrays in device memory that every GPU library can read and write: CUDA array interface and DLPack."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import dlpack


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """A C-contiguous array in the memory of a device.

    On a GPU it has `__cuda_array_interface__` and `__dlpack__`, so that CuPy, PyCUDA, torch and jax take it without a
    copy. In the memory of a CPU, under the launcher of the tests, it is a NumPy array's memory.

    Attributes:
        pointer: Its address.
        shape: Its shape.
        dtype: Its type.
        owner: Keeps the memory.
        is_cuda: Whether it is a GPU's memory.
        fetch: Copies it into a NumPy array.
        fill: Copies a NumPy array into it.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype
    owner: Any
    is_cuda: bool
    fetch: Callable[[DeviceArray], np.ndarray]
    fill: Callable[[DeviceArray, np.ndarray], None]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def part(self, shape: tuple[int, ...], offset: int) -> DeviceArray:
        """Some of its elements, from the `offset`-th on, in another shape."""
        pointer = self.pointer + offset * self.dtype.itemsize
        return DeviceArray(pointer, shape, self.dtype, self.owner, self.is_cuda, self.fetch, self.fill)

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        return self.fetch(self)

    def assign(self, values: Any) -> None:
        """Copy values of the same shape into it."""
        array = np.ascontiguousarray(values, self.dtype)
        if array.size != math.prod(self.shape):
            raise ValueError(f"Expected values of the shape {self.shape}. Received: shape {array.shape}.")
        if array.size:
            self.fill(self, array)

    def _interface(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3}

    def __getattr__(self, name: str) -> Any:
        # A library asks by the attribute's presence where the memory is.
        if name == "__cuda_array_interface__" and self.is_cuda:
            return {**self._interface(), "strides": None}
        if name == "__array_interface__" and not self.is_cuda:
            return self._interface()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CUDA, 0) if self.is_cuda else (1, 0)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        if not self.is_cuda:
            return np.asarray(self).__dlpack__()
        return dlpack.capsule(self.pointer, self.shape, self.dtype, 0, self.owner)


def host_array(array: np.ndarray) -> DeviceArray:
    """A NumPy array in the memory of the CPU, as a `DeviceArray` of it."""

    def view(of: DeviceArray) -> np.ndarray:
        raw = (ctypes.c_char * of.nbytes).from_address(of.pointer)
        return np.frombuffer(memoryview(raw), of.dtype).reshape(of.shape)

    def fill(of: DeviceArray, values: np.ndarray) -> None:
        view(of)[...] = values.reshape(of.shape)

    return DeviceArray(array.ctypes.data, array.shape, array.dtype, array, False, lambda of: view(of).copy(), fill)


def adopted(array: Any, fetch: Any, fill: Any) -> DeviceArray | None:
    """An array of another library on the first GPU, without a copy, or None if it is none or is not contiguous."""
    try:
        interface = array.__cuda_array_interface__
    except (AttributeError, RuntimeError, TypeError, BufferError):
        return None
    if hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[1]) != 0:
        return None
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is not None:
        expected: list[int] = []
        step = dtype.itemsize
        for size in reversed(shape):
            expected.insert(0, step)
            step *= size
        if tuple(strides) != tuple(expected):
            return None
    if hasattr(array, "block_until_ready"):
        # Jax brings rows from the host by a thread: until that is done, waiting for the device does not wait for them.
        array.block_until_ready()
    return DeviceArray(interface["data"][0], shape, dtype, array, True, fetch, fill)
