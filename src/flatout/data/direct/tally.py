"""What the reader threads count while they work; `load` makes the report of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from flatout.base.errors import Reason


class Tally:
    """Bytes by path, time by activity, and reasons, added to from any thread.

    Attributes:
        paths: Bytes by the way they went.
        reasons: By code; the first of each is kept.
        is_pinned: Whether slots were page-locked.
        threads: How many read.
    """

    def __init__(self) -> None:
        self.paths: dict[str, int] = {}
        self.reasons: dict[str, Reason] = {}
        self.is_pinned = False
        self.threads = 0
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add_bytes(self, path: str, nbytes: int) -> None:
        with self._lock:
            self.paths[path] = self.paths.get(path, 0) + nbytes

    def add_reason(self, code: str, message: str) -> None:
        with self._lock:
            self.reasons.setdefault(code, Reason(code, message))

    @contextlib.contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Count the time of a `with` block as this activity's."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            with self._lock:
                self._seconds[activity] = self._seconds.get(activity, 0.0) + elapsed

    def share(self, activity: str, seconds: float) -> float:
        """The part of all threads' time that an activity took, of a run of so many seconds."""
        return min(self._seconds.get(activity, 0.0) / (seconds * self.threads), 1.0) if seconds * self.threads else 0.0
