"""Columns of Arrow files that need no decoding: fixed-width, uncompressed, nothing missing.

Their values lie in the file as they lie in memory, record batch after record batch, so that rows have places in the
file as those of a `.npy` file have: they can be mapped, read by number in any order, and read straight to a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flatout.data.files.npy_files import Shards, SideBySide

from .frame_columns import common_dtype
from .stored_tables import Tables
from .table_columns import TableColumn
from .table_files import TableFile, arrow_batches


def stored_rows(tables: Tables, columns: Sequence[TableColumn], is_matrix: bool) -> Any:
    """Columns as arrays over the files themselves; None if any of them has to be decoded."""
    is_coded = any(column.categories is not None for column in columns)
    if is_coded or not len(tables) or any(file.form == "parquet" for file in tables.files):
        return None
    try:
        arrays = [_stored(tables, column) for column in columns]
    except (ValueError, OSError):
        # Arrow says that values are no plain numbers; or the file is larger than this process may map (`ulimit -v`).
        return None
    return SideBySide(arrays, common_dtype([array.dtype for array in arrays])) if is_matrix else arrays[0]


def _stored(tables: Tables, column: TableColumn) -> Any:
    parts = [part for file in tables.files if file.rows for part in _parts(file, column)]
    return parts[0] if len(parts) == 1 else Shards(parts)


def _parts(file: TableFile, column: TableColumn) -> Iterator[np.ndarray]:
    """The rows of each record batch, as a slice of the file.

    Raises:
        ValueError: They are not stored as such.
    """
    from pyarrow import BufferReader, py_buffer

    whole = np.memmap(file.path, np.uint8, mode="r")
    # All columns: to read some of them pyarrow copies them out of the file.
    for batch in arrow_batches(lambda: BufferReader(py_buffer(whole)), file.form, []):
        values = batch.column(column.name)
        is_permuted = getattr(values.type, "permutation", None) is not None
        while hasattr(values.type, "value_field") or hasattr(values, "storage"):
            values = values.storage if hasattr(values, "storage") else values.flatten()
        numbers = values.to_numpy(zero_copy_only=True)
        offset = numbers.ctypes.data - whole.ctypes.data
        if is_permuted or numbers.dtype != column.dtype or not 0 <= offset < whole.nbytes:
            raise ValueError("The numbers are not those of the file.")
        if batch.num_rows:
            yield whole[offset : offset + numbers.nbytes].view(column.dtype).reshape(-1, *column.shape)
