"""Arrays that lie in files, as the columns of one matrix: what a table of an Arrow file is where nothing is encoded."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .lazy_rows import DecodedRows, Fill, files_of, part_of


class SideBySide(DecodedRows):
    """A matrix of rows whose columns are arrays of their own.

    Args:
        arrays: Memory maps, `FileRows` or `Shards` of the same length.
        dtype: Of the matrix.

    Example:
        >>> rows = SideBySide([np.arange(3), np.ones((3, 2), "int64")], np.dtype("int64"))
        >>> rows.shape, rows[1:].tolist(), rows[np.array([2, 0])].tolist()
        ((3, 3), [[1, 1, 1], [2, 1, 1]], [[2, 1, 1], [0, 1, 1]])
    """

    def __init__(self, arrays: Sequence[Any], dtype: np.dtype[Any]):
        self.arrays = tuple(arrays)
        self.dtype = dtype
        self._widths = [math.prod(array.shape[1:]) for array in arrays]
        self.shape = (len(arrays[0]), sum(self._widths))

    @property
    def paths(self) -> tuple[Path, ...]:
        return files_of(self.arrays[0])

    def part(self, start: int, stop: int) -> SideBySide:
        return SideBySide([part_of(array, start, stop) for array in self.arrays], self.dtype)

    def tasks(self, most: int) -> list[tuple[int, int]]:
        return [(start, min(start + most, len(self))) for start in range(0, len(self), most)]

    @property
    def decoder_bytes(self) -> int:
        # One column's part of a slot.
        return 2**20

    def pieces(self, start: int, stop: int, most: int, threads: bool = False) -> Iterator[tuple[int, int, Fill]]:
        for at in range(start, stop, most):
            end = min(at + most, stop)
            yield at, end - at, functools.partial(self._read, slice(at, end))

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        out = np.empty((len(numbers), self.shape[1]), self.dtype)
        self._read(numbers, out)
        return out

    def _read(self, rows: slice | np.ndarray, out: np.ndarray) -> None:
        position = 0
        for width, array in zip(self._widths, self.arrays, strict=True):
            out[:, position : position + width] = np.asarray(array[rows], self.dtype).reshape(len(out), width)
            position += width
