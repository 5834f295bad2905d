"""Rows of files in memory as a whole, before the first step: on the device, on the host, or in a temporary file.

A Parquet file gives its rows from the beginning to the end. Training takes them in Keras' own order, which is another
one in every epoch, so that each row must have a place. The temporary file has no name: it takes disk space until
the rows are no longer used, or the process is gone.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.sizes import as_size
from flatout.data.columnar.table_rows import TableRows
from flatout.data.device.sinks import HostSink, MakeSink, Wait, nothing_to_wait_for
from flatout.data.direct.load import load
from flatout.data.direct.load_report import DirectReport
from flatout.data.files.file_rows import DecodedRows, FileRows
from flatout.data.files.npy_files import extents, unmapped
from flatout.data.stream.chunks import leaves_of, packed

Rows = list[FileRows] | DecodedRows
Placed = tuple[Any, tuple[DirectReport, ...]]


def lies_in_files(inputs: Any) -> bool:
    """Whether some of the arrays are rows of files, which need not pass through the host's heap."""
    return any(_in_files(leaf) is not None for leaf in leaves_of(inputs))


def table_bytes(inputs: Any) -> int:
    """Bytes of the arrays whose rows have no places to be read from by number."""
    return sum(leaf.nbytes for leaf in leaves_of(inputs) if _table(leaf) is not None)


def place_files(inputs: Any, place: Callable[[Any], Any], sinks: Iterable[MakeSink]) -> Placed:
    """Put arrays on the device, those in files by reading the files to sinks; and how those came there."""
    return _loaded(inputs, _in_files, sinks, place)


def with_places(inputs: Any, on_disk: bool) -> Placed:
    """The same arrays, tables decoded into memory or a temporary file; and how the bytes of each came there."""
    folder = folder_for_rows()
    needed, free = table_bytes(inputs), shutil.disk_usage(folder).free
    if on_disk and needed > free:
        raise OSError(
            errno.ENOSPC,
            f"Rows in shuffled order are read from a temporary file, which takes {as_size(needed)}, and "
            f"{str(folder)!r} has {as_size(free)} left. Set TMPDIR to a folder with more, or pass shuffle=False",
        )
    make_sink = functools.partial(FileSink, folder=folder) if on_disk else HostSink
    return _loaded(inputs, _table, itertools.repeat(make_sink), lambda leaf: leaf)


def _loaded(
    inputs: Any, rows_of: Callable[[Any], Rows | None], sinks: Iterable[MakeSink], otherwise: Callable[[Any], Any]
) -> Placed:
    reports: list[DirectReport] = []

    def placed(leaf: Any, make_sink: MakeSink) -> Any:
        rows = rows_of(leaf)
        if rows is None:
            return otherwise(leaf)
        array, report = load(rows, make_sink)
        reports.append(report)
        return array

    return packed(inputs, list(map(placed, leaves_of(inputs), sinks))), tuple(reports)


def _in_files(leaf: Any) -> Rows | None:
    """Where the rows of an array lie in files, or what decodes them."""
    if isinstance(leaf, DecodedRows):
        # Pages of a map would count as this process' memory.
        rows: DecodedRows = unmapped(leaf)
        return rows
    return [part for part in extents(leaf) if part.shape[0]] or None


def _table(leaf: Any) -> TableRows | None:
    return leaf if isinstance(leaf, TableRows) else None


class FileSink(HostSink):
    """Rows in a file without a name, at their places."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0, *, folder: Path):
        self._shape, self._dtype = shape, dtype
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (lives as long as the rows)
        # Not less than there will be, so that a full disk is noticed here and not in a page fault.
        os.posix_fallocate(self._file.fileno(), 0, max(shape[0] * self._row_bytes, 1))

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        rest, position = block.reshape(-1).view(np.uint8).data, at[0] * self._row_bytes
        while rest:
            count = os.pwrite(self._file.fileno(), rest, position)
            rest, position = rest[count:], position + count
        return nothing_to_wait_for

    def finish(self) -> np.memmap | FileRows:
        try:
            return np.memmap(self._file, self._dtype, mode="r", shape=self._shape)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
        # More than this process may map (`ulimit -v`).
        path = f"/proc/self/fd/{self._file.fileno()}"
        return FileRows(path, 0, self._shape, self._dtype, keeps=self._file)


def folder_for_rows() -> Path:
    """Where temporary files of rows are made: `TMPDIR`, or `/var/tmp`."""
    is_chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    # What is large belongs there: /tmp is in memory on many systems.
    large = Path("/var/tmp")
    return large if not is_chosen and os.access(large, os.W_OK) else Path(tempfile.gettempdir())
