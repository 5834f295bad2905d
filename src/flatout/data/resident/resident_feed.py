"""Resident data: every row is on the device, and only the order of an epoch goes there."""

from __future__ import annotations

from typing import Any

from flatout.data.order.row_order import Order, RowFeed


class ResidentFeed(RowFeed):
    """Steps over rows that a program holds.

    Attributes:
        placement: How the rows came to be there: `"resident"`, or `"direct"` from files.
    """

    def __init__(self, order: Order, program: Any, placement: str = "resident"):
        super().__init__(order, program)
        self.placement = placement
        self._first = 0

    def begin_epoch(self) -> None:
        self._first, self.end, begins = self._order.begin_epoch()
        if begins:
            self._program.begin_pass(self._order.rows_of_pass)

    def ready(self, step: int) -> tuple[int, int] | None:
        """Have the rows of a step of the epoch in the program.

        Returns:
            The step's number within the program's rows, and how many steps from it on are there; None at the end.
        """
        assert self.end is not None
        return None if step >= self.end else (self._first + step, self.end - step)
