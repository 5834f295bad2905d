"""Compiled kernels on disk, named by the hash of all that they were made from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def folder() -> Path:
    """Where they are: `flatout/kernels` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    found = Path(base) / "flatout" / "kernels"
    found.mkdir(parents=True, exist_ok=True, mode=0o700)
    return found


def put(file: Path, content: bytes) -> None:
    """Write a file so that no process ever reads half of it."""
    handle, temporary = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
