"""The line between a worker process and the process of the user: messages, and a sign of life each second."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from typing import Any

SECONDS_BETWEEN_SIGNS = 1.0
SECONDS_TO_FINISH = 8.0
STOP = "stop"


class Line:
    """A worker's end. It ends with its line: nobody is left who would want its result.

    Attributes:
        is_busy: Whether it does something that should not be cut off: a callback may be writing a checkpoint.
        is_stop_wanted: Whether the user has asked for what there is so far.
    """

    is_busy: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, address: tuple[str, int], key: bytes):
        self._connection = Client(address, authkey=key)
        self._sending = threading.Lock()
        self._ended = threading.Event()
        self._is_done = False
        self.is_stop_wanted = False

    def send(self, kind: str, *content: Any) -> None:
        with self._sending:
            self._connection.send((kind, *content))

    def receive(self) -> Any:
        return self._connection.recv()

    def receive_bytes(self) -> bytes:
        return self._connection.recv_bytes()

    def wait_for_end(self) -> None:
        """Return when the other end has closed the line, and not end with it."""
        self._is_done = True
        self._ended.wait()

    def keep_alive(self) -> None:
        """Give signs of life from here on, from a thread of its own: also while the process waits for others."""
        threading.Thread(target=self._give_signs, name="flatout signs of life", daemon=True).start()

    def _give_signs(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                if self._connection.poll(SECONDS_BETWEEN_SIGNS):
                    self.is_stop_wanted = self._connection.recv() == STOP
                self.send("alive")
        # The user's process is gone, or has what it wanted, or another worker was lost.
        if not self._is_done:
            until = time.monotonic() + SECONDS_TO_FINISH
            while self.is_busy() and time.monotonic() < until:
                time.sleep(0.02)
            os._exit(1)
        self._ended.set()


def free_port(host: str) -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
