"""Columns of a table in files as one array, decoded when its rows are asked for.

Rows that follow each other are decoded once: a reader that goes on where it stopped finds the file open there. Rows
in any other order are for `placing`.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.when_used import pyarrow
from flatout.data.files.file_rows import DecodedRows, Fill
from flatout.data.files.npy_files import Shards, SideBySide

from .frame_columns import Frame, common_dtype
from .stored_tables import TableFile, Tables, arrow_batches
from .table_columns import TableColumn, describe_columns

# What pyarrow takes for a column of a Parquet file: a page, decompressed too, its dictionary and what is read ahead.
_COLUMN_BYTES = 3 * 2**20


class TableRows(DecodedRows):
    """The rows `first` to `stop - 1` of a table as an array: of one column, or a matrix of several side by side.

    Attributes:
        decoded_bytes: How much has been given out so far.
    """

    def __init__(
        self, tables: Tables, fields: Sequence[TableColumn], is_matrix: bool, first: int = 0, stop: int | None = None
    ):
        self.tables = tables
        self.fields = tuple(fields)
        self._is_matrix = is_matrix
        self._first = first
        self._stop = len(tables) if stop is None else stop
        row = (sum(math.prod(column.shape) for column in fields),) if is_matrix else self.fields[0].shape
        self.shape = (self._stop - first, *row)
        self.dtype = common_dtype([column.dtype for column in fields])
        self.decoded_bytes = 0
        self._lock = threading.Lock()
        self._next = -1
        self._pieces: Iterator[Any] = iter(())
        self._rest: Any = None

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.tables.paths

    @property
    def description(self) -> str:
        """What the rows are, but for what is in the files."""
        return f"{self.fields} {self._is_matrix} {self._first} {self._stop}"

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        low, high = (int(numbers.min()), int(numbers.max()) + 1) if numbers.size else (0, 0)
        return self._range(low, high)[numbers - low]

    def part(self, start: int, stop: int) -> TableRows:
        return TableRows(self.tables, self.fields, self._is_matrix, self._first + start, self._first + stop)

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill an array with the rows from `start` on, which are best those after the last that were asked for."""
        with self._lock:
            if start != self._next:
                self._close()
                self._pieces = self._batches(start, len(self), self.piece_rows, threads=True)
            # Until all went well nobody knows where the file stands.
            self._next, done = -1, 0
            while done < len(out):
                batch = self._rest if self._rest is not None else next(self._pieces)
                count = min(batch.num_rows, len(out) - done)
                self._decode(batch.slice(0, count), out[done : done + count])
                self._rest = batch.slice(count) if count < batch.num_rows else None
                done += count
            self._next = start + done
            if self._next == len(self):
                self._close()

    def close(self) -> None:
        """Close the file that sequential reading has open."""
        with self._lock:
            self._close()

    def tasks(self, most: int) -> list[tuple[int, int]]:
        bounds = [0]
        for start in self.tables.starts():
            row = start - self._first
            if row < len(self) and row - bounds[-1] >= most:
                bounds.append(row)
        return list(zip(bounds, [*bounds[1:], len(self)], strict=True)) if len(self) else []

    @property
    def decoder_bytes(self) -> int:
        batches = [max(file.lengths, default=0) for file in self.tables.files if file.form != "parquet"]
        return max(_COLUMN_BYTES * len(self.fields), max(batches, default=0) * self.row_bytes)

    def pieces(self, start: int, stop: int, most: int, threads: bool = False) -> Iterator[tuple[int, int, Fill]]:
        at = start
        for batch in self._batches(start, stop, most, threads):
            yield at, batch.num_rows, functools.partial(self._decode, batch)
            at += batch.num_rows

    def _batches(self, start: int, stop: int, most: int, threads: bool) -> Iterator[Any]:
        names = [column.name for column in self.fields]
        return self.tables.batches(names, self._first + start, self._first + stop, most, threads=threads)

    def _close(self) -> None:
        if hasattr(self._pieces, "close"):
            self._pieces.close()
        self._next, self._pieces, self._rest = -1, iter(()), None

    def _decode(self, batch: Any, out: np.ndarray) -> None:
        # By way of the array's dtype: from integers to float64 to float32 is not the same as to float32.
        arrays = [
            column.numbers(array).astype(self.dtype, copy=False)
            for column, array in zip(self.fields, batch.columns, strict=True)
        ]
        if self._is_matrix:
            SideBySide(arrays, self.dtype).fill(slice(None), out)
        else:
            out[...] = arrays[0]
        self.decoded_bytes += batch.num_rows * self.row_bytes


class TableFrame(Frame):
    """Columns of tables in files, as arrays that are read when they are used."""

    def __init__(self, tables: Tables, model: Any):
        super().__init__(tables.schema.names, model)
        self._tables = tables

    def _rows(self, names: list[str], argument: str, integers: bool, is_matrix: bool) -> Any:
        columns = describe_columns(self._tables, names, argument, integers, self._model)
        stored = _stored_rows(self._tables, columns, is_matrix)
        return TableRows(self._tables, columns, is_matrix) if stored is None else stored


def _stored_rows(tables: Tables, columns: Sequence[TableColumn], is_matrix: bool) -> Any:
    """Columns as arrays over the files themselves; None if any of them has to be decoded.

    Values of Arrow files that are fixed-width, uncompressed and not missing lie there as they lie in memory, record
    batch after record batch: such rows can be mapped, read by number in any order, and read straight to a device.
    """
    is_coded = any(column.categories is not None for column in columns)
    if is_coded or not len(tables) or any(file.form == "parquet" for file in tables.files):
        return None
    try:
        parts = [[part for file in tables.files if file.rows for part in _parts(file, column)] for column in columns]
    except (ValueError, OSError):
        # Arrow says that values are no plain numbers; or the file is larger than this process may map (`ulimit -v`).
        return None
    arrays = [each[0] if len(each) == 1 else Shards(each) for each in parts]
    return SideBySide(arrays, common_dtype([array.dtype for array in arrays])) if is_matrix else arrays[0]


def _parts(file: TableFile, column: TableColumn) -> Iterator[np.ndarray]:
    """The rows of each record batch, as a slice of the file.

    Raises:
        ValueError: They are not stored as such.
    """
    whole = np.memmap(file.path, np.uint8, mode="r")
    # All columns: to read some of them pyarrow copies them out of the file.
    for batch in arrow_batches(lambda: pyarrow.BufferReader(pyarrow.py_buffer(whole)), file.form, []):
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
