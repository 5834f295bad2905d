"""What a .npy file says of itself, and how its rows are cut into blocks that fit a slot."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import UnreadableFile

# NumPy refuses to parse longer ones.
_LONGEST_HEADER = 10_000
_PLAIN_NUMBERS = "iufc"


@dataclass(frozen=True)
class NpyFile:
    """A .npy file.

    Attributes:
        path: Of the file.
        shape: Of its array; the first axis counts rows.
        dtype: As stored.
        offset: Of the first row, in bytes.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.row_bytes

    @property
    def native_dtype(self) -> np.dtype[Any]:
        """Numbers are brought to this machine's byte order; text and records are left as they are."""
        return self.dtype.newbyteorder("=") if self.dtype.kind in _PLAIN_NUMBERS else self.dtype

    @property
    def is_swapped(self) -> bool:
        return self.native_dtype != self.dtype

    def part(self, start: int, stop: int) -> NpyFile:
        """Some of the rows, as if they were all of the file."""
        shape, offset = (stop - start, *self.shape[1:]), self.offset + start * self.row_bytes
        return NpyFile(self.path, shape, self.dtype, offset)


def describe(path: str | os.PathLike[str]) -> NpyFile:
    """Read the header of a .npy file of format 1, 2 or 3.

    Raises:
        UnreadableFile: Not a .npy file, damaged or truncated, in Fortran order, of Python objects, or without rows.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file, np.zeros((5, 3), "float32"))
        ...     file.flush()
        ...     found = describe(file.name)
        >>> found.shape, found.dtype, found.offset
        ((5, 3), dtype('float32'), 128)
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            shape, is_fortran, dtype, offset = _parse(path, file.read(_LONGEST_HEADER + 12))
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.") from error
    if dtype.hasobject:
        raise UnreadableFile(
            f"{path} holds Python objects. Received: dtype {dtype}. Expected numbers: convert and save the array again."
        )
    if is_fortran and len(shape) > 1:
        raise UnreadableFile(
            f"{path} is stored column by column (Fortran order), so that its rows do not lie together. "
            "Expected C order: np.save(path, np.ascontiguousarray(x))."
        )
    if not shape:
        raise UnreadableFile(f"{path} holds a single value. Received: shape (). Expected an array with rows.")
    found = NpyFile(path, shape, dtype, offset)
    needed = offset + shape[0] * found.row_bytes
    if size < needed:
        raise UnreadableFile(
            f"{path} is truncated. Received: {size:,} bytes. Expected {needed:,} bytes for shape {shape} of {dtype}."
        )
    return found


def _parse(path: Path, head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran order, dtype, and the offset of the data."""
    form, text = np.lib.format, io.BytesIO(head)
    try:
        version, _ = form.read_magic(text)
        if version not in (1, 2, 3):
            raise ValueError(f"its format is of version {version}, and NumPy has 1, 2 and 3")
        # Version 3 differs from 2 in the letters of field names alone.
        read = form.read_array_header_1_0 if version == 1 else form.read_array_header_2_0
        shape, is_fortran, dtype = read(text, max_header_size=_LONGEST_HEADER)
        if min(shape, default=0) < 0:
            raise ValueError(f"its shape is {shape}")
    except Exception as error:
        raise UnreadableFile(f"{path} is not a .npy file, or its header is damaged: {error}.") from error
    return shape, is_fortran, dtype, text.tell()


@dataclass(frozen=True)
class Block:
    """A contiguous piece of a file that fits a slot, and its place in the whole array (see `Sink.write`)."""

    file: NpyFile
    offset: int
    at: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.file.dtype.itemsize


def blocks(file: NpyFile, at: int, most_bytes: int) -> Iterator[Block]:
    """Cut a file into blocks of whole rows, or of parts of rows that are longer than a block.

    Args:
        file: What to cut.
        at: The row of the whole array where it begins.
        most_bytes: The most that a block may hold; at least one value.
    """
    if file.nbytes == 0:
        return
    shape = file.shape
    # The first axis along which a block can take a whole step.
    axis = next(axis for axis in range(len(shape)) if _step_bytes(file, axis) <= most_bytes)
    step = _step_bytes(file, axis)
    length = most_bytes // step
    for number, index in enumerate(np.ndindex(shape[:axis])):
        for first in range(0, shape[axis], length):
            row, *rest = (*index, first)
            yield Block(
                file,
                file.offset + (number * shape[axis] + first) * step,
                (at + row, *rest),
                (min(length, shape[axis] - first), *shape[axis + 1 :]),
            )


def _step_bytes(file: NpyFile, axis: int) -> int:
    return math.prod(file.shape[axis + 1 :]) * file.dtype.itemsize
