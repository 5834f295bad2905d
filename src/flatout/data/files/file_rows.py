"""Rows that lie in files, indexed as an array is: what is asked for is read, and nothing else.

A memory map of a file takes as much address space as the file has bytes, and its pages count as this process' memory
once they are touched. `FileRows` take neither, so that a process under `ulimit -v` reads files of any size.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import UnreadableFile

from .page_cache import cached_bytes, drop_from_cache

Identity = tuple[int, int, int, int]
_PLAIN_NUMBERS = "iufc"
_PIECE_BYTES = 4 * 2**20
# Fills an array with rows.
Fill = Callable[[np.ndarray], None]


class LazyRows(ABC):
    """An array over files: an integer, a slice or an array of integers gives what an array of all rows would give."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    @abstractmethod
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of their rows."""

    @abstractmethod
    def part(self, start: int, stop: int) -> LazyRows:
        """Some of the rows as an array of their own; nothing is read."""

    @abstractmethod
    def _range(self, start: int, stop: int) -> np.ndarray:
        """The rows `start` to `stop - 1`."""

    @abstractmethod
    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        """The rows of these numbers, all of which there are."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return len(self) * self.row_bytes

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(files={len(self.paths)}, shape={self.shape}, dtype={self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Rows of files cannot become an array without a copy.")
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self._range(start, max(start, stop)) if step == 1 else self._gathered(np.arange(start, stop, step))
        numbers = np.asarray(rows)
        if numbers.ndim > 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise TypeError(
                "Rows of files are asked for by an integer, a slice or a one-dimensional array of integers. "
                f"Received: {type(rows).__name__} of dtype {numbers.dtype} and shape {numbers.shape}."
            )
        wrong = (numbers < -len(self)) | (numbers >= len(self))
        if wrong.any():
            raise IndexError(f"Row {int(numbers[wrong].flat[0])} is out of range for {len(self)} rows.")
        numbers = np.where(numbers < 0, numbers + len(self), numbers).astype(np.int64)
        return self._gathered(numbers) if numbers.ndim else self._gathered(numbers[None])[0]


class DecodedRows(LazyRows):
    """Rows that do not lie in their files as they are: they are decoded, or put together, piece by piece."""

    @property
    @abstractmethod
    def decoder_bytes(self) -> int:
        """About how much host memory a thread takes to decode, beside the array that it fills."""

    @abstractmethod
    def tasks(self, most: int) -> list[tuple[int, int]]:
        """Ranges of rows that can be read independently, if possible of `most` rows or more."""

    @abstractmethod
    def pieces(self, start: int, stop: int, most: int, threads: bool = False) -> Iterator[tuple[int, int, Fill]]:
        """Some rows in pieces of at most so many: the first row, how many, and what fills an array with them."""

    @property
    def piece_rows(self) -> int:
        """How many rows are best decoded at once; more would only take memory."""
        return max(_PIECE_BYTES // max(self.row_bytes, 1), 1)

    def _range(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for at, count, fill in self.pieces(start, stop, self.piece_rows, threads=True):
            fill(out[at - start : at - start + count])
        return out


class FileRows(LazyRows):
    """An array of rows in a file, in C order from the byte `offset` on; indexing reads the rows that are asked for.

    The file is opened for each read, so that an array of ten thousand files keeps none of them open. With
    `drops_cache` nothing of what is read is left in the page cache. `keeps` lives as long as these rows, such as a file
    that has no other name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        offset: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        drops_cache: bool = False,
        keeps: Any = None,
    ):
        self._keeps = keeps
        self.path = Path(path)
        self.offset = offset
        self.shape = shape
        self.dtype = dtype
        self._drops_cache = drops_cache
        self.identity = identity_of(self.path.stat())

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def native_dtype(self) -> np.dtype[Any]:
        """Numbers are brought to this machine's byte order; text and records are left as they are."""
        return self.dtype.newbyteorder("=") if self.dtype.kind in _PLAIN_NUMBERS else self.dtype

    @property
    def is_swapped(self) -> bool:
        return self.native_dtype != self.dtype

    def part(self, start: int, stop: int) -> FileRows:
        part = copy.copy(self)
        part.shape, part.offset = (stop - start, *self.shape[1:]), self.offset + start * self.row_bytes
        return part

    def _range(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill an array of this dtype and row shape with the rows from `start` on."""
        self._read([(start, out)])

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        out = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        # Rows that lie one after the other are read at once.
        begins = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        bounds = itertools.pairwise([*begins, len(numbers)])
        self._read((int(numbers[begin]), out[begin:end]) for begin, end in bounds)
        return out

    def _read(self, runs: Iterable[tuple[int, np.ndarray]]) -> None:
        """Fill each array with the rows from a number on."""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(self.path, os.fstat(file), self.identity)
            for start, out in runs:
                if not out.nbytes:
                    continue
                rest = out.reshape(-1).view(np.uint8).data
                begin = position = self.offset + start * self.row_bytes
                while rest:
                    count = os.preadv(file, [rest], position)
                    if not count:
                        raise ValueError(f"{str(self.path)!r} ends at byte {position}. Expected {len(rest)} more.")
                    rest, position = rest[count:], position + count
                if self._drops_cache:
                    drop_from_cache(file, begin, position - begin)
        finally:
            os.close(file)


def files_of(array: Any) -> tuple[Path, ...]:
    """The files that the rows of an array lie in, however they are read; empty for an array in memory."""
    if isinstance(array, np.memmap):
        return () if array.filename is None else (Path(array.filename),)
    return tuple(dict.fromkeys(getattr(array, "paths", ())))


def part_of(array: Any, start: int, stop: int) -> Any:
    """Some rows of an array as an array of their own; nothing is read."""
    return array.part(start, stop) if isinstance(array, LazyRows) else array[start:stop]


def open_rows(path: str | os.PathLike[str]) -> FileRows:
    """The rows of a `.npy` file that NumPy would map; `UnreadableFile` if they do not lie together."""
    form = np.lib.format
    with Path(path).open("rb") as file:
        # Version 3 differs from 2 in the letters of field names alone.
        read = form.read_array_header_1_0 if form.read_magic(file) == (1, 0) else form.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
        offset = file.tell()
    if is_fortran and len(shape) > 1:
        raise UnreadableFile(
            f"{path} is stored column by column (Fortran order), so that its rows do not lie together. "
            "Expected C order: np.save(path, np.ascontiguousarray(x))."
        )
    return FileRows(path, offset, shape, dtype)


def is_cold(path: str | os.PathLike[str], if_unknown: bool = False) -> bool:
    """Whether less than half of a file is in the page cache; then reading it need not fill the cache either."""
    try:
        cached = cached_bytes(path)
    except (OSError, ValueError):
        # `mincore` wants the file mapped, which it may be too large for.
        return True
    return if_unknown if cached is None else cached < Path(path).stat().st_size // 2


def identity_of(status: os.stat_result) -> Identity:
    """What a file is now, to see later whether it has been changed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def require_unchanged(path: Path, status: os.stat_result, identity: Identity) -> None:
    """Refuse a file that is not what it was."""
    if identity_of(status) != identity:
        raise ValueError(
            f"{str(path)!r} has been changed since it was opened. Expected a file that stays as it is "
            "while it is read: start again with the new one."
        )


@dataclass(frozen=True)
class Block:
    """A contiguous piece of a file that fits a slot, and its place in the whole array (see `Sink.write`)."""

    file: FileRows
    offset: int
    at: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.file.dtype.itemsize


def blocks(file: FileRows, at: int, most_bytes: int) -> Iterator[Block]:
    """Cut rows, which begin at the row `at` of a whole array, into blocks of at most so many bytes, or of one value.

    A block has whole rows, or a part of a row that is longer than a block.
    """
    if file.nbytes == 0:
        return
    shape = file.shape
    steps = [math.prod(shape[axis + 1 :]) * file.dtype.itemsize for axis in range(len(shape))]
    # The first axis along which a block can take a whole step.
    axis, step = next((axis, step) for axis, step in enumerate(steps) if step <= most_bytes)
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
