"""What feeds of rows that have numbers share: Keras' order of them."""

from __future__ import annotations

from typing import Any

from flatout.data.direct.load_report import StreamReport

from .row_order import FileOrder, Order


class RowFeed:
    """Steps over rows in the order that Keras gives them.

    Attributes:
        end: Steps of the current epoch.
    """

    is_exhausted = False

    @property
    def loads(self) -> tuple[StreamReport, ...]:
        """What was decoded from files while the steps ran."""
        return ()

    def __init__(self, order: Order | FileOrder, program: Any):
        self._order = order
        self._program = program
        self.end: int | None = 0

    @property
    def iterator(self) -> Any:
        """Keras' own epoch iterator."""
        return self._order.iterator

    @property
    def steps(self) -> int:
        """Steps of an epoch, as callbacks are told."""
        return self._order.steps

    def reset(self) -> None:
        self._order.reset()

    def draw_ahead(self) -> None:
        self._order.draw_ahead()

    def end_epoch(self, steps: int, finished: bool) -> None:
        self._order.end_epoch(steps, finished)

    def close(self) -> None:
        """End what runs in the background."""
        self._order.close()
