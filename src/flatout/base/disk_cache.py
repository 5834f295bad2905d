"""What was worked out once and is kept in the user's cache, in files named by the hash of all that they come from."""

from __future__ import annotations

import contextlib
import os
import stat
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


def trim(folder: Path, most: int, most_bytes: int | None = None) -> None:
    """Forget the files of a folder that were used least lately, until it has no more than this many, and bytes."""
    files: list[tuple[float, int, Path]] = []
    for file in folder.iterdir():
        # Another process may trim the same folder.
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                files.append((max(status.st_mtime, status.st_atime), status.st_size, file))
    total = sum(size for _, size, _ in files)
    for number, (_, size, file) in enumerate(sorted(files)):
        if len(files) - number <= most and (most_bytes is None or total <= most_bytes):
            break
        file.unlink(missing_ok=True)
        total -= size
