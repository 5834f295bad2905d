"""What starts the worker processes of a group: on this machine, or by Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

from .line import SECONDS_BETWEEN_SIGNS, SECONDS_TO_FINISH

# The end of a process' output that an error shows.
_LINES_SHOWN = 12


class GroupLauncher(Protocol):
    """Starts processes that call `worker.work`.

    Attributes:
        name: As the user names it.
        host: Where the user's process is found by the others.
        shares_files: Whether they read the files that the user's process writes.
    """

    name: str
    host: str
    shares_files: bool

    def start(self, size: int, address: tuple[str, int], key: bytes) -> None: ...
    def ended(self, rank: int) -> str:
        """How a process ended, in words; empty as long as it runs or nobody knows."""
        ...

    def stop(self, lost: int | None) -> None:
        """Wait until all are gone, which end with their line to the supervisor; end the one that was lost, and any
        that takes too long."""
        ...


class LocalLauncher(GroupLauncher):
    """Processes of this machine; each has a GPU of its own as far as there are enough."""

    name = "local"
    host = "127.0.0.1"
    shares_files = True

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="flatout-workers-")

    def start(self, size: int, address: tuple[str, int], key: bytes) -> None:
        command = [sys.executable, "-m", "flatout.cluster.worker", address[0], str(address[1])]
        gpus = _visible_gpus()
        for rank in range(size):
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            if gpus:
                # With other processes, the user's own at least: whoever takes most of its memory at once gets none.
                sharing = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
                environment = {**sharing, **environment, "CUDA_VISIBLE_DEVICES": gpus[rank % len(gpus)]}
            with self._output(rank).open("wb") as output:
                # A session of its own: Ctrl-C is for the user's process, which ends the others.
                process = subprocess.Popen(
                    [*command, str(rank)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
            assert process.stdin is not None
            process.stdin.write(key.hex().encode() + b"\n")
            process.stdin.close()
            self._processes.append(process)

    def ended(self, rank: int) -> str:
        code = self._processes[rank].poll()
        if code is None:
            return ""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = self._output(rank).read_text(errors="replace").strip().splitlines()[-_LINES_SHOWN:]
        return "\n".join([f"It {how}.", *(f"    {line}" for line in lines)])

    def stop(self, lost: int | None) -> None:
        until = time.monotonic() + SECONDS_TO_FINISH + 2 * SECONDS_BETWEEN_SIGNS
        for rank, process in enumerate(self._processes):
            if rank != lost:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
            # Also what it has started itself: a reader of a PyDataset.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._folder.cleanup()

    def _output(self, rank: int) -> Path:
        return Path(self._folder.name) / f"worker-{rank}.txt"


def _visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA numbers them; none is asked, so that none is taken."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() not in ("", "-1")]
    found = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    return [str(number) for number in range(len(found))]
