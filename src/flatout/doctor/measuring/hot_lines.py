"""A sampling profiler of the user's own Python: in which of their lines a fit spends its time, and in which part of it.

A thread looks at the stacks of the others about every millisecond; nothing is traced, so the fit runs as it does
without it.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import FrameType

from flatout.doctor.diagnosis_facts import HotLine

from .user_frames import CodePlace, is_waiting, place_beside, place_of

_INTERVAL = 0.001
# At most a twentieth of the time goes into looking, however deep the stacks are.
_REST = 19
_LINES_OF_A_FUNCTION = 3
# Less is noise.
_LEAST_SHARE = 0.005


class Sampler:
    """Samples the lines of the user's in the thread that enters it, and in threads that work for its data pipeline.

    A sample counts for the time since the one before: while Python computes, another thread gets its turn every 5 ms
    only (`sys.getswitchinterval`), and lines that sleep would seem to take more than they do.

    Example:
        with Sampler() as sampler:
            model.fit(x, y)
        print(sampler.hot_lines())
    """

    def __init__(self, interval: float = _INTERVAL) -> None:
        self._interval = interval
        self._seconds_of: defaultdict[CodePlace, float] = defaultdict(float)
        self._seconds = 0.0
        self._fit_thread = 0
        self._entry: FrameType | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sampler:
        self._fit_thread = threading.get_ident()
        self._entry = sys._getframe(1)
        self._end.clear()
        if not _is_safe():
            return self
        self._thread = threading.Thread(target=self._run, name="flatout-doctor-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        # A frame keeps its variables alive.
        self._thread = self._entry = None

    @property
    def seconds(self) -> float:
        """How long the fit was watched."""
        return self._seconds

    def hot_lines(self, most: int = 5) -> tuple[HotLine, ...]:
        """The lines that take longest, at most so many of a part, and three of a function.

        A line's share is of the time of the whole fit, from 0 to 1: how long at least one thread was in it. A worker
        thread is in its line while the fit's thread goes on, so that the shares of several threads may add up to more.
        """
        lines: list[HotLine] = []
        of_part: Counter[str] = Counter()
        of_function: Counter[tuple[str, str, str]] = Counter()
        for place, seconds in sorted(dict(self._seconds_of).items(), key=lambda one: -one[1]):
            function = (place.part, place.path, place.function)
            share = min(1.0, seconds / self._seconds)
            if share < _LEAST_SHARE or of_part[place.part] >= most or of_function[function] >= _LINES_OF_A_FUNCTION:
                continue
            of_part[place.part] += 1
            of_function[function] += 1
            source = linecache.getline(place.path, place.line).strip()
            lines.append(HotLine(place.part, place.path, place.line, place.function, source, share))
        return tuple(lines)

    def _run(self) -> None:
        before, pause = time.perf_counter(), self._interval
        while not self._end.wait(pause):
            now, begin = time.perf_counter(), time.thread_time()
            with _uncollected():
                self._take(now - before)
            before, pause = now, max(self._interval, _REST * (time.thread_time() - begin))

    def _take(self, seconds: float) -> None:
        frames = sys._current_frames()
        fit = place_of(frames.pop(self._fit_thread, None), self._entry)
        if fit is None:
            return
        frames.pop(threading.get_ident(), None)
        beside = {place_beside(frame) for frame in frames.values() if not is_waiting(frame)}
        # Two workers in the same line are in it at the same time.
        for place in {fit, *beside}:
            if place is not None and place.is_of_user:
                self._seconds_of[place] += seconds
        self._seconds += seconds


def _is_safe() -> bool:
    """Whether frames of another thread can be looked at: without the GIL that is a use after free."""
    # https://github.com/python/cpython/issues/152355
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from running.

    Until Python 3.11 it may start while `f_back` makes a frame object. A finalizer, such as that of a tensor, may then
    let the other thread go on and leave that frame: Python crashes. Since 3.12 it starts between instructions only.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
