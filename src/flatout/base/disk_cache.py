"""What was worked out once and is kept in the user's cache, in files named by the hash of all that they come from."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from .warning import warn


def folder(part: str) -> Path:
    """Where a part of flatout keeps its files: `flatout/<part>` in the user's cache.

    What is compiled is loaded from there and run, so a folder of somebody else's, or one that others can write, is not
    used; a warning says so.

    Raises:
        OSError: It cannot be made, or is not the user's alone.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError as error:
        raise OSError(str(error)) from error
    ours = Path(base) / "flatout"
    for found in (ours, ours / part):
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (problem := _risk_of(found)) is not None:
            message = (
                f"flatout keeps nothing in its cache, which others could have changed. Received: {found}, {problem}. "
                "Remove the folder, or set XDG_CACHE_HOME to one of your own."
            )
            warn(message)
            raise PermissionError(message)
    return found


def _risk_of(found: Path) -> str | None:
    """Who else may write into a folder; None if only this user and root may."""
    status = found.stat()
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        return f"which belongs to user {status.st_uid}"
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"whose mode {stat.S_IMODE(status.st_mode):o} lets others write"
    return None


def folder_for_now(part: str) -> Path:
    """The same; where there is none that may be used, an empty one for this process."""
    try:
        return folder(part)
    except OSError:
        return folder_of_process(part)


def folder_of_process(part: str) -> Path:
    """A folder of this process alone, empty at first, which goes when it ends."""
    return _temporary(part, os.getpid())


@functools.cache
def _temporary(part: str, process: int) -> Path:
    made = Path(tempfile.mkdtemp(prefix=f"flatout-{part}-"))
    atexit.register(_remove, made, process)
    return made


def _remove(temporary: Path, process: int) -> None:
    # Not from a fork of the process that it is of; a process that ends may still write there.
    if os.getpid() == process:
        shutil.rmtree(temporary, ignore_errors=True)


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
