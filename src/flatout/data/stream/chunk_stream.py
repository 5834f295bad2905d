"""Rows that do not fit on the device: a program holds one chunk of them, while threads send the next ones."""

from __future__ import annotations

from typing import Any

from flatout.data.direct.load_report import StreamReport
from flatout.data.order.row_order import FileOrder, Order, RowFeed
from flatout.data.workers.background import Background

from .chunks import Chunk, RowReader
from .sender import Sender


class ChunkStream:
    """What all streams share.

    Attributes:
        end: Steps of the current epoch, or None while nobody knows.
        program: What holds the chunks.
    """

    placement = "streamed"

    def __init__(self, sender: Sender, program: Any):
        self.end: int | None = 0
        self.program = program
        self._sender = sender
        self._chunks: Background | None = None
        self._chunk: Chunk | None = None
        self._begin = 0
        self._held: Chunk | None = None
        self._ran_out = False

    def ready(self, step: int) -> tuple[int, int] | None:
        """As `ResidentFeed.ready`; waits for the chunk if it is not there yet."""
        if self.end is not None and step >= self.end:
            return None
        if self._chunk is None or step >= self._begin + self._chunk.steps:
            assert self._chunks is not None
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ran_out = True
                self.end = step
                return None
            chunk.arrived()
            self._hold(chunk, step)
        assert self._chunk is not None
        return step - self._begin, self._begin + self._chunk.steps - step

    def _hold(self, chunk: Chunk, step: int) -> None:
        """Have a chunk, which begins with this step, in the program."""
        self._chunk, self._begin = chunk, step
        filled = min(chunk.rows, chunk.steps * chunk.batch_size)
        self.program.replace(chunk.data, chunk.rows, chunk.batch_size, filled)
        if self._held is not None and self._held is not chunk:
            self._sender.give_back(self._held)
        self._held = chunk

    def _drop(self) -> None:
        if self._chunks is not None:
            self._chunks.close()
            self._sender.settle()
        self._chunks = self._chunk = None


class ArrayStream(ChunkStream, RowFeed):
    """Steps over rows of host arrays or files that can be read by number, in Keras' order.

    Attributes:
        first_step: The step of each epoch at which it begins; those before it were done by somebody else.
        stop_step: The step before which it ends, or None.
    """

    def __init__(self, order: Order | FileOrder, reader: RowReader, sender: Sender, program: Any):
        ChunkStream.__init__(self, sender, program)
        RowFeed.__init__(self, order)
        self._reader = reader
        self.first_step = 0
        self.stop_step: int | None = None

    @property
    def loads(self) -> tuple[StreamReport, ...]:
        """What was decoded from files so far."""
        tables = self._reader.tables
        files = {path for table in tables for path in table.paths}
        return (StreamReport(len(files), sum(table.decoded_bytes for table in tables)),) if tables else ()

    def begin_epoch(self) -> None:
        first, end, _ = self._order.begin_epoch()
        self.end = end if self.stop_step is None else self.stop_step
        chunks = self._reader.chunks(self._order.rows_of_pass, first + self.first_step, first + self.end)
        self._chunks = self._sender.ahead(chunks)

    def end_epoch(self, steps: int, finished: bool) -> None:
        self._drop()
        self._reader.end_pass()
        super().end_epoch(steps, finished)

    def close(self) -> None:
        self._drop()
        self._sender.close()
        self._reader.close()
        super().close()
