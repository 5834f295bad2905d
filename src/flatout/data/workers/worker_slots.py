"""A batch as parts of shared memory: a pickle of its structure, which leaves the arrays out, then the arrays.

The memory has no name (`memfd_create`), so that none can be left behind in /dev/shm; another process maps it by a file
descriptor.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from typing import Any

import numpy as np

# Arrays begin at multiples of this: jax on a CPU takes aligned memory as it is, without a copy.
ALIGNMENT = 64


def dump(value: Any) -> list[Any]:
    """The parts of a batch, or of anything else that can be pickled."""
    arrays: list[pickle.PickleBuffer] = []
    structure = io.BytesIO()
    _Pickler(structure, protocol=5, buffer_callback=arrays.append).dump(value)
    return [structure.getbuffer(), *(array.raw() for array in arrays)]


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle leaves out only arrays that are in one piece.
        if type(value) is np.ndarray and not value.flags.forc and not value.dtype.hasobject:
            return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


def room_for(parts: list[Any]) -> int:
    """Bytes that the parts take, each aligned."""
    return _offsets([part.nbytes for part in parts])[-1]


def write(memory: mmap.mmap, parts: list[Any]) -> list[int]:
    """Write the parts one after another, and return their sizes."""
    sizes = [part.nbytes for part in parts]
    for part, offset in zip(parts, _offsets(sizes), strict=False):
        memory[offset : offset + part.nbytes] = part
    return sizes


def load(memory: Any, sizes: list[int]) -> Any:
    """What was written; its arrays are views of the memory."""
    structure, *arrays = [memory[offset : offset + size] for offset, size in zip(_offsets(sizes), sizes, strict=False)]
    return pickle.loads(structure, buffers=arrays)


def _offsets(sizes: list[int]) -> list[int]:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
    return offsets


def new_memory(size: int) -> tuple[mmap.mmap, int]:
    """Memory without a name, and the file descriptor by which another process can map it."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flatout")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return mmap.mmap(handle, size), handle
