"""What lies in files: NumPy arrays as memory maps, several of them as one array or matrix, and archives.

Nothing is read before somebody asks for rows. `extents` says which bytes of which files hold them, for a reader that
goes from disk to device without NumPy.
"""

from __future__ import annotations

import errno
import functools
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import UnreadableFile

from .file_rows import DecodedRows, FileRows, Fill, LazyRows, files_of, is_cold, open_rows, part_of


class Shards(LazyRows):
    """One array of rows over several memory maps or `FileRows`, numbered through them in the order given."""

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = tuple(arrays)
        self._starts = np.cumsum([0, *(len(array) for array in self.arrays)])
        self.shape = (int(self._starts[-1]), *self.arrays[0].shape[1:])
        self.dtype = self.arrays[0].dtype

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for array in self.arrays for path in files_of(array))

    def part(self, start: int, stop: int) -> Shards:
        firsts = zip(self.arrays, self._starts.tolist(), strict=False)
        bounds = [(array, max(start - first, 0), min(stop - first, len(array))) for array, first in firsts]
        parts = [part_of(array, low, high) for array, low, high in bounds if low < high]
        return Shards(parts or [part_of(self.arrays[0], 0, 0)])

    def _range(self, start: int, stop: int) -> np.ndarray:
        parts = [part[:] for part in self.part(start, stop).arrays]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        shards = np.searchsorted(self._starts, numbers, side="right") - 1
        for shard in np.unique(shards).tolist():
            wanted = np.flatnonzero(shards == shard)
            rows[wanted] = self.arrays[shard][numbers[wanted] - self._starts[shard]]
        return rows


class SideBySide(DecodedRows):
    """A matrix of rows whose columns are arrays of their own: memory maps, `FileRows` or `Shards` of one length."""

    # One column's part of a slot.
    decoder_bytes = 2**20

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

    def pieces(self, start: int, stop: int, most: int, threads: bool = False) -> Iterator[tuple[int, int, Fill]]:
        for at in range(start, stop, most):
            end = min(at + most, stop)
            yield at, end - at, functools.partial(self.fill, slice(at, end))

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        out = np.empty((len(numbers), self.shape[1]), self.dtype)
        self.fill(numbers, out)
        return out

    def fill(self, rows: slice | np.ndarray, out: np.ndarray) -> None:
        """Put some of the rows into an array."""
        position = 0
        for width, array in zip(self._widths, self.arrays, strict=True):
            out[:, position : position + width] = np.asarray(array[rows], self.dtype).reshape(len(out), width)
            position += width


def extents(array: Any) -> tuple[FileRows, ...]:
    """Where in files the rows of an array lie; empty if they do not lie there one after the other, or no longer."""
    if isinstance(array, Shards):
        parts = [extents(part) for part in array.arrays]
        return tuple(part[0] for part in parts) if all(parts) else ()
    if isinstance(array, FileRows):
        return (array,)
    # What was written into a map of mode "c" is in memory only. The file of any map may be gone by now.
    if (
        not isinstance(array, np.memmap)
        or not (array.ndim and array.flags.c_contiguous)
        or array.mode == "c"
        or array.filename is None
        or not Path(array.filename).exists()
    ):
        return ()
    whole = array
    # A slice keeps the offset of the map that it was taken from, so its own is found by its address.
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    offset = int(whole.offset) + array.ctypes.data - whole.ctypes.data
    return (FileRows(array.filename, offset, array.shape, array.dtype),)


def unmapped(array: Any) -> Any:
    """The same rows, read from their files when they are asked for; anything else than memory maps is left as it is.

    What was not in the page cache before is not left there.
    """
    if isinstance(array, Shards):
        return Shards([unmapped(part) for part in array.arrays])
    if isinstance(array, SideBySide):
        return SideBySide([unmapped(part) for part in array.arrays], array.dtype)
    if not isinstance(array, np.memmap) or not (parts := extents(array)):
        return array
    (part,) = parts
    return FileRows(part.path, part.offset, part.shape, part.dtype, drops_cache=is_cold(part.path))


def open_npy(path: Path, argument: str) -> np.ndarray | FileRows:
    """A read-only memory map of a `.npy` file, or `FileRows` where the process may not map that much (`ulimit -v`)."""
    array: np.ndarray | FileRows
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:
        # Of a damaged header NumPy raises whatever Python's parser does.
        if not isinstance(error, OSError) or error.errno != errno.ENOMEM:
            raise ValueError(_unreadable(path, argument, ".npy", error)) from error
        array = open_rows(path)
    if array.ndim == 0:
        raise ValueError(f"`{argument}` is {str(path)!r}, which holds a single number. Expected an array of rows.")
    return array


def joined(arrays: Sequence[Any], what: str) -> Shards:
    """The rows of several files as one array; `what` names them in the error where they do not make one."""
    first = arrays[0]
    for array in arrays:
        if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
            (begun,), (path,) = files_of(first), files_of(array)
            raise UnreadableFile(
                f"{what} must hold rows of one shape and dtype. Received: {first.shape[1:]} "
                f"{first.dtype} in {str(begun)!r}, {array.shape[1:]} {array.dtype} in {str(path)!r}."
            )
    return Shards(arrays)


class Archive:
    """The arrays of a `.npz` file, each read when it is asked for."""

    def __init__(self, path: Path, argument: str):
        self._path = path
        self.names: tuple[str, ...] = self._read(argument, lambda archive: tuple(archive.files))

    def __repr__(self) -> str:
        return f"{str(self._path)!r}"

    def array(self, name: str, argument: str, integers: bool = False) -> np.ndarray:
        """One array by its name."""
        return self._read(argument, lambda archive: archive[name])

    def matrix(self, names: Sequence[str], argument: str, integers: bool = False) -> np.ndarray:
        """The only array of these names."""
        if len(names) != 1:
            raise ValueError(
                f"`{argument}` is {self!r}, which leaves {len(names)} arrays to choose from: {list(names)}. Expected "
                "one, or a model whose inputs have these names. Save it with one array for the inputs, or pass "
                "`numpy.load(...)[name]`."
            )
        return self.array(names[0], argument)

    def _read(self, argument: str, what: Callable[[Any], Any]) -> Any:
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                return what(archive)
        except (ValueError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(_unreadable(self._path, argument, ".npz", error)) from error


def _unreadable(path: Path, argument: str, kind: str, error: Exception) -> str:
    size = path.stat().st_size
    return (
        f"`{argument}` is {str(path)!r} ({size} bytes), which is cut short, holds Python objects or is no {kind} "
        f"file ({error}). Write it again with `numpy.save{'z' if kind == '.npz' else ''}`."
    )
