"""Watches the worker processes of a group until the first has the result, or one of them is lost."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from typing import Any

from flatout.base.errors import GroupFailed
from flatout.base.uninterrupted import Uninterrupted

from .line import SECONDS_BETWEEN_SIGNS, STOP
from .local_launcher import GroupLauncher

# A process that gives no sign of life for so long has been stopped, or its machine is gone.
_SECONDS_UNHEARD = 15.0
# Others fail where they wait for one that is lost: who was first is known after this.
_SECONDS_TO_BLAME = 1.5
_SECONDS_MISSED = 4 * SECONDS_BETWEEN_SIGNS
_SECONDS_TO_START = 180.0
_SECONDS_TO_SAY_HELLO = 10.0


@dataclass
class Signs:
    """What is known of one process."""

    heard: float
    failure: str = ""
    failed_at: float = float("inf")
    is_gone: bool = False


@dataclass
class Supervisor:
    """Starts a group, gives each process its job and waits for the result.

    Attributes:
        launcher: Starts the processes.
        size: How many.
        kept: Called with the number of an epoch whose state was saved, and the file.
        is_interrupted: Whether the user has pressed Ctrl-C: the result is then what there was so far.
    """

    launcher: GroupLauncher
    size: int
    kept: Callable[[int, str], None]
    is_interrupted: bool = False
    _lines: dict[int, Connection] = field(default_factory=dict)
    _signs: dict[int, Signs] = field(default_factory=dict)
    _warnings: dict[str, int] = field(default_factory=dict)

    def run(self, job: dict[str, Any], data: bytes) -> bytes:
        """The first process' answer to a job.

        Raises:
            GroupFailed: A process failed, was killed, or has not been heard of. All of them have ended.
        """
        key = secrets.token_bytes(32)
        lost = None
        try:
            with Listener((self.launcher.host, 0), authkey=key) as listener:
                self.launcher.start(self.size, listener.address, key)
                addresses = self._meet(listener)
            for rank, line in self._lines.items():
                line.send({**job, "rank": rank, "addresses": addresses})
                line.send_bytes(data)
            for signs in self._signs.values():
                # From here on: some have waited for others to start.
                signs.heard = time.monotonic()
            return self._result()
        except GroupFailed as failure:
            lost = failure.rank
            raise
        finally:
            for line in self._lines.values():
                line.close()
            self.launcher.stop(lost)
            for text in self._warnings:
                warnings.warn_explicit(text, UserWarning, "flatout worker", self._warnings[text])

    def _meet(self, listener: Listener) -> tuple[str, ...]:
        """Wait for all to call; where each of them listens."""
        # Python offers no time limit for this.
        listener._listener._socket.settimeout(1.0)  # type: ignore[attr-defined]
        addresses: dict[int, str] = {}
        until = time.monotonic() + _SECONDS_TO_START
        while len(addresses) < self.size:
            # Somebody else may call, and have nothing to say.
            with contextlib.suppress(TimeoutError, AuthenticationError, EOFError, OSError):
                line = listener.accept()
                if not line.poll(_SECONDS_TO_SAY_HELLO):
                    continue
                _, rank, address = line.recv()
                self._lines[rank], addresses[rank] = line, address
                self._signs[rank] = Signs(time.monotonic())
            for rank in set(range(self.size)) - set(addresses):
                late = time.monotonic() > until
                if how := self.launcher.ended(rank) or ("It did not start in time." if late else ""):
                    raise GroupFailed(rank, self.size, how)
        return tuple(addresses[rank] for rank in range(self.size))

    def _result(self) -> bytes:
        answers: dict[int, bytes] = {}
        while len(answers) < self.size:
            try:
                self._listen(answers)
            except KeyboardInterrupt:
                if self.is_interrupted:
                    raise
                self.is_interrupted = True
                self._lines[0].send(STOP)
                print("flatout: stopping at the end of the epoch; Ctrl-C again stops at once", file=sys.stderr)
        return answers[0]

    def _listen(self, answers: dict[int, bytes]) -> None:
        """Take what is said, and look who has not been heard of."""
        waiting = {line: rank for rank, line in self._lines.items() if not self._signs[rank].is_gone}
        for line in wait(list(waiting), timeout=0.5):
            assert isinstance(line, Connection)
            with Uninterrupted():
                self._hear(waiting[line], line, answers)
        self._look_for_losses(set(answers))

    def _hear(self, rank: int, line: Connection, answers: dict[int, bytes]) -> None:
        signs = self._signs[rank]
        try:
            kind, *content = line.recv()
        except (EOFError, OSError):
            signs.is_gone = True
            if rank not in answers:
                signs.failed_at = min(signs.failed_at, time.monotonic())
            return
        signs.heard = time.monotonic()
        if kind == "done":
            answers[rank] = content[0]
        else:
            self._take(rank, kind, content)

    def _take(self, rank: int, kind: str, content: list[Any]) -> None:
        if kind == "failed":
            signs = self._signs[rank]
            signs.failure, signs.failed_at = content[0], min(signs.failed_at, time.monotonic())
        elif kind == "text":
            stream = getattr(sys, content[0])
            stream.write(content[1])
            stream.flush()
        elif kind == "warning":
            self._warnings.setdefault(content[0], rank)
        elif kind == "kept":
            self.kept(*content)

    def _look_for_losses(self, finished: set[int]) -> None:
        now = time.monotonic()
        first = min((signs.failed_at for signs in self._signs.values()), default=float("inf"))
        is_over = now - first > _SECONDS_TO_BLAME
        # Where another has failed, it may have been tired of waiting for one that was stopped.
        patience = _SECONDS_MISSED if is_over else _SECONDS_UNHEARD
        for rank in set(range(self.size)) - finished:
            silence = now - self._signs[rank].heard
            if self._signs[rank].failed_at == float("inf") and silence > patience:
                how = f"Nothing has been heard of it for {silence:.0f} s: it hangs, or was stopped."
                raise GroupFailed(rank, self.size, how)
        if not is_over:
            return
        lost = {rank: signs for rank, signs in self._signs.items() if signs.failed_at < float("inf")}
        # One that was killed says nothing, and those that waited for it do.
        silent = {rank: signs for rank, signs in lost.items() if not signs.failure}
        rank, signs = min((silent or lost).items(), key=lambda item: item[1].failed_at)
        raise GroupFailed(rank, self.size, signs.failure or self.launcher.ended(rank) or "It is gone.")
