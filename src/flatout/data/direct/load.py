"""From files to the device with flat host memory: `load` reads rows as they lie in files, or decodes them, into a sink.

The engines: cuFile and KvikIO where GPUDirect Storage is really there, threads with page-locked slots everywhere else.
What is encoded in its file is decoded on the host, by threads with two slots each, into the same sinks: host memory
holds the slots and, for each thread, some pages of a Parquet row group, or one record batch of an Arrow file.
The report says which one ran, which way the bytes went and why a faster one was not taken.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import UnreadableFile
from flatout.data.device.pinned_memory import view, whole_pages
from flatout.data.device.sinks import DeviceMemory, HostSink, MakeSink, Sink
from flatout.data.files.file_rows import DecodedRows, FileRows, Fill
from flatout.data.files.npy_files import SideBySide
from flatout.data.files.page_cache import cached_bytes

from . import cufile_reader, kvikio_reader, posix_reader
from .load_report import COLUMNS, DECODED, DirectReport, Tally
from .slots import FillSlot, pass_through

_THREADS, _THREADS_PER_CORE = 8, 4
# Two slots for each of eight threads are 192 MB, which is all the host memory that a load takes.
SLOT_BYTES = 12 * 2**20
# For all threads together. Of a wide table, few pieces are decoded at a time, with several columns of each at once.
_DECODERS_BYTES = 256 * 2**20
_GPU_DIRECT = {"cuFile": cufile_reader, "KvikIO": kvikio_reader}


def load(
    source: Sequence[FileRows] | DecodedRows,
    make_sink: MakeSink = HostSink,
    *,
    threads: int = _THREADS,
    slot_bytes: int = SLOT_BYTES,
) -> tuple[Any, DirectReport]:
    """Load rows of files; returns what the sink made of them (an array, a tensor), and the report.

    Args:
        source: Files whose rows are one array, one after the other; or rows that are decoded (`TableRows`).
        make_sink: Allocates the array: `HostSink`, or a backend's sink (`flatout.engines.torch.sink.TorchSink`, ...).
        threads: That read; at most four for each core.
        slot_bytes: Host memory of a slot; each thread has two.

    Raises:
        UnreadableFile: A file cannot be read, or shrank.
        ValueError: A table cannot be decoded.
    """
    threads = min(threads, (os.cpu_count() or 1) * _THREADS_PER_CORE)
    tally, begun = Tally(), time.perf_counter()
    paths = dict.fromkeys(source.paths if isinstance(source, DecodedRows) else (file.path for file in source))
    cached_before = _cached(paths)
    if isinstance(source, DecodedRows):
        engine, nbytes = "arrow", source.nbytes
        sink = make_sink(source.shape, source.dtype, 0)
        _decode(source, sink, threads, slot_bytes, tally)
    else:
        first, nbytes = source[0], sum(file.nbytes for file in source)
        shape = (sum(file.shape[0] for file in source), *first.shape[1:])
        sink = make_sink(shape, first.native_dtype, first.offset % posix_reader.ALIGNMENT)
        engine = _read_past_host(source, sink, threads, tally) or "posix"
        if engine == "posix":
            posix_reader.read(source, sink, threads, slot_bytes, tally)
    array = sink.finish()
    seconds = time.perf_counter() - begun
    tally.memory.sample()
    return array, DirectReport(
        engine=engine,
        nbytes=nbytes,
        seconds=seconds,
        paths=dict(tally.paths),
        threads=tally.threads,
        is_pinned=tally.is_pinned,
        reading=tally.share("reading", seconds),
        copying=tally.share("copying", seconds),
        rss_growth=tally.memory.growth,
        peak_rss_growth=tally.memory.peak_growth,
        cached_before=cached_before,
        cached_after=_cached(paths),
        reasons=tuple(tally.reasons.values()),
    )


def _decode(rows: DecodedRows, sink: Sink, threads: int, slot_bytes: int, tally: Tally) -> None:
    """Decode rows into a sink, by at most one thread for each core and task, and as many as memory is set aside for."""
    row_bytes = max(rows.row_bytes, 1)
    rows_per_slot = max(slot_bytes // row_bytes, 1)
    tasks = rows.tasks(rows_per_slot)
    cores = os.cpu_count() or 1
    tally.threads = max(min(threads, len(tasks), cores, _DECODERS_BYTES // max(rows.decoder_bytes, 1)), 1)
    way = COLUMNS if isinstance(rows, SideBySide) else DECODED

    def fills(mine: Iterator[tuple[int, int]]) -> Iterator[FillSlot]:
        for start, stop in mine:
            for piece in rows.pieces(start, stop, rows_per_slot, threads=tally.threads < cores):
                yield functools.partial(filled, *piece)

    def filled(at: int, count: int, fill: Fill, slot: np.ndarray) -> tuple[tuple[int], np.ndarray]:
        block = view(slot, 0, (count, *rows.shape[1:]), rows.dtype)
        fill(block)
        tally.add_bytes(way, block.nbytes)
        return (at,), block

    pass_through(tasks, fills, sink, whole_pages(rows_per_slot * row_bytes), tally)


def _read_past_host(files: Sequence[FileRows], sink: Sink, threads: int, tally: Tally) -> str | None:
    """Let an engine write device memory by its address; None if none can, with the reasons in the tally."""
    if not sink.wants_pinned:
        return None
    memory = None if any(file.is_swapped for file in files) else sink.device_memory
    for name, reader in _GPU_DIRECT.items():
        try:
            why = "the array has no device memory that may be written by its address"
            if memory is not None and not (why := str(reader.unavailable())):
                _read_by(reader, files, memory, threads, tally)
                return name.lower()
        except Exception as error:
            # Another reader begins anew.
            tally.paths.clear()
            why = f"{name} failed: {type(error).__name__}: {error}"
        tally.add_reason(name.lower(), f"{why[0].upper()}{why[1:]}.")
    return None


def _read_by(reader: Any, files: Sequence[FileRows], memory: DeviceMemory, threads: int, tally: Tally) -> None:
    """Have files in device memory, one after the other."""
    done = 0
    for file in files:
        reader.read(file, DeviceMemory(memory.pointer + done, file.nbytes), threads, tally)
        done += file.nbytes
        tally.memory.sample()
    tally.threads = threads


def _cached(paths: Iterable[Path]) -> int | None:
    """Bytes of all files in the page cache, or None if nobody can say."""
    try:
        each = [cached_bytes(path) for path in paths]
    except OSError as error:
        raise UnreadableFile(f"{error.filename} cannot be read: {error.strerror}.") from error
    return None if None in each else sum(size for size in each if size is not None)
