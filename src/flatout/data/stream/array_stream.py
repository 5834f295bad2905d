"""Rows that can be read by number but do not fit on the device: threads send the next chunks while steps run."""

from __future__ import annotations

from typing import Any

from flatout.data.direct.load_report import StreamReport
from flatout.data.order.row_order import FileOrder, Order, RowFeed
from flatout.data.workers.background import Background

from .chunks import Chunk, RowReader
from .sender import Sender


class ArrayStream(RowFeed):
    """Steps over rows of host arrays or files, in Keras' order.

    Attributes:
        first_step: The step of each epoch at which it begins; those before it were done by somebody else.
    """

    placement = "streamed"

    def __init__(self, order: Order | FileOrder, reader: RowReader, sender: Sender, program: Any):
        super().__init__(order, program)
        self._reader = reader
        self._sender = sender
        self._chunks: Background | None = None
        self._held: Chunk | None = None
        self._begin = self._stop = 0
        self.first_step = 0

    @property
    def loads(self) -> tuple[StreamReport, ...]:
        """What was decoded from files so far."""
        tables = self._reader.tables
        files = {path for table in tables for path in table.paths}
        return (StreamReport(len(files), sum(table.decoded_bytes for table in tables)),) if tables else ()

    def begin_epoch(self) -> None:
        first, count, _ = self._order.begin_epoch()
        self.end = count
        self._begin = self._stop = self.first_step
        chunks = self._reader.chunks(self._order.rows_of_pass, first + self.first_step, first + count)
        self._chunks = self._sender.ahead(chunks)

    def ready(self, step: int) -> tuple[int, int] | None:
        """As `ResidentFeed.ready`; waits for the chunk if it is not there yet."""
        assert self.end is not None
        assert self._chunks is not None
        if step >= self.end:
            return None
        if step >= self._stop:
            chunk = next(self._chunks)
            chunk.arrived()
            self._program.replace(chunk.data, chunk.rows, chunk.batch_size)
            if self._held is not None:
                self._sender.give_back(self._held)
            self._held = chunk
            self._begin, self._stop = step, step + chunk.steps
        return step - self._begin, self._stop - step

    def end_epoch(self, steps: int, finished: bool) -> None:
        self._drop()
        self._reader.end_pass()
        super().end_epoch(steps, finished)

    def close(self) -> None:
        self._drop()
        self._sender.close()
        self._reader.close()
        super().close()

    def _drop(self) -> None:
        if self._chunks is not None:
            self._chunks.close()
            self._sender.settle()
            self._chunks = None
