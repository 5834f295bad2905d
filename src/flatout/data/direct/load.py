"""From files to the device with flat host memory: `load` reads .npy files and tables into a sink.

The engines: cuFile and KvikIO where GPUDirect Storage is really there, threads with page-locked slots everywhere else.
What is encoded in its file is decoded on the host, piece by piece.
The report says which one ran, which way the bytes went and why a faster one was not taken.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from flatout.base.errors import FlatoutError, InvalidOption, UnreadableFile
from flatout.data.device.sinks import GpuDirectFailed, HostSink, MakeSink, Sink
from flatout.data.files.file_rows import FileRows, open_rows
from flatout.data.files.lazy_rows import DecodedRows
from flatout.data.files.npy_files import Shards, joined
from flatout.data.files.page_cache import MemoryWatch, cached_bytes

from . import cufile_reader as direct_cufile
from . import decoded_rows as direct_decoded
from . import kvikio_reader as direct_kvikio
from . import posix_reader as direct_posix
from .load_report import DirectReport
from .reader_threads import thread_count
from .tally import Tally

Engine = Literal["auto", "posix", "cufile", "kvikio"]
Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Sequence[FileRows] | DecodedRows

# Two slots for each of eight threads are 192 MB, which is all the host memory that a load takes.
SLOT_BYTES = 12 * 2**20
_GPU_DIRECT = {"cufile": direct_cufile, "kvikio": direct_kvikio}


def load(
    source: Source,
    make_sink: MakeSink = HostSink,
    *,
    start: int = 0,
    stop: int | None = None,
    engine: Engine = "auto",
    threads: int | None = None,
    slot_bytes: int = SLOT_BYTES,
) -> tuple[Any, DirectReport]:
    """Load the rows of a file, or of several files that are one array.

    Args:
        source: The path of a .npy file or several of them, whose rows follow each other; or arrays as they lie in
            files; or rows that are decoded (`TableRows`).
        make_sink: Allocates the array: `HostSink`, or a backend's sink (`flatout.engines.torch.sink.TorchSink`, ...).
        start: The first row.
        stop: The row after the last; by default all rows.
        engine: `"auto"`, or `"posix"`, `"cufile"`, `"kvikio"` to insist on one.
        threads: That read; eight by default, at most four for each core.
        slot_bytes: Host memory of a slot; each thread has two.

    Returns:
        What the sink made of the rows (an array, a tensor), and the report.

    Raises:
        UnreadableFile: A file is damaged, truncated, or holds what cannot be read so.
        ValueError: A table cannot be decoded.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        ...     np.save(file, np.arange(12).reshape(6, 2))
        ...     file.flush()
        ...     rows, report = load(file.name, start=4)
        >>> rows.tolist(), report.engine
        ([[8, 9], [10, 11]], 'posix')
    """
    if engine not in ("auto", "posix", *_GPU_DIRECT):
        raise InvalidOption(f"Unknown engine. Received: {engine!r}. Expected 'auto', 'posix', 'cufile' or 'kvikio'.")
    count = thread_count(threads)
    watch, tally, begun = MemoryWatch(), Tally(), time.perf_counter()
    paths = _paths(source)
    cached_before = _cached(paths)
    rows: Shards | DecodedRows
    if isinstance(source, DecodedRows):
        rows = source
        sink, engine_used = make_sink(rows.shape, rows.dtype, 0), "arrow"
        direct_decoded.read(rows, sink, count, slot_bytes, tally, watch.sample)
    else:
        rows = _selected(joined(_files(source), "The files"), start, stop)
        first = rows.arrays[0]
        sink = make_sink(rows.shape, first.native_dtype, first.offset % direct_posix.ALIGNMENT)
        engine_used = _read_past_host(rows, sink, engine, count, tally, watch.sample) or "posix"
        if engine_used == "posix":
            direct_posix.read(rows.arrays, sink, count, slot_bytes, tally, watch.sample)
    array = sink.finish()
    seconds = time.perf_counter() - begun
    watch.sample()
    return array, DirectReport(
        engine=engine_used,
        nbytes=rows.nbytes,
        seconds=seconds,
        paths=dict(tally.paths),
        threads=tally.threads,
        is_pinned=tally.is_pinned,
        reading=tally.share("reading", seconds),
        copying=tally.share("copying", seconds),
        rss_growth=watch.growth,
        peak_rss_growth=watch.peak_growth,
        cached_before=cached_before,
        cached_after=_cached(paths),
        reasons=tuple(tally.reasons.values()),
    )


def _read_past_host(
    rows: Shards, sink: Sink, engine: Engine, threads: int, tally: Tally, look: Callable[[], None]
) -> str | None:
    """Let an engine write device memory by its address; None if none can, with the reasons in the tally."""
    if engine == "posix" or (engine == "auto" and not sink.wants_pinned):
        return None
    memory = sink.device_memory
    for name, gpu_direct in _GPU_DIRECT.items():
        if engine not in ("auto", name):
            continue
        if memory is None or any(file.is_swapped for file in rows.arrays):
            why = "the array has no device memory that may be written by its address"
        else:
            why = gpu_direct.unavailable(insist=engine == name)
        if not why and memory is not None:
            try:
                gpu_direct.read(rows.arrays, memory, threads, tally, look)
                return name
            except GpuDirectFailed as failure:
                why = str(failure)
        if engine == name:
            raise FlatoutError(f"engine={name!r} cannot read these files: {why}.")
        tally.add_reason(name, f"{why[0].upper()}{why[1:]}.")
    return None


def _paths(source: Source) -> list[Path]:
    """The files, each once."""
    if isinstance(source, DecodedRows):
        return list(dict.fromkeys(source.paths))
    paths = [part.path if isinstance(part, FileRows) else Path(part) for part in _parts(source)]
    if not paths:
        raise UnreadableFile(f"`source` names no files. Received: {source!r}. Expected .npy files.")
    for path in paths:
        if not path.is_file():
            raise UnreadableFile(f"{path} is {'not a file' if path.exists() else 'not there'}. Check the path.")
    return list(dict.fromkeys(paths))


def _files(source: Any) -> list[FileRows]:
    return [part if isinstance(part, FileRows) else open_rows(part) for part in _parts(source)]


def _selected(rows: Shards, start: int, stop: int | None) -> Shards:
    stop = len(rows) if stop is None else stop
    if not 0 <= start <= stop <= len(rows):
        raise ValueError(
            f"There are no such rows. Received: [{start}:{stop}). Expected a range within [0:{len(rows)})."
        )
    return rows.part(start, stop)


def _parts(source: Any) -> Sequence[Any]:
    return [source] if isinstance(source, (str, os.PathLike)) else source


def _cached(paths: Sequence[Path]) -> int | None:
    """Bytes of all files in the page cache, or None if nobody can say."""
    try:
        each = [cached_bytes(path) for path in paths]
    except OSError as error:
        raise UnreadableFile(f"{error.filename} cannot be read: {error.strerror}.") from error
    return None if None in each else sum(size for size in each if size is not None)
