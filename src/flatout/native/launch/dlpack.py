"""DLPack capsules of device memory, made with ctypes: any library that speaks DLPack can read a program's buffers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CUDA = 2
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_NAME = b"dltensor"
# What a capsule points to, until its consumer lets go of it.
_alive: dict[int, tuple[Any, ...]] = {}


@_Deleter
def _delete(managed: Any) -> None:
    _alive.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _destroy(capsule: int) -> None:
    """A capsule that nobody has consumed still has its first name."""
    if _is_capsule(capsule, _NAME):
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
        _alive.pop(get(capsule, _NAME), None)


def capsule(pointer: int, shape: tuple[int, ...], dtype: np.dtype, device: int, owner: Any) -> Any:
    """A DLPack capsule of C-contiguous memory of a CUDA device; `owner` lives as long as its consumer needs it."""
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    kind = _DataType(_KINDS[dtype.kind], dtype.itemsize * 8, 1)
    tensor = _Tensor(pointer, _Device(CUDA, device), len(shape), kind, sizes, None, 0)
    managed = _Managed(tensor, None, _delete)
    address = ctypes.addressof(managed)
    _alive[address] = (managed, sizes, owner)
    return _new_capsule(address, _NAME, _destroy)
