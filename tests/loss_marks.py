"""What is expected of a loss stands beside its name: `# rewritten: FO101`, `# refused on torch: FO106`.

rewritten: by `flatout.vectorize`, which verifies it, and `flatout check` reports each of the codes (or one of `A|B`).
refused:   by `flatout.vectorize`, for one of the codes.
reported:  the codes of `flatout check`; the loss is not run.
on:        where it runs, if not everywhere. On torch a loss takes a tenth of a second or two; on jax each operation of
           its loop is compiled for itself, on tensorflow its rewrite is traced several times: one or two losses of each
           kind run there, those that are quick.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BACKENDS = ("jax", "tensorflow", "torch")
_LINE = re.compile(r"^(?:def |class )?(\w+).*# ((?:rewritten|refused|reported)\b.*)$", re.M)


@dataclass(frozen=True)
class Marked:
    """A loss of a file, and one thing that is expected of it."""

    file: str
    name: str
    expected: str
    backends: tuple[str, ...]
    codes: tuple[str, ...]


def losses_in(folder: Path) -> Iterator[Marked]:
    """Of all files in a folder: every mark that stands beside a loss."""
    for path in sorted(folder.glob("*.py")):
        own = tuple(backend for backend in _BACKENDS if backend in path.stem.split("_"))
        for name, marks in _LINE.findall(path.read_text()):
            for mark in marks.split(", "):
                said, codes = mark.split(":")
                expected, *where = said.replace(" on ", " ").split()
                yield Marked(path.stem, name, expected, tuple(where) or own or _BACKENDS, tuple(codes.split()))
