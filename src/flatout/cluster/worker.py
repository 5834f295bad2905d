"""A worker process: joins its group, runs the user's fit on its part of each batch, and answers."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .line import Line, free_port


def work(host: str, address: tuple[str, int], key: bytes, rank: int) -> None:
    """Do one job that a `Supervisor` gives; `host` is where the other processes find this one."""
    line = Line(address, key)
    line.send("hello", rank, f"{host}:{free_port(host)}")
    job, data = line.receive(), line.receive_bytes()
    line.keep_alive()
    with _output_to(line, job):
        try:
            answer = _run(job, data, line)
        except BaseException:
            line.send("failed", traceback.format_exc())
            raise
    line.send("done", answer)
    # Until all have their results: the end of one ends what the others have in common.
    line.wait_for_end()


def _run(job: dict[str, Any], data: bytes, line: Line) -> bytes:
    os.environ["KERAS_BACKEND"] = job["backend"]
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # Ray sets it.
    sys.path[:] = [*sys.path, *(path for path in job["path"] if path not in sys.path)]
    from flatout.base.group import GroupOfOne, Place
    from flatout.engines.select import join_group

    place = Place(job["rank"], tuple(job["addresses"]))
    # Before any device is used, and so before the model is there.
    group = join_group(job["backend"], place) if place.size > 1 else GroupOfOne(place)
    from .part_fit import fit_part

    return fit_part(job, data, group, line)


@contextlib.contextmanager
def _output_to(line: Line, job: dict[str, Any]) -> Iterator[None]:
    """What the first process prints is printed by the user's; of the others warnings alone, and once."""
    if job["rank"] == 0:
        streams = [_Relay(line, name, job["is_terminal"][name]) for name in ("stdout", "stderr")]
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            yield
        return

    def collect(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        line.send("warning", f"In another worker process: {category.__name__}: {message}")

    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing), warnings.catch_warnings():
        warnings.showwarning = collect
        yield


class _Relay(io.TextIOBase):
    """A stream whose text is written by the user's process."""

    encoding = "utf-8"

    def __init__(self, line: Line, name: str, is_terminal: bool):
        self._line, self._name, self._is_terminal = line, name, is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._line.send("text", self._name, text)
        return len(text)


def main() -> None:
    """For the local launcher: `python -m flatout.cluster.worker HOST PORT RANK`, with the key on stdin."""
    host, port, rank = sys.argv[1:]
    key = bytes.fromhex(sys.stdin.readline())
    work(host, (host, int(port)), key, int(rank))
    # Threads of the backends wait for processes that are gone.
    os._exit(0)


if __name__ == "__main__":
    main()
