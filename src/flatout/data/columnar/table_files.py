"""One file of a table: its row groups or record batches, read piece by piece, and what its metadata tell."""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.data.files.file_rows import Identity, require_unchanged
from flatout.data.files.page_cache import drop_from_cache

# Read-ahead of a Parquet column; without one, pyarrow reads a row group's columns whole.
_BUFFER, _BUFFERS = 2**20, 16 * 2**20
# Of the files last read; a footer of many row groups takes long to parse.
_FOOTERS = 8


@dataclass(frozen=True)
class TableFile:
    """A file of a table.

    Attributes:
        form: `"parquet"`, `"arrow"` (with a footer, as feather has it) or `"stream"`.
        lengths: Rows of each row group or record batch; of a stream, those of all.
        constants: Columns that its folders name, each with its value.
        drops_cache: Leave nothing of it in the page cache.
    """

    path: Path
    form: str
    lengths: tuple[int, ...]
    constants: dict[str, Any]
    identity: Identity
    drops_cache: bool

    @property
    def rows(self) -> int:
        return sum(self.lengths)


def mapped(path: Path) -> Any:
    """A file to look into without reading it, or, where the process may not map that much, by reading it."""
    import pyarrow

    try:
        return pyarrow.memory_map(str(path))
    except (OSError, pyarrow.ArrowMemoryError):
        return pyarrow.OSFile(str(path))


def read_rows(file: TableFile, names: Sequence[str], low: int, high: int, most: int, threads: bool) -> Iterator[Any]:
    """The rows `low` to `high - 1` of a file."""
    require_unchanged(file.path, file.path.stat(), file.identity)
    starts = list(itertools.accumulate(file.lengths, initial=0))
    first, last = bisect.bisect_right(starts, low) - 1, bisect.bisect_left(starts, high)
    if file.form == "parquet":
        batches = _parquet_batches(file, names, range(first, last), most, threads)
    else:
        import pyarrow

        numbers = range(first, last) if file.form == "arrow" else None
        # Not mapped: pages of a map count as this process' memory once they are touched.
        batches = arrow_batches(lambda: pyarrow.OSFile(str(file.path)), file.form, names, numbers)
    at = starts[first]
    for batch in batches:
        begin, end = max(low - at, 0), min(high - at, batch.num_rows)
        for row in range(begin, end, most):
            yield batch.slice(row, min(most, end - row))
        before, at = at, at + batch.num_rows
        has_passed_a_part = bisect.bisect_right(starts, at) > bisect.bisect_right(starts, before)
        if file.drops_cache and (has_passed_a_part or at >= high):
            with file.path.open("rb") as opened:
                drop_from_cache(opened.fileno())
        if at >= high:
            return


def _parquet_batches(file: TableFile, names: Sequence[str], groups: range, most: int, threads: bool) -> Iterator[Any]:
    from pyarrow import parquet

    footer = footer_of(file.path, file.identity)
    buffer_size = max(min(_BUFFER, _BUFFERS // max(len(names), 1)), 2**16)
    with parquet.ParquetFile(file.path, metadata=footer, buffer_size=buffer_size, pre_buffer=False) as opened:
        there = set(opened.schema_arrow.names) - set(file.constants)
        columns = [name for name in names if name in there]
        yield from opened.iter_batches(most, row_groups=list(groups), columns=columns, use_threads=threads)


def arrow_batches(
    source: Callable[[], Any], form: str, names: Sequence[str], numbers: Sequence[int] | None = None
) -> Iterator[Any]:
    """Some columns, or all if none is named, of record batches of an Arrow file; a stream gives all batches."""
    from pyarrow import ipc

    opened = {"arrow": ipc.open_file, "stream": ipc.open_stream}[form]
    with opened(source()) as reader:
        fields = sorted(reader.schema.get_field_index(name) for name in names)
    # An empty list would mean all of them.
    options = ipc.IpcReadOptions(included_fields=fields, use_threads=False) if fields else None
    with opened(source(), options=options) as reader:
        if form == "stream":
            yield from reader
            return
        for number in range(reader.num_record_batches) if numbers is None else numbers:
            yield reader.get_batch(number)


@functools.lru_cache(maxsize=_FOOTERS)
def footer_of(path: Path, identity: Identity) -> Any:
    from pyarrow import parquet

    return parquet.read_metadata(path)


def null_count(file: TableFile, name: str) -> int | None:
    """How many values of a column are missing in a file, at any level; None if only its values can tell."""
    if name in file.constants:
        return 0 if file.constants[name] is not None else file.rows
    if file.form != "parquet":
        batches = arrow_batches(functools.partial(mapped, file.path), file.form, [name])
        return sum(_nulls(batch.column(0)) for batch in batches)
    leaves = _leaves(file.path, file.identity).get(name, [])
    if len(leaves) != 1:
        return None if leaves else file.rows
    footer, found = footer_of(file.path, file.identity), 0
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(leaves[0]).statistics
        if statistics is None or not statistics.has_null_count:
            return None
        found += statistics.null_count
    return found


@functools.lru_cache(maxsize=_FOOTERS)
def _leaves(path: Path, identity: Identity) -> Mapping[str, list[int]]:
    """The numbers of the Parquet columns that hold a column: several for a structure, or where names have dots."""
    schema, found = footer_of(path, identity).schema, collections.defaultdict[str, list[int]](list)
    for number in range(len(schema)):
        for prefix in itertools.accumulate(schema.column(number).path.split("."), "{}.{}".format):
            found[prefix].append(number)
    return found


def _nulls(array: Any) -> int:
    """Missing values, and those in lists."""
    array = getattr(array, "storage", array)
    return int(array.null_count) + (_nulls(array.flatten()) if hasattr(array.type, "value_field") else 0)
