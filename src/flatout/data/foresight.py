"""The order of the next pass, drawn before it is wanted, while the device is at work.

A draw that was foreseen counts only if the generator stands where it stood then, and leaves it where the draw itself
would have left it: nobody can tell the difference but by the clock.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class NumPyForesight:
    """Foresees `np.random.permutation`, which Keras draws on jax."""

    def __init__(self) -> None:
        self._before: tuple[Any, ...] | None = None
        self._after: Any = None
        self._order: np.ndarray | None = None

    def look(self, rows: int) -> None:
        """Draw what would be drawn now."""
        state: Any = np.random.get_state()
        if state[0] != "MT19937":
            return
        generator = np.random.RandomState()
        generator.set_state(state)
        self._order, self._before, self._after = generator.permutation(rows), state, generator.get_state()

    def take(self, rows: int) -> np.ndarray | None:
        """The permutation, as if it was drawn now; None if it was not foreseen."""
        order, before, self._order = self._order, self._before, None
        if order is None or before is None or len(order) != rows:
            return None
        now: Any = np.random.get_state()
        if now[0] != before[0] or now[2:] != before[2:] or not np.array_equal(now[1], before[1]):
            return None
        np.random.set_state(self._after)
        return order
