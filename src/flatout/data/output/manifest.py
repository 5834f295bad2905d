"""The record of how far an unfinished prediction has come: a small JSON file, replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FileProgress:
    """Rows of a file that are safely on disk.

    Attributes:
        path: Seen from the record's folder, so that a copy of the folder speaks of the copies.
        dtype: In NumPy's notation, such as `"<f4"`.
    """

    path: str
    rows: int
    row_shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Progress:
    """How far a prediction has come.

    Attributes:
        fingerprint: What determines the bytes, each part under its name.
        steps: Steps whose outputs are on disk.
        files: Where they are.
        structure: Of the outputs, as `packed` gives it.
        obstacle: Why nobody can go on from there, or None.
    """

    fingerprint: dict[str, str]
    steps: int
    files: tuple[FileProgress, ...]
    structure: Any
    obstacle: str | None = None


def save(path: Path, progress: Progress) -> None:
    """Write the record; what it says must be on disk already."""
    content = asdict(progress)
    temporary = _temporary(path)
    # A crash has left it, or somebody has laid a link there; "x" makes a file that is nobody else's.
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("x") as file:
            json.dump({"sha256": _digest(content), **content}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folders([path])


def load(path: Path) -> Progress | None:
    """Read the record; None if there is none that can be trusted."""
    if not is_plain_file(path):
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        if content.pop("sha256") != _digest(content):
            return None
        files = tuple(FileProgress(**{**file, "row_shape": tuple(file["row_shape"])}) for file in content["files"])
        return Progress(**{**content, "files": files})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def remove(path: Path) -> None:
    """Have no record, nor what a crash has left of one."""
    path.unlink(missing_ok=True)
    _temporary(path).unlink(missing_ok=True)


def is_plain_file(path: Path) -> bool:
    """Whether a file lies there that has no other name: neither a link to one, nor in a copy made of hard links."""
    return path.is_file() and not path.is_symlink() and path.stat().st_nlink <= 1


def packed(structure: Any) -> Any:
    """A structure without its leaves, as JSON can hold it: `{"a": (1,)}` is `["dict", {"a": ["tuple", [None]]}]`."""
    if isinstance(structure, dict):
        return ["dict", {key: packed(part) for key, part in structure.items()}]
    if isinstance(structure, (list, tuple)):
        return ["list" if isinstance(structure, list) else "tuple", [packed(part) for part in structure]]
    return None


def unpacked(structure: Any, leaves: Iterator[Any]) -> Any:
    """The leaves, in the order in which Keras flattens them, in a structure that `packed` gave."""
    if structure is None:
        return next(leaves)
    kind, parts = structure
    if kind == "dict":
        return {key: unpacked(parts[key], leaves) for key in sorted(parts)}
    unpacked_parts = [unpacked(part, leaves) for part in parts]
    return unpacked_parts if kind == "list" else tuple(unpacked_parts)


def sync_folders(paths: Iterable[Path]) -> None:
    """Have the names of files on disk, not only their contents."""
    for folder in {path.parent for path in paths}:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            # Some network file systems know no such thing.
            with contextlib.suppress(OSError):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
