"""Arrays in device memory that every GPU library can read and write: CUDA array interface and DLPack."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

# DLPack's numbers of the kinds of memory.
_CPU, _CUDA = 1, 2
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """A C-contiguous array in the memory of a device.

    On a GPU it has `__cuda_array_interface__` and `__dlpack__`, so that CuPy, PyCUDA, torch and jax take it without a
    copy. In the memory of a CPU, under the launcher of the tests, it is a NumPy array's memory.

    Attributes:
        owner: Keeps the memory.
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
        return dataclasses.replace(self, pointer=self.pointer + offset * self.dtype.itemsize, shape=shape)

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
        return (_CUDA if self.is_cuda else _CPU, 0)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        # NumPy makes the capsule, and keeps the owner as long as its consumer needs it; it looks into no memory.
        capsule = _as_numpy(self._interface(), self.owner).__dlpack__()
        # A tensor of DLPack begins with its address, after which comes the kind of memory that is.
        kind = ctypes.c_int32.from_address(_pointer_of(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p))
        kind.value = self.__dlpack_device__()[0]
        return capsule


def _as_numpy(interface: dict[str, Any], owner: Any) -> np.ndarray:
    """Memory as an array of NumPy; if it is a GPU's, only what the array says of itself is to be had."""
    return np.asarray(SimpleNamespace(__array_interface__=interface, owner=owner))


def adopted(array: Any, fetch: Any, fill: Any) -> DeviceArray | None:
    """An array of another library on the first GPU, without a copy, or None if it is none or is not contiguous."""
    try:
        interface = array.__cuda_array_interface__
    except (AttributeError, RuntimeError, TypeError, BufferError):
        return None
    if hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[1]) != 0:
        return None
    seen = _as_numpy(interface, array)
    if not seen.flags.c_contiguous:
        return None
    if hasattr(array, "block_until_ready"):
        # Jax brings rows from the host by a thread: until that is done, waiting for the device does not wait for them.
        array.block_until_ready()
    return DeviceArray(interface["data"][0], seen.shape, seen.dtype, array, True, fetch, fill)
