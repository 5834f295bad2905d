"""A `.npy` file whose rows come one after the other, under another name until all are there.

Whoever may write to its folder may lay a link in its place, to a file that is not theirs to write: none is followed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from flatout.data.files.page_cache import drop_from_cache

from .manifest import FileProgress

_WITHOUT_LINKS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def size_on_disk(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of a `.npy` file, its header included."""
    return len(_header(shape, np.dtype(dtype))) + math.prod(shape) * np.dtype(dtype).itemsize


def partial(path: Path) -> Path:
    """Where the rows of a file lie until all are there."""
    return path.with_name(f"{path.name}.partial")


class PartialFile:
    """The rows of one output, in a file whose header is written last: only then is it known how many rows there are."""

    def __init__(self, path: Path, begun: FileProgress):
        self.path = path
        self.begun = begun
        self._row_shape, self._dtype = begun.row_shape, np.dtype(begun.dtype)
        self._failure: OSError | None = None
        self._file = _opened(partial(path)) if begun.rows else _created(partial(path))
        try:
            if begun.rows and os.fstat(self._file).st_size < self._end(begun.rows):
                raise _changed(partial(path))
            self.cut(begun.rows)
        except BaseException:
            os.close(self._file)
            raise

    def _end(self, rows: int) -> int:
        return size_on_disk((rows, *self._row_shape), self._dtype)

    def write(self, arrays: list[np.ndarray], row: int) -> int:
        """Write rows from this one on, and say how many."""
        for array in arrays:
            if array.shape[1:] != self._row_shape or array.dtype != self._dtype:
                raise ValueError(
                    f"The outputs of a step do not fit those before it. Received: rows of shape {array.shape[1:]} and "
                    f"dtype {array.dtype}. Expected {self._row_shape} and {self._dtype}, as in the first step."
                )
        rows = np.concatenate(arrays)
        rest, position = rows.reshape(-1).view(np.uint8).data, self._end(row)
        while rest:
            count = os.pwrite(self._file, rest, position)
            rest, position = rest[count:], position + count
        return len(rows)

    def read(self, row: int, stop: int) -> np.ndarray:
        """Rows that are there."""
        text = os.pread(self._file, self._end(stop) - self._end(row), self._end(row))
        return np.frombuffer(text, self._dtype).reshape(stop - row, *self._row_shape)

    def cut(self, rows: int) -> None:
        """Drop what is behind so many rows."""
        os.ftruncate(self._file, self._end(rows))

    def sync(self) -> None:
        # Of rows that did not reach the disk once, a second call would say that all is well.
        if self._failure is not None:
            raise self._failure
        try:
            os.fsync(self._file)
        except OSError as error:
            self._failure = error
            raise
        drop_from_cache(self._file)

    def complete(self, rows: int) -> None:
        """Make it a `.npy` file of so many rows."""
        self.cut(rows)
        os.pwrite(self._file, _header((rows, *self._row_shape), self._dtype), 0)
        self.sync()

    def close(self) -> None:
        os.close(self._file)


def _opened(path: Path, flags: int = 0) -> int:
    """The file there, which nobody else writes to meanwhile."""
    with contextlib.ExitStack() as on_error:
        file = os.open(path, _WITHOUT_LINKS | flags, 0o666)
        on_error.callback(os.close, file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno, f"Another prediction is being written to {str(path)!r}. Wait for it, or choose another"
            ) from error
        except OSError:
            # Not every network file system has locks.
            pass
        # Who had it until now may have finished it.
        if not os.path.samestat(os.fstat(file), path.lstat()):
            raise _changed(path)
        on_error.pop_all()
        return file


def _created(path: Path) -> int:
    """A new file that no other name leads to, in the place of what lies there, if nobody writes to that."""
    with contextlib.ExitStack() as before:
        try:
            before.callback(os.close, _opened(path))
        except OSError as error:
            # Nothing, or a link.
            if error.errno not in (errno.ENOENT, errno.ELOOP):
                raise
        path.unlink(missing_ok=True)
        return _opened(path, os.O_CREAT | os.O_EXCL)


def _changed(path: Path) -> OSError:
    return OSError(f"{str(path)!r} was changed by another process. Predict again.")


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """NumPy's own; its length leaves room for any number of rows."""
    text = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(text, fields)
    return text.getvalue()
