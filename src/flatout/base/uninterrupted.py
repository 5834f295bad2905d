"""Ctrl-C waits while something is in nobody's hands: arrays given to the device, a message that is half read."""

from __future__ import annotations

import _signal  # `signal` makes enums of handlers, which takes 28 us instead of 1.6: too much beside a step.
import threading
from types import FrameType
from typing import Any


class Uninterrupted:
    """Keeps a Ctrl-C until the block has ended, then hands it to whoever would have had it."""

    def __enter__(self) -> None:
        self._handler: Any = None
        self._kept: tuple[int, FrameType | None] | None = None
        # Python runs handlers in the main thread, and lets no other thread set them.
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_signal.SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_signal.SIGINT, self._keep)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._kept = number, frame

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _signal.signal(_signal.SIGINT, self._handler)
            if self._kept is not None:
                self._handler(*self._kept)
