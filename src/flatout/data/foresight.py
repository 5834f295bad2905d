"""The order of the next pass, drawn before it is wanted, while the device is at work.

A draw that was foreseen counts only if the generator stands where it stood then, and leaves it where the draw itself
would have left it: nobody can tell the difference but by the clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def state() -> Any:
    """The state of NumPy's global generator."""
    return np.random.get_state()


def are_same(one: Any, other: Any) -> bool:
    """Whether two states will give the same draws."""
    return one[0] == other[0] and one[2:] == other[2:] and np.array_equal(one[1], other[1])


class NumPyForesight:
    """Foresees `np.random.permutation`, which Keras draws on jax."""

    def __init__(self) -> None:
        self._before: tuple[Any, ...] | None = None
        self._after: Any = None
        self._order: np.ndarray | None = None

    def look(self, rows: int) -> None:
        """Draw what would be drawn now."""
        before = state()
        if before[0] != "MT19937":
            return
        generator = np.random.RandomState()
        generator.set_state(before)
        self._order, self._before, self._after = generator.permutation(rows), before, generator.get_state()

    def take(self, rows: int) -> np.ndarray | None:
        """The permutation, as if it was drawn now; None if it was not foreseen."""
        order, before, self._order = self._order, self._before, None
        if order is None or before is None or len(order) != rows:
            return None
        if not are_same(state(), before):
            return None
        np.random.set_state(self._after)
        return order
