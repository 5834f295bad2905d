"""What a step takes on the device, without waiting for it."""

from __future__ import annotations

from collections import deque

import torch


class DeviceClock:
    """Times runs of steps by events in the stream.

    Attributes:
        seconds: What a step took in the last run that the device has done; None as long as there is none.
    """

    def __init__(self) -> None:
        self._runs: deque[tuple[torch.cuda.Event, torch.cuda.Event, int]] = deque()
        self._began = _now()
        self._steps = 0
        self._seconds: float | None = None

    def begin(self) -> None:
        """A run begins here."""
        self._began, self._steps = _now(), 0

    def count(self, steps: int) -> None:
        """So many steps were launched."""
        self._steps += steps

    def end(self) -> None:
        """A run ends here; another one begins, unless `begin` says when."""
        ended = _now()
        if self._steps:
            self._runs.append((self._began, ended, self._steps))
        self._began, self._steps = ended, 0
        self._read()

    @property
    def seconds(self) -> float | None:
        self._read()
        return self._seconds

    def _read(self) -> None:
        """Take the times of runs that are done: nobody else may ask for them, and events are memory."""
        try:
            while self._runs and self._runs[0][1].query():
                began, ended, steps = self._runs.popleft()
                self._seconds = began.elapsed_time(ended) / 1000 / steps
        except RuntimeError:
            # A step has failed on the device, which whoever wants its results is told.
            self._runs.clear()


def _now() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
