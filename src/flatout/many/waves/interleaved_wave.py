"""Candidates whose steps a device takes beside each other: the host goes from one to the next while they run.

Each is a `fit` of its own, on a stream of its own. A piece of it ends where the next would wait for the device: then
another one has its turn, so that epochs of several models run at once, and their callbacks while others train.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from flatout.base.when_used import keras
from flatout.data.order.drawing_processes import DrawingProcesses
from flatout.training.running import run_pieces

from .guarded_callbacks import draw_nothing
from .ready import Ready

# Models under way: as many as a GPU has room for, and one that is with the host. More would stand in each other's way:
# a GPU takes launches from few queues, in each of which what cannot begin yet holds up what comes after it.
_MOST_AT_ONCE = 16
# Fewer models do not wait for each other's orders.
_LEAST_TO_DRAW_FOR = 4
# The share of the device's memory, free at first, that is left for what models need when they run.
_SHARE_KEPT_FREE = 0.3


class InterleavedWave:
    """Fits that are under way.

    Used as a context: an error in one of them ends the others too, as Keras' `fit` ends after an error.
    """

    def __init__(self, rows: int, models: int) -> None:
        """`rows`: that each model takes at most."""
        self._running: deque[_Fit] = deque()
        self._least_free: float | None = None
        self._rows = rows if models >= _LEAST_TO_DRAW_FOR else 0

    @functools.cached_property
    def _drawing(self) -> DrawingProcesses:
        return DrawingProcesses(self._rows)

    def __enter__(self) -> InterleavedWave:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            for fit in self._running:
                fit.abandon(error)
        if "_drawing" in vars(self):
            self._drawing.close()

    def add(self, ready: Ready) -> None:
        """Have a candidate run beside the others; waits for one to end where there is no room."""
        while self._is_full(ready):
            self._turn()
        self._running.append(_Fit(ready, self._drawing))
        for _ in range(len(self._running)):
            self._turn()

    def finish(self) -> None:
        """Run all to their ends."""
        while self._running:
            self._turn()

    def _turn(self) -> None:
        fit = self._running.popleft()
        # An error finds it where it was, to be told of as the others are.
        self._running.append(fit)
        if not fit.go_on():
            self._running.remove(fit)

    def _is_full(self, ready: Ready) -> bool:
        assert ready.prepared is not None
        free = ready.prepared.engine.free_memory()
        if self._least_free is None:
            self._least_free = _SHARE_KEPT_FREE * (free or 0)
        has_memory = free is None or free > self._least_free
        return bool(self._running) and (len(self._running) >= _MOST_AT_ONCE or not has_memory)


class _Fit:
    """One of them: what is left of it, with its own generators and its own stream."""

    def __init__(self, ready: Ready, drawing: DrawingProcesses):
        assert ready.prepared is not None
        self._generators: Callable[[], AbstractContextManager[None]] = ready.candidate.generators
        draws = not draw_nothing(keras.tree.flatten(ready.call["callbacks"])) or ready.validation.runs_user_code
        if keras.config.backend() == "jax" and not draws:
            # Then nothing but the order is drawn while it runs.
            drawn = drawing.generator(ready.candidate.generators.of_numpy)
            if drawn is not None and ready.feed.draw_by(drawn):
                self._generators = contextlib.nullcontext
            elif drawn is not None:
                drawn.close()
        self._candidate, self._started = ready.candidate, time.perf_counter()
        self._stream = ready.prepared.engine.stream_of_its_own()
        self._pieces = run_pieces(ready.candidate.model, ready.call, ready.prepared, ready.validation, self._started)

    def go_on(self) -> bool:
        """Take the next piece; False if that was the last."""
        with self._stream, self._generators():
            for _ in self._pieces:
                return True
        self._stream.join()
        self._candidate.finish(time.perf_counter() - self._started)
        return False

    def abandon(self, error: BaseException) -> None:
        # Whoever raised it has ended already.
        with contextlib.suppress(BaseException), self._stream, self._generators():
            self._pieces.throw(error)
        # The device may still be at work for it.
        self._stream.join()
