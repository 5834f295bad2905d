"""Arrays of other libraries that kernels read where they lie."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
import pytest

from flatout.native.launch.buffers import DeviceArray, adopted

pytestmark = pytest.mark.backend("jax")


class _OnTheGpu:
    """An array as jax has it: its address is known before its rows are there."""

    def __init__(self, **interface: Any):
        shown = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}
        self.__cuda_array_interface__ = {**shown, **interface}
        self.has_arrived = False

    def block_until_ready(self) -> None:
        self.has_arrived = True


def test_rows_have_arrived_when_they_are_adopted() -> None:
    rows = _OnTheGpu()
    array = adopted(rows, None, None)
    assert array is not None
    assert (array.pointer, array.shape, array.dtype, array.owner) == (4096, (2, 3), np.dtype("float32"), rows)
    assert rows.has_arrived


@pytest.mark.parametrize("strides", [(4, 8), (24, 4)])
def test_other_orders_in_memory_are_not_adopted(strides: tuple[int, int]) -> None:
    assert adopted(_OnTheGpu(strides=strides), None, None) is None


def test_arrays_of_the_host_are_not_adopted() -> None:
    assert adopted(np.zeros(3), None, None) is None


class _Tensor(ctypes.Structure):
    """The beginning of what a capsule of DLPack points to."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    )


def test_capsules_of_cuda_memory_are_well_formed() -> None:
    owner = _OnTheGpu()
    array: Any = DeviceArray(2**40, (2, 3), np.dtype("float32"), owner, True, lambda of: np.zeros(0), lambda *_: None)
    assert array.__dlpack_device__() == (2, 0)
    capsule, seen = array.__dlpack__(stream=1), weakref.ref(owner)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    assert (tensor.data, tensor.ndim, list(tensor.shape[:2])) == (2**40, 2, [2, 3])
    assert (tensor.device_type, tensor.device_id, tensor.code, tensor.bits, tensor.lanes) == (2, 0, 2, 32, 1)
    del array, owner
    assert seen() is not None, "the capsule keeps the memory"
    del capsule
    assert seen() is None
