"""Which line of the user's files something came from."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class UserLine:
    """A line of a file."""

    path: str
    line: int


@dataclass(frozen=True)
class Operation:
    """An operation of a traced function: the user's line, its name, and the shapes of its inputs."""

    place: UserLine
    name: str
    shapes: list[tuple[int, ...]]


def innermost(frames: Iterable[tuple[types.FrameType, int]], files: set[str]) -> UserLine | None:
    """The first of the frames, from the inside out, that lies in one of the files."""
    inside = (UserLine(one.f_code.co_filename, line) for one, line in frames if one.f_code.co_filename in files)
    return next(inside, None)
