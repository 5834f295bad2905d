"""The order of the next pass, drawn by a thread before it is wanted, while the device is at work.

A draw that was foreseen counts only if the generator stands where it stood then, and leaves it where the draw itself
would have left it: nobody can tell the difference but by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

# NumPy keeps Python while it draws: until then steps have been launched by whoever asks for an order ahead of them.
_SECONDS_TO_LAUNCH = 0.003


class Drawer:
    """A thread that draws, a little later than it is asked to."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._drawing: Future[Any] | None = None
        self._is_wanted = threading.Event()

    def start(self, draw: Callable[[], Any]) -> None:
        """Have something drawn; what was drawn before is forgotten."""
        self.result()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "flatout-draw-ahead")
        self._is_wanted.clear()
        self._drawing = self._threads.submit(self._draw, draw)

    @property
    def is_asked(self) -> bool:
        """Whether something is drawn or being drawn that nobody has taken yet."""
        return self._drawing is not None

    def result(self) -> Any:
        """What was drawn, for which it waits, once; None if there is nothing."""
        drawing, self._drawing = self._drawing, None
        self._is_wanted.set()
        return None if drawing is None else drawing.result()

    def close(self) -> None:
        """Have no thread left over."""
        self.result()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _draw(self, draw: Callable[[], Any]) -> Any:
        self._is_wanted.wait(_SECONDS_TO_LAUNCH)
        return draw()


def state() -> Any:
    """The state of NumPy's global generator."""
    return np.random.get_state()


def are_same(one: Any, other: Any) -> bool:
    """Whether two states will give the same draws."""
    return one[0] == other[0] and one[2:] == other[2:] and np.array_equal(one[1], other[1])


class NumPyDrawnAhead:
    """Foresees `np.random.permutation`, which Keras draws on jax."""

    def __init__(self) -> None:
        self._before: Any = None
        self._drawer = Drawer()

    def look(self, rows: int) -> None:
        """Draw what would be drawn now, unless that is done already."""
        before = state()
        if self._drawer.is_asked and are_same(before, self._before):
            return
        if before[0] == "MT19937":
            self._before = before
            self._drawer.start(lambda: _permutation(before, rows))

    def take(self, rows: int) -> np.ndarray | None:
        """The permutation, as if it was drawn now; None if it was not foreseen."""
        drawn = self._drawer.result()
        if drawn is None:
            return None
        order, after = drawn
        if len(order) != rows or not are_same(state(), self._before):
            return None
        np.random.set_state(after)
        return order

    def close(self) -> None:
        """Have no thread left over."""
        self._drawer.close()


def _permutation(before: Any, rows: int) -> tuple[np.ndarray, Any]:
    """A permutation from a state of NumPy's generator, and the state after it."""
    generator = np.random.RandomState()
    generator.set_state(before)
    return generator.permutation(rows), generator.get_state()
