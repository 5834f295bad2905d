"""Rows of a `.npy` file that are read when they are asked for, and never mapped into memory.

A memory map of a file takes as much address space as the file has bytes, and its pages count as this process' memory
once they are touched. These rows take neither, so that a process under `ulimit -v` reads files of any size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import npy_blocks
from .lazy_rows import LazyRows
from .page_cache import cached_bytes, drop_from_cache

Identity = tuple[int, int, int, int]


class FileRows(LazyRows):
    """An array of rows in a file, in C order; indexing reads the rows that are asked for.

    The file is opened for each read, so that an array of ten thousand files keeps none of them open.

    Args:
        path: The file.
        offset: Of the first row, in bytes.
        shape: Of the array; the first axis counts rows.
        dtype: As stored.
        drops_cache: Leave nothing in the page cache of what is read by slices, one after the other as a rule.
        keeps: Lives as long as these rows, such as a file that has no other name.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file, np.arange(6).reshape(3, 2))
        ...     file.flush()
        ...     rows = open_rows(file.name)
        ...     rows.shape, rows[1:].tolist(), rows[np.array([2, 0])].tolist()
        ((3, 2), [[2, 3], [4, 5]], [[4, 5], [0, 1]])
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
        self._identity = identity_of(self.path)

    @property
    def paths(self) -> tuple[Path, ...]:
        return (self.path,)

    def part(self, start: int, stop: int) -> FileRows:
        shape, offset = (stop - start, *self.shape[1:]), self.offset + start * self.row_bytes
        return FileRows(self.path, offset, shape, self.dtype, self._drops_cache, self._keeps)

    def _range(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill an array of this dtype and row shape with the rows from `start` on.

        Raises:
            ValueError: The file is no longer what it was, or ends too early.
        """
        if not out.nbytes:
            return
        begin = self.offset + start * self.row_bytes
        self._with_file(lambda file: self._read(file, begin, out))

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        out = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        # Rows that lie one after the other are read at once.
        begins = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        ends = [*begins[1:], len(numbers)]

        def read(file: int) -> None:
            for begin, end in zip(begins, ends, strict=True):
                self._read(file, self.offset + int(numbers[begin]) * self.row_bytes, out[begin:end])

        if out.nbytes:
            self._with_file(read)
        return out

    def _with_file(self, read: Callable[[int], None]) -> None:
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            require_unchanged(self.path, os.fstat(file), self._identity)
            read(file)
        finally:
            os.close(file)

    def _read(self, file: int, begin: int, out: np.ndarray) -> None:
        # A view of a zero-dimensional row has no bytes to address: all are at least one-dimensional here.
        rest = out.reshape(-1).view(np.uint8).data
        position = begin
        while rest:
            count = os.preadv(file, [rest], position)
            if not count:
                raise ValueError(f"{str(self.path)!r} ends at byte {position}. Expected {len(rest)} more.")
            rest, position = rest[count:], position + count
        if self._drops_cache:
            drop_from_cache(file, begin, position - begin)


def open_rows(path: str | os.PathLike[str]) -> FileRows:
    """The rows of a `.npy` file.

    Raises:
        UnreadableFile: Not a `.npy` file, damaged or cut short, in Fortran order, or of Python objects.
    """
    found = npy_blocks.describe(path)
    return FileRows(found.path, found.offset, found.shape, found.dtype)


def is_cold(path: str | os.PathLike[str]) -> bool:
    """Whether less than half of a file is in the page cache; then reading it need not fill the cache either."""
    try:
        cached = cached_bytes(path)
    except (OSError, ValueError):
        # `mincore` wants the file mapped, which it may be too large for.
        return True
    return cached is not None and cached < Path(path).stat().st_size // 2


def identity_of(path: Path) -> Identity:
    """What a file is now, to see later whether it has been changed."""
    return _identity(path.stat())


def require_unchanged(path: Path, status: os.stat_result, identity: Identity) -> None:
    """Refuse a file that is not what it was.

    Raises:
        ValueError: It has been changed.
    """
    if _identity(status) != identity:
        raise ValueError(
            f"{str(path)!r} has been changed since it was opened. Expected a file that stays as it is "
            "while it is read: start again with the new one."
        )


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
