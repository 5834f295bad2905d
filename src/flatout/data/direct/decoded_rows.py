"""Rows that have to be decoded or put together on the host, by threads with two slots each, into the same sinks.

Host memory holds the slots and, for each thread, what is being decoded: some pages of a Parquet row group, or one
record batch of an Arrow file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from flatout.data.device.pinned_memory import borrowed, view
from flatout.data.device.sinks import Sink, Wait, nothing_to_wait_for
from flatout.data.files.page_cache import PAGE
from flatout.data.files.side_by_side import SideBySide

from .load_report import COLUMNS, DECODED
from .reader_threads import share_out
from .tally import Tally

# For all threads together. Of a wide table, few pieces are decoded at a time, with several columns of each at once.
_DECODERS_BYTES = 256 * 2**20


@runtime_checkable
class DecodedRows(Protocol):
    """An array whose rows do not lie in its files as they are: `TableRows`, `SideBySide`."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def paths(self) -> tuple[Path, ...]: ...
    @property
    def decoder_bytes(self) -> int:
        """About how much host memory each thread takes to decode, beside its slots."""
        ...

    def tasks(self, most: int) -> list[tuple[int, int]]:
        """Ranges of rows that can be read independently, if possible of `most` rows or more."""
        ...

    def pieces(
        self, start: int, stop: int, most: int, threads: bool = False
    ) -> Iterator[tuple[int, int, Callable[[np.ndarray], None]]]:
        """Some rows in pieces of at most so many: the first row, how many, and what fills an array with them.

        With `threads`, several columns may be decoded at once.
        """
        ...


def read(rows: DecodedRows, sink: Sink, threads: int, slot_bytes: int, tally: Tally, look: Callable[[], None]) -> None:
    """Decode rows into a sink.

    Args:
        rows: What to read.
        sink: Where to.
        threads: That decode, at most one for each core and task, and no more than memory is set aside for.
        slot_bytes: Size of each of the two slots of a thread.
        tally: Takes what happens.
        look: Called every now and then.

    Raises:
        ValueError: A file is damaged, or no longer what it was.
    """
    row_bytes = max(rows.row_bytes, 1)
    rows_per_slot = max(slot_bytes // row_bytes, 1)
    tasks = rows.tasks(rows_per_slot)
    cores = os.cpu_count() or 1
    tally.threads = max(min(threads, len(tasks), cores, _DECODERS_BYTES // max(rows.decoder_bytes, 1)), 1)
    size = rows_per_slot * row_bytes
    way = COLUMNS if isinstance(rows, SideBySide) else DECODED
    with borrowed(2 * tally.threads * (size + PAGE), pin=sink.wants_pinned) as slab:
        tally.is_pinned = slab.is_pinned
        if slab.why_not:
            tally.add_reason("pageable", f"The slots could not be page-locked: {slab.why_not}.")
        slots = slab.slots(2 * tally.threads, size)

        def worker(number: int, mine: Iterator[tuple[int, int]]) -> None:
            own = slots[2 * number : 2 * number + 2]
            pending: list[Wait] = [nothing_to_wait_for] * 2
            turn = 0
            try:
                for start, stop in mine:
                    pieces = rows.pieces(start, stop, rows_per_slot, threads=tally.threads < cores)
                    while True:
                        with tally.timed("reading"):
                            piece = next(pieces, None)
                        if piece is None:
                            break
                        at, count, fill = piece
                        turn = 1 - turn
                        with tally.timed("copying"):
                            pending[turn]()
                        block = view(own[turn], 0, (count, *rows.shape[1:]), rows.dtype)
                        with tally.timed("reading"):
                            fill(block)
                        with tally.timed("copying"):
                            pending[turn] = sink.write((at,), block)
                        tally.add_bytes(way, block.nbytes)
            finally:
                # A copy that is still under way would read a slot that somebody else has borrowed.
                with tally.timed("copying"):
                    for wait in pending:
                        wait()

        share_out(tasks, worker, tally.threads, look)
