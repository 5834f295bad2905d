"""Columns of .parquet and .arrow (Feather) files, decoded by pyarrow piece by piece into the same sinks.

Host memory holds one piece for each thread: some pages of a Parquet row group, or one record batch of an Arrow file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MissingExtra, UnreadableFile
from .direct_npy import row_range
from .direct_report import DECODED
from .direct_sinks import Sink, Wait, nothing_to_wait_for
from .direct_tally import Tally
from .direct_threads import share_out
from .pinned import borrowed, view
from .residency import PAGE, cached_bytes, drop_from_cache

TABLES = (".parquet", ".pq", ".arrow", ".feather")
_PARQUET = (".parquet", ".pq")
# Read-ahead of a Parquet column; without one, pyarrow reads a row group's columns whole.
_BUFFER = 2**20


@dataclass(frozen=True)
class _Part:
    """Rows of a file that are decoded in one go, and the row of the whole array (before `start`) where they begin."""

    path: Path
    row_group: int | None
    rows: int
    at: int


@dataclass(frozen=True)
class ArrowRows:
    """Rows and columns of one or several tables, seen as one array.

    Attributes:
        parts: Row groups, or whole Arrow files, that hold any of the rows.
        columns: Their names, in order.
        is_matrix: Whether each column becomes one column of a matrix; else the only column is the array.
        start: The first row wanted, counted over all parts.
        shape: Of the array.
        dtype: Of the array.
    """

    parts: tuple[_Part, ...]
    columns: tuple[str, ...]
    is_matrix: bool
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def select(
    paths: Sequence[Path], columns: str | Sequence[str] | None, start: int = 0, stop: int | None = None
) -> ArrowRows:
    """Look at the tables' metadata and find the rows.

    Raises:
        MissingExtra: pyarrow is not installed.
        UnreadableFile: A file is damaged, a column is not there, of another type than the others', or not of numbers.
        ValueError: There are no such rows.
    """
    pyarrow = _pyarrow()
    parts, kinds = list[_Part](), None
    names: tuple[str, ...] = ()
    for path in paths:
        try:
            schema, counts = _metadata(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise UnreadableFile(f"{path} cannot be read as a table: {str(error).splitlines()[0]}") from error
        names = names or (
            (columns,) if isinstance(columns, str) else tuple(schema.names if columns is None else columns)
        )
        found = [_kind(path, schema, name) for name in names]
        if kinds is not None and found != kinds:
            raise UnreadableFile(
                f"The files do not make one array. Received: columns {_listed(found)} in {path}. "
                f"Expected: {_listed(kinds)}, as in {paths[0]}."
            )
        kinds = found
        for group, rows in counts:
            parts.append(
                _Part(path, group, rows, sum(part.rows for part in parts[-1:]) + (parts[-1].at if parts else 0))
            )
    if not names or kinds is None:
        raise UnreadableFile(f"{paths[0]} has no columns to read. Received: columns={columns!r}.")
    start, stop = row_range(start, stop, sum(part.rows for part in parts))
    is_matrix = not isinstance(columns, str)
    if is_matrix and any(shape for _, shape in kinds):
        raise UnreadableFile(
            f"Columns of lists make no matrix. Received: {_listed(kinds)}. Expected one name (columns={names[0]!r})."
        )
    return ArrowRows(
        tuple(part for part in parts if part.at < stop and part.at + part.rows > start),
        names,
        is_matrix,
        start,
        (stop - start, len(names)) if is_matrix else (stop - start, *kinds[0][1]),
        np.result_type(*(dtype for dtype, _ in kinds)),
    )


def read(rows: ArrowRows, sink: Sink, threads: int, slot_bytes: int, tally: Tally, look: Callable[[], None]) -> None:
    """Decode the rows into a sink.

    Args:
        rows: What to read.
        sink: Where to.
        threads: That decode, at most one for each core and part.
        slot_bytes: Size of each of the two slots of a thread.
        tally: Takes what happens.
        look: Called every now and then.

    Raises:
        UnreadableFile: A column has missing values, or a file is damaged.
    """
    pyarrow = _pyarrow()
    row_bytes = max(math.prod(rows.shape[1:]) * rows.dtype.itemsize, 1)
    rows_per_slot = max(slot_bytes // row_bytes, 1)
    tally.threads = max(min(threads, len(rows.parts), os.cpu_count() or 1), 1)
    cold = {part.path for part in rows.parts if (cached_bytes(part.path) or 0) * 2 < part.path.stat().st_size}
    size = rows_per_slot * row_bytes
    with borrowed(2 * tally.threads * (size + PAGE), pin=sink.wants_pinned) as slab:
        tally.is_pinned = slab.is_pinned
        if slab.why_not:
            tally.add_reason("pageable", f"The slots could not be page-locked: {slab.why_not}.")
        slots = slab.slots(2 * tally.threads, size)

        def worker(number: int, parts: Iterator[_Part]) -> None:
            own = slots[2 * number : 2 * number + 2]
            pending: list[Wait] = [nothing_to_wait_for] * 2
            turn = 0
            try:
                for part in parts:
                    for at, batch in _batches(rows, part, rows_per_slot, tally):
                        turn = 1 - turn
                        with tally.timed("copying"):
                            pending[turn]()
                        block = view(own[turn], 0, (batch.num_rows, *rows.shape[1:]), rows.dtype)
                        with tally.timed("reading"):
                            _decode(rows, part.path, batch, block)
                        with tally.timed("copying"):
                            pending[turn] = sink.write((at,), block)
                        tally.add_bytes(DECODED, block.nbytes)
                    if part.path in cold:
                        _drop(part.path)
            except (pyarrow.ArrowException, OSError) as error:
                raise UnreadableFile(f"A table cannot be read: {str(error).splitlines()[0]}") from error
            finally:
                with tally.timed("copying"):
                    for wait in pending:
                        wait()

        share_out(rows.parts, worker, tally.threads, look)
    pyarrow.default_memory_pool().release_unused()


def _batches(rows: ArrowRows, part: _Part, most: int, tally: Tally) -> Iterator[tuple[int, Any]]:
    """The wanted rows of a part in pieces of at most so many, each with its place in the array."""
    before = part.at
    stop = rows.start + rows.shape[0]
    pieces = _decoded(rows, part, most)
    while True:
        with tally.timed("reading"):
            batch = next(pieces, None)
        if batch is None:
            return
        first, last = max(rows.start - before, 0), min(stop - before, batch.num_rows)
        for begin in range(first, last, most):
            yield before + begin - rows.start, batch.slice(begin, min(most, last - begin))
        before += batch.num_rows


def _decoded(rows: ArrowRows, part: _Part, most: int) -> Iterator[Any]:
    if part.row_group is None:
        ipc = _pyarrow().ipc
        with ipc.open_file(_pyarrow().OSFile(str(part.path))) as reader:
            fields = [reader.schema.get_field_index(name) for name in rows.columns]
        options = ipc.IpcReadOptions(included_fields=sorted(set(fields)))
        with ipc.open_file(_pyarrow().OSFile(str(part.path)), options=options) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        return
    from pyarrow import parquet

    with parquet.ParquetFile(part.path, buffer_size=_BUFFER, pre_buffer=False) as file:
        yield from file.iter_batches(most, row_groups=[part.row_group], columns=list(rows.columns), use_threads=False)


def _decode(rows: ArrowRows, path: Path, batch: Any, block: np.ndarray) -> None:
    for number, name in enumerate(rows.columns):
        column = batch.column(name)
        column = getattr(column, "storage", column)
        values = column if block.ndim == 1 or rows.is_matrix else column.flatten()
        if column.null_count or values.null_count:
            raise UnreadableFile(
                f"Column {name!r} of {path} has missing values. Expected none: fill or drop them before training."
            )
        target = block[:, number] if rows.is_matrix else block
        target[...] = values.to_numpy(zero_copy_only=False).reshape(target.shape)


def _metadata(path: Path) -> tuple[Any, list[tuple[int | None, int]]]:
    """The schema, and the rows of each row group; of an Arrow file, those of the whole."""
    if path.suffix in _PARQUET:
        from pyarrow import parquet

        with parquet.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            return file.schema_arrow, [(group, file.metadata.row_group(group).num_rows) for group in groups]
    from pyarrow import dataset

    table = dataset.dataset(path, format="ipc")
    return table.schema, [(None, table.count_rows())]


def _kind(path: Path, schema: Any, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and the shape of one row of a column."""
    if schema.get_field_index(name) < 0:
        raise UnreadableFile(f"{path} has no column {name!r}. Its columns are {', '.join(schema.names)}.")
    pyarrow = _pyarrow()
    column = values = schema.field(name).type
    shape: tuple[int, ...] = ()
    if isinstance(column, pyarrow.FixedShapeTensorType):
        shape, values = tuple(column.shape), column.value_type
    elif pyarrow.types.is_fixed_size_list(column):
        shape, values = (column.list_size,), column.value_type
    types = pyarrow.types
    if not (types.is_integer(values) or types.is_floating(values) or types.is_boolean(values)):
        raise UnreadableFile(
            f"Column {name!r} of {path} holds no numbers of a fixed width. Received: type {column}. Expected booleans, "
            "integers, floats, or lists of a fixed size of them."
        )
    return np.dtype(values.to_pandas_dtype()), shape


def _listed(kinds: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype}{list(shape) if shape else ''}" for dtype, shape in kinds)


def _drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        drop_from_cache(descriptor)
    finally:
        os.close(descriptor)


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError as error:
        raise MissingExtra(
            "Parquet and Arrow files need pyarrow, which is not installed. Install it: pip install flatout[data]"
        ) from error
    return pyarrow
