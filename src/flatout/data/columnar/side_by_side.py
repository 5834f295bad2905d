"""Arrays that lie in files, as the columns of one matrix: what a table of an Arrow file is where nothing is encoded."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .frame_columns import common_dtype


class SideBySide:
    """A matrix of rows whose columns are arrays of their own; indexing reads the rows that are asked for.

    Args:
        arrays: Memory maps, `FileRows` or `Shards` of the same length.

    Example:
        >>> rows = SideBySide([np.arange(3), np.ones((3, 2), "int64")])
        >>> rows.shape, rows[1:].tolist(), rows[np.array([2, 0])].tolist()
        ((3, 3), [[1, 1, 1], [2, 1, 1]], [[2, 1, 1], [0, 1, 1]])
    """

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = tuple(arrays)
        self.dtype = common_dtype([array.dtype for array in arrays])
        self._widths = [math.prod(array.shape[1:]) for array in arrays]
        self.shape = (len(arrays[0]), sum(self._widths))

    ndim = 2

    @property
    def nbytes(self) -> int:
        return len(self) * self.row_bytes

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.dtype.itemsize

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in the order of their rows."""
        from flatout.data.files.npy_files import files_of

        return files_of(self.arrays[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SideBySide(arrays={len(self.arrays)}, shape={self.shape}, dtype={self.dtype})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Columns of a file cannot become one array without a copy.")
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def __getitem__(self, rows: Any) -> np.ndarray:
        if not isinstance(rows, slice) and np.ndim(rows) == 0:
            return np.concatenate([np.asarray(array[rows], self.dtype).reshape(-1) for array in self.arrays])
        blocks = [array[rows] for array in self.arrays]
        out = np.empty((len(blocks[0]), self.shape[1]), self.dtype)
        self._fill(out, blocks)
        return out

    def part(self, start: int, stop: int) -> SideBySide:
        """Some of the rows as a matrix of their own; nothing is read."""
        halves = [array.part(start, stop) if hasattr(array, "part") else array[start:stop] for array in self.arrays]
        return SideBySide(halves)

    def tasks(self, most: int) -> list[tuple[int, int]]:
        """As `TableRows.tasks`."""
        return [(start, min(start + most, len(self))) for start in range(0, len(self), most)]

    @property
    def decoder_bytes(self) -> int:
        """As `TableRows.decoder_bytes`: one column's part of a slot."""
        return 2**20

    def pieces(
        self, start: int, stop: int, most: int, threads: bool = False
    ) -> Iterator[tuple[int, int, Callable[[np.ndarray], None]]]:
        """As `TableRows.pieces`."""
        for at in range(start, stop, most):
            end = min(at + most, stop)
            yield at, end - at, functools.partial(self._read, slice(at, end))

    def _read(self, rows: slice, out: np.ndarray) -> None:
        self._fill(out, (array[rows] for array in self.arrays))

    def _fill(self, out: np.ndarray, blocks: Iterable[np.ndarray]) -> None:
        position = 0
        for width, block in zip(self._widths, blocks, strict=True):
            out[:, position : position + width] = np.asarray(block, self.dtype).reshape(len(out), width)
            position += width
