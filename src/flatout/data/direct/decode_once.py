"""Rows of tables by number: decoded once, into host memory or into a temporary file, to be read in any order.

A Parquet file gives its rows from the beginning to the end. Training takes them in Keras' own order, which is another
one in every epoch, so that each row must have a place. The temporary file has no name: it takes disk space until
the rows are no longer used, or the process is gone.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.sizes import as_size
from flatout.data.columnar.table_rows import TableRows
from flatout.data.device.sinks import DeviceMemory, HostSink, Wait, nothing_to_wait_for
from flatout.data.files.file_rows import FileRows

from .load import load
from .load_report import DirectReport


class FileSink:
    """Rows of an array into a file without a name, at their places; see `HostSink`."""

    wants_pinned = False
    device_memory: DeviceMemory | None = None

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


def table_bytes(inputs: Any) -> int:
    """Bytes of the arrays whose rows have no places to be read from by number."""
    from keras import tree

    return sum(leaf.nbytes for leaf in tree.flatten(inputs) if isinstance(leaf, TableRows))


def with_places(inputs: Any, on_disk: bool) -> tuple[Any, list[DirectReport]]:
    """The same arrays, tables decoded into memory or a temporary file; and how the bytes of each came there."""
    from keras import tree

    folder, reports = folder_for_rows(), list[DirectReport]()
    needed, free = table_bytes(inputs), shutil.disk_usage(folder).free
    if on_disk and needed > free:
        raise OSError(
            errno.ENOSPC,
            f"Rows in shuffled order are read from a temporary file, which takes {as_size(needed)}, and "
            f"{str(folder)!r} has {as_size(free)} left. Set TMPDIR to a folder with more, or pass shuffle=False",
        )

    make_sink = functools.partial(FileSink, folder=folder) if on_disk else HostSink

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, TableRows):
            return leaf
        rows, report = load(leaf, make_sink)
        reports.append(report)
        return rows

    return tree.map_structure(placed, inputs), reports
