"""The order of the next pass, drawn by a thread before it is wanted, while the device is at work.

A draw that was foreseen counts only if the generator stands where it stood then, and leaves it where the draw itself
would have left it: nobody can tell the difference but by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

# NumPy keeps Python while it draws: until then steps have been launched by whoever asks for an order ahead of them.
_SECONDS_TO_LAUNCH = 0.003


class Drawing:
    """What a thread draws, from a generator of its own, a little later."""

    def __init__(self, draw: Callable[[], Any]):
        self._draw = draw
        self._drawn: Any = None
        self._is_wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-foresight")
        self._thread.start()

    def result(self) -> Any:
        """What was drawn; waits for it."""
        self._is_wanted.set()
        self._thread.join()
        return self._drawn

    def _run(self) -> None:
        self._is_wanted.wait(_SECONDS_TO_LAUNCH)
        self._drawn = self._draw()


def state() -> Any:
    """The state of NumPy's global generator."""
    return np.random.get_state()


def are_same(one: Any, other: Any) -> bool:
    """Whether two states will give the same draws."""
    return one[0] == other[0] and one[2:] == other[2:] and np.array_equal(one[1], other[1])


class NumPyForesight:
    """Foresees `np.random.permutation`, which Keras draws on jax."""

    def __init__(self) -> None:
        self._before: Any = None
        self._drawing: Drawing | None = None

    def look(self, rows: int) -> None:
        """Draw what would be drawn now."""
        self.close()
        before = state()
        if before[0] == "MT19937":
            self._before, self._drawing = before, Drawing(lambda: _permutation(before, rows))

    def take(self, rows: int) -> np.ndarray | None:
        """The permutation, as if it was drawn now; None if it was not foreseen."""
        drawing, self._drawing = self._drawing, None
        if drawing is None:
            return None
        order, after = drawing.result()
        if len(order) != rows or not are_same(state(), self._before):
            return None
        np.random.set_state(after)
        return order

    def close(self) -> None:
        """Have no thread left over."""
        if self._drawing is not None:
            self._drawing.result()
            self._drawing = None


def _permutation(before: Any, rows: int) -> tuple[np.ndarray, Any]:
    """A permutation from a state of NumPy's generator, and the state after it."""
    generator = np.random.RandomState()
    generator.set_state(before)
    return generator.permutation(rows), generator.get_state()
