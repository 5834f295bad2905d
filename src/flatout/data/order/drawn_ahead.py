"""The order of the next pass, drawn by a thread before it is wanted, while the device is at work.

A draw that was foreseen counts only if the generator stands where it stood then, and leaves it where the draw itself
would have left it: nobody can tell the difference but by the clock.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

# NumPy keeps Python while it draws: until then steps have been launched by whoever asks for an order ahead of them.
_SECONDS_TO_LAUNCH = 0.003


class DrawnAhead:
    """A thread that draws orders, a little later than it is asked to; this one foresees none."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._drawing: Future[Any] | None = None
        self._is_wanted = threading.Event()

    def look(self, rows: int) -> None:
        """Have the order drawn that will probably be the next, unless that is done already."""

    def take(self, rows: int) -> np.ndarray | None:
        """The order, as if it was drawn now; None if it was not foreseen."""
        return None

    def close(self) -> None:
        """Have no thread left over."""
        self._result()
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def _start(self, draw: Callable[[], Any]) -> None:
        """Have something drawn; what was drawn before is forgotten."""
        self._result()
        self._is_wanted.clear()
        self._threads = self._threads or ThreadPoolExecutor(1, "flatout-draw-ahead")
        self._drawing = self._threads.submit(self._draw, draw)

    def _draw(self, draw: Callable[[], Any]) -> Any:
        self._is_wanted.wait(_SECONDS_TO_LAUNCH)
        return draw()

    def _result(self) -> Any:
        """What was drawn, for which it waits, once; None if there is nothing."""
        drawing, self._drawing = self._drawing, None
        self._is_wanted.set()
        return None if drawing is None else drawing.result()


class NumPyDrawnAhead(DrawnAhead):
    """Foresees `np.random.permutation`, which Keras draws on jax."""

    _before: Any = None

    def look(self, rows: int) -> None:
        before: Any = np.random.get_state()
        is_done = self._drawing is not None and are_same(before, self._before)
        if before[0] == "MT19937" and not is_done:
            self._before = before
            self._start(functools.partial(_permutation, before, rows))

    def take(self, rows: int) -> np.ndarray | None:
        drawn = self._result()
        if drawn is None or len(drawn[0]) != rows or not are_same(np.random.get_state(), self._before):
            return None
        order, after = drawn
        np.random.set_state(after)
        return order


def are_same(one: Any, other: Any) -> bool:
    """Whether two states of NumPy's generator will give the same draws."""
    return one[0] == other[0] and one[2:] == other[2:] and np.array_equal(one[1], other[1])


def _permutation(before: Any, rows: int) -> tuple[np.ndarray, Any]:
    """A permutation from a state of NumPy's generator, and the state after it."""
    generator = np.random.RandomState()
    generator.set_state(before)
    return generator.permutation(rows), generator.get_state()
