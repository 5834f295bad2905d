"""Tables in files: row groups of Parquet files and record batches of Arrow files, read piece by piece.

Several files are one table with the schema of the first; `key=value` folders are columns. Nothing but metadata is read
before somebody asks for rows, and then one piece at a time is in memory: some pages of a row group, or a record batch.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatout.base.errors import MissingExtra
from flatout.base.when_used import pyarrow
from flatout.data.files.file_rows import Identity, identity_of, is_cold, require_unchanged
from flatout.data.files.page_cache import drop_from_cache

SUFFIXES = (".parquet", ".feather", ".arrow")
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
    footer = footer_of(file.path, file.identity)
    buffer_size = max(min(_BUFFER, _BUFFERS // max(len(names), 1)), 2**16)
    with pyarrow.parquet.ParquetFile(file.path, metadata=footer, buffer_size=buffer_size, pre_buffer=False) as opened:
        there = set(opened.schema_arrow.names) - set(file.constants)
        columns = [name for name in names if name in there]
        yield from opened.iter_batches(most, row_groups=list(groups), columns=columns, use_threads=threads)


def arrow_batches(
    source: Callable[[], Any], form: str, names: Sequence[str], numbers: Sequence[int] | None = None
) -> Iterator[Any]:
    """Some columns, or all if none is named, of record batches of an Arrow file; a stream gives all batches."""
    opened = {"arrow": pyarrow.ipc.open_file, "stream": pyarrow.ipc.open_stream}[form]
    with opened(source()) as reader:
        fields = sorted(reader.schema.get_field_index(name) for name in names)
    # An empty list would mean all of them.
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields, use_threads=False) if fields else None
    with opened(source(), options=options) as reader:
        if form == "stream":
            yield from reader
            return
        for number in range(reader.num_record_batches) if numbers is None else numbers:
            yield reader.get_batch(number)


@functools.lru_cache(maxsize=_FOOTERS)
def footer_of(path: Path, identity: Identity) -> Any:
    return pyarrow.parquet.read_metadata(path)


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


class Tables:
    """One table in one or several files, in the order of their rows; errors name it by the `argument` that it is."""

    def __init__(self, files: Sequence[TableFile], schema: Any, argument: str):
        self.files = tuple(files)
        self.schema = schema
        self._argument = argument
        self._starts = list(itertools.accumulate((file.rows for file in files), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(file.path for file in self.files)

    def starts(self) -> Iterator[int]:
        """The rows at which reading can begin without decoding any before them."""
        for file, start in zip(self.files, self._starts, strict=False):
            yield from itertools.accumulate(file.lengths[:-1], initial=start)

    def batches(self, names: Sequence[str], start: int, stop: int, most: int, threads: bool = False) -> Iterator[Any]:
        """The rows `start` to `stop - 1` of some columns, in Arrow record batches of at most so many.

        With `threads`, pyarrow decodes several columns at once.
        """
        first = max(bisect.bisect_right(self._starts, start) - 1, 0)
        try:
            with arrow_errors(self.paths, self._argument):
                for file, begin in zip(self.files[first:], self._starts[first:], strict=False):
                    low, high = max(start - begin, 0), min(stop - begin, file.rows)
                    if low < high:
                        for batch in read_rows(file, names, low, high, most, threads):
                            yield self._aligned(batch, names, file.constants)
        finally:
            # pyarrow would keep it for the next time.
            pyarrow.default_memory_pool().release_unused()

    def null_count(self, name: str) -> int | None:
        """How many values of a column are missing, at any level; None if only its values can tell."""
        with arrow_errors(self.paths, self._argument):
            counts = [null_count(file, name) for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    def _aligned(self, batch: Any, names: Sequence[str], constants: dict[str, Any]) -> Any:
        """The columns in the types of the whole table's; a column that a file lacks has no values there."""
        arrays = []
        for name in names:
            kind, index = self.schema.field(name).type, batch.schema.get_field_index(name)
            if name in constants:
                array = pyarrow.repeat(pyarrow.scalar(constants[name], kind), batch.num_rows)
            elif index < 0:
                array = pyarrow.nulls(batch.num_rows, kind)
            else:
                array = batch.column(index)
                array = array if array.type == kind else array.cast(kind)
            arrays.append(array)
        return pyarrow.record_batch(arrays, list(names))


def open_tables(paths: Sequence[Path], argument: str, folder: Path | None = None) -> Tables:
    """Look at `.parquet`, `.feather` or `.arrow` files of one schema, in the order of their rows.

    `key=value` folders between a `folder` above all of them and Parquet files are columns too.
    """
    try:
        import pyarrow.dataset
        import pyarrow.ipc
        import pyarrow.parquet  # noqa: F401 (so that nothing is missing later)
    except ImportError as error:
        raise MissingExtra(
            f"`{argument}` is {str(paths[0])!r}, which is read by pyarrow. It is not installed: "
            "pip install flatout[data]"
        ) from error
    with arrow_errors(paths, argument):
        files, schema = _parquet(paths, folder) if paths[0].suffix.lower() == ".parquet" else _arrow(paths)
    return Tables(files, schema, argument)


@contextlib.contextmanager
def arrow_errors(paths: Sequence[Path], argument: str) -> Iterator[None]:
    """Pyarrow's errors as one sentence that names the argument and the file."""
    try:
        yield
    except pyarrow.ArrowMemoryError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        others = f" or one of {len(paths) - 1} beside it" if len(paths) > 1 else ""
        raise ValueError(
            f"`{argument}` is {str(paths[0])!r}{others}, which pyarrow cannot read ({error}). Write it again."
        ) from error


def _parquet(paths: Sequence[Path], folder: Path | None) -> tuple[list[TableFile], Any]:
    hive = {} if folder is None else {"partitioning": "hive", "partition_base_dir": str(folder)}
    table = pyarrow.dataset.dataset([str(path) for path in paths], format="parquet", **hive)
    files = []
    for fragment in table.get_fragments():
        path = Path(fragment.path)
        identity = identity_of(path.stat())
        footer = footer_of(path, identity)
        lengths = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        constants = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
        files.append(TableFile(path, "parquet", lengths, constants, identity, is_cold(path)))
    return files, table.schema


def _arrow(paths: Sequence[Path]) -> tuple[list[TableFile], Any]:
    files: list[TableFile] = []
    schema: Any = None
    for path in paths:
        source, identity = mapped(path), identity_of(path.stat())
        try:
            reader = pyarrow.ipc.open_file(source)
            form = "arrow"
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = pyarrow.ipc.open_stream(source)
            form = "stream"
        if schema is not None and not reader.schema.equals(schema):
            raise pyarrow.ArrowInvalid(f"{path} has the schema {reader.schema}, and {paths[0]} has {schema}")
        schema = reader.schema
        counted = schema.names[:1]
        lengths = tuple(batch.num_rows for batch in arrow_batches(functools.partial(mapped, path), form, counted))
        lengths = lengths if form == "arrow" else (sum(lengths),)
        files.append(TableFile(path, form, lengths, {}, identity, is_cold(path)))
    return files, schema
