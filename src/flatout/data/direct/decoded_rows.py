"""Rows that have to be decoded or put together on the host, by threads with two slots each, into the same sinks.

Host memory holds the slots and, for each thread, what is being decoded: some pages of a Parquet row group, or one
record batch of an Arrow file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

import numpy as np

from flatout.data.device.pinned_memory import view, whole_pages
from flatout.data.device.sinks import Sink
from flatout.data.files.lazy_rows import DecodedRows, Fill
from flatout.data.files.npy_files import SideBySide

from .load_report import COLUMNS, DECODED, Tally
from .slots import FillSlot, pass_through

# For all threads together. Of a wide table, few pieces are decoded at a time, with several columns of each at once.
_DECODERS_BYTES = 256 * 2**20


def read(rows: DecodedRows, sink: Sink, threads: int, slot_bytes: int, tally: Tally) -> None:
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
