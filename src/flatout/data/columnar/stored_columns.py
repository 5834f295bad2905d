"""Columns of Arrow files that need no decoding: fixed-width, uncompressed, nothing missing.

Their values lie in the file as they lie in memory, record batch after record batch, so that rows have places in the
file as those of a `.npy` file have: they can be mapped, read by number in any order, and read straight to a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flatout.data.files.npy_files import Shards
from flatout.data.files.side_by_side import SideBySide

from .frame_columns import common_dtype
from .stored_tables import Tables
from .table_columns import TableColumn
from .table_files import TableFile, arrow_batches


def stored_rows(tables: Tables, columns: Sequence[TableColumn], is_matrix: bool) -> Any:
    """Columns as arrays over the files themselves; None if any of them has to be decoded."""
    if not len(tables) or any(file.form == "parquet" for file in tables.files):
        return None
    arrays = []
    for column in columns:
        array = _stored(tables, column)
        if array is None:
            return None
        arrays.append(array)
    return SideBySide(arrays, common_dtype([array.dtype for array in arrays])) if is_matrix else arrays[0]


def _stored(tables: Tables, column: TableColumn) -> Any:
    if column.categories is not None:
        return None
    parts: list[np.ndarray] = []
    for file in tables.files:
        try:
            whole = np.memmap(file.path, np.uint8, mode="r") if file.rows else np.empty(0, np.uint8)
        except OSError:
            # More than this process may map (`ulimit -v`).
            return None
        for part in _parts(whole, file, column):
            if part is None:
                return None
            parts.append(part)
    return parts[0] if len(parts) == 1 else Shards(parts)


def _parts(whole: np.ndarray, file: TableFile, column: TableColumn) -> Iterator[np.ndarray | None]:
    """The rows of each record batch, as a slice of the file; None if they are not stored as such."""
    from pyarrow import ArrowInvalid, BufferReader, py_buffer

    if not file.rows:
        return
    # All columns: to read some of them pyarrow copies them out of the file.
    for batch in arrow_batches(lambda: BufferReader(py_buffer(whole)), file.form, []):
        values = batch.column(column.name)
        if getattr(values.type, "permutation", None) is not None:
            yield None
            return
        while hasattr(values.type, "value_field") or hasattr(values, "storage"):
            values = values.storage if hasattr(values, "storage") else values.flatten()
        try:
            numbers = values.to_numpy(zero_copy_only=True)
        except ArrowInvalid:
            # Bits, or something is missing.
            yield None
            return
        offset = numbers.ctypes.data - whole.ctypes.data
        if numbers.dtype != column.dtype or not 0 <= offset < whole.nbytes:
            yield None
            return
        if batch.num_rows:
            yield whole[offset : offset + numbers.nbytes].view(column.dtype).reshape(-1, *column.shape)
