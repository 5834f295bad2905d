"""Tables in files: row groups of Parquet files and record batches of Arrow files, read piece by piece.

Several files are one table with the schema of the first; `key=value` folders are columns. Nothing but metadata is read
before somebody asks for rows, and then one piece at a time is in memory: some pages of a row group, or a record batch.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flatout.base.errors import MissingExtra
from flatout.data.files.file_rows import identity_of, is_cold

from .table_files import TableFile, arrow_batches, footer_of, mapped, null_count, read_rows

SUFFIXES = (".parquet", ".feather", ".arrow")


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
        import pyarrow

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
        import pyarrow

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
    import pyarrow

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
    from pyarrow import dataset

    hive = {} if folder is None else {"partitioning": "hive", "partition_base_dir": str(folder)}
    table = dataset.dataset([str(path) for path in paths], format="parquet", **hive)
    files = []
    for fragment in table.get_fragments():
        path = Path(fragment.path)
        identity = identity_of(path.stat())
        footer = footer_of(path, identity)
        lengths = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        constants = dataset.get_partition_keys(fragment.partition_expression)
        files.append(TableFile(path, "parquet", lengths, constants, identity, is_cold(path)))
    return files, table.schema


def _arrow(paths: Sequence[Path]) -> tuple[list[TableFile], Any]:
    import pyarrow

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
