"""Which files are opened to be written while the user's code runs: a measurement cannot take that back."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Of the thread that asked.
_seen: dict[int, list[str]] = {}


@contextlib.contextmanager
def written_files() -> Iterator[list[str]]:
    """Meanwhile, note the files that this thread opens to be written, but for temporary ones and Python's own."""
    _watch_for_good()
    thread = threading.get_ident()
    around = _seen.get(thread)
    found = _seen[thread] = []
    try:
        yield found
    finally:
        del _seen[thread]
        if around is not None:
            _seen[thread] = around


@functools.cache
def _watch_for_good() -> None:
    # Python has no way to take it off again.
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _seen:
        return
    found = _seen.get(threading.get_ident())
    path, _, flags = arguments
    if found is None or not isinstance(path, (str, os.PathLike)) or not isinstance(flags, int) or not flags & _WRITING:
        return
    name = os.fspath(path)
    if not str(name).startswith((tempfile.gettempdir(), os.devnull)) and "__pycache__" not in str(name):
        found.append(str(name))
