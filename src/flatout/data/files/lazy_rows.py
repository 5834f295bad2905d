"""Rows that lie in files, indexed as an array is: what is asked for is read, and nothing else."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

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


def files_of(array: Any) -> tuple[Path, ...]:
    """The files that the rows of an array lie in, however they are read; empty for an array in memory."""
    if isinstance(array, np.memmap):
        return () if array.filename is None else (Path(array.filename),)
    return tuple(dict.fromkeys(getattr(array, "paths", ())))


def part_of(array: Any, start: int, stop: int) -> Any:
    """Some rows of an array as an array of their own; nothing is read."""
    return array.part(start, stop) if isinstance(array, LazyRows) else array[start:stop]
