"""Orders of many models, drawn by other processes: NumPy keeps all threads of Python waiting while it shuffles."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from . import draw_worker
from .drawn_ahead import DrawnAhead

_PLACES = 16
# Orders below this are drawn sooner than asked for; above it they would take more memory than they are worth.
_ROWS = range(4096, 4_000_000)
# A process draws for some cores of the host, and for so many models at most.
_CORES_FOR_ONE, _MOST = 4, 4


class DrawingProcesses:
    """Some processes that draw, until they are closed; none where there are few cores for them, or few rows."""

    def __init__(self, rows: int):
        self._processes: list[_Process] = []
        if rows in _ROWS:
            # Where no process may be started, orders are drawn here.
            with contextlib.suppress(OSError):
                for _ in range(min(_MOST, (os.cpu_count() or 1) // _CORES_FOR_ONE)):
                    self._processes.append(_Process(rows))
        self._turns = itertools.cycle(self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def generator(self, state: Any) -> DrawnElsewhere | None:
        """Permutations from a state of NumPy's generator on; None where there is no process with a place for them."""
        for _ in self._processes:
            process = next(self._turns)
            if process.free:
                return DrawnElsewhere(process, state)
        return None


class _Process:
    """One of them: places in memory that it shares with this process, and answers that are still to come."""

    def __init__(self, rows: int):
        self.free = [*range(_PLACES)]
        with tempfile.TemporaryFile() as file:
            file.truncate(_PLACES * 2 * rows * 4)
            # Two for each generator, in turns: one is in use while the other is drawn.
            self.places = np.frombuffer(mmap.mmap(file.fileno(), 0), np.int32).reshape(_PLACES, 2, rows)
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(draw_worker.__file__)), str(file.fileno()), str(rows)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[file.fileno()],
                bufsize=0,
                # Ctrl-C is for this process, which ends that one.
                start_new_session=True,
            )
        self._asked = self._answered = 0

    def ask(self, place: int, rows: int, state: bytes) -> int:
        """Have an order drawn; returns the number of its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(draw_worker.REQUEST.pack(place, rows, len(state)) + state)
        self._asked += 1
        return self._asked

    def wait(self, answer: int) -> None:
        assert self._process.stdout is not None
        while self._answered < answer:
            answers = self._process.stdout.read(answer - self._answered)
            if not answers:
                raise BrokenPipeError
            self._answered += len(answers)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.kill()
        self._process.wait()


class DrawnElsewhere(DrawnAhead):
    """A generator of its own, whose permutations another process draws; this one, should that be gone."""

    def __init__(self, process: _Process, state: Any):
        super().__init__()
        self._process, self._begun = process, state
        self._place = process.free.pop()
        self._state = draw_worker.packed_state(state)
        # The number of the answer that is to come.
        self._answer: int | None = None
        # Rows of all orders that were taken, to draw them once more if the process is gone.
        self._taken: list[int] = []
        self._own: np.random.RandomState | None = None

    def look(self, rows: int) -> None:
        if self._answer is None and self._own is None:
            try:
                self._answer, self._state = self._process.ask(self._place, rows, self._state), b""
            except OSError:
                self._draw_here()

    def take(self, rows: int) -> np.ndarray:
        """The next permutation, which is there until the next but one is drawn."""
        self.look(rows)
        if self._answer is not None:
            answer, self._answer = self._answer, None
            try:
                self._process.wait(answer)
                self._taken.append(rows)
                return self._process.places[self._place, len(self._taken) % 2, :rows]
            except OSError:
                self._draw_here()
        assert self._own is not None
        return self._own.permutation(rows)

    def close(self) -> None:
        if self._place not in self._process.free:
            with contextlib.suppress(OSError):
                # What is being drawn goes to that place.
                self._process.wait(self._answer or 0)
            self._process.free.append(self._place)

    def _draw_here(self) -> None:
        self._own = np.random.RandomState()
        self._own.set_state(self._begun)
        for rows in self._taken:
            self._own.permutation(rows)
