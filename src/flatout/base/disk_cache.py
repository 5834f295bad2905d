"""What was worked out once and is kept in the user's cache, in files named by the hash of all that they come from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def folder(part: str) -> Path:
    """Where a part of flatout keeps its files: `flatout/<part>` in the user's cache.

    Raises:
        OSError: It cannot be made.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError as error:
        raise OSError(str(error)) from error
    found = Path(base) / "flatout" / part
    found.mkdir(parents=True, exist_ok=True, mode=0o700)
    return found


def put(file: Path, content: bytes) -> None:
    """Write a file so that no process ever reads half of it, nor a crash leaves it so; its mode stays what it was."""
    handle, temporary = tempfile.mkstemp(dir=file.parent)
    try:
        if file.exists():
            Path(temporary).chmod(file.stat().st_mode & 0o777)  # os.fchmod() is not there on every Windows.
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def trim(folder: Path, most: int) -> None:
    """Forget the oldest files of a folder that has more than this many."""
    files = [(file.stat().st_mtime, file) for file in folder.iterdir() if file.is_file()]
    for _, file in sorted(files)[: max(0, len(files) - most)]:
        file.unlink(missing_ok=True)
