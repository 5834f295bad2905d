"""Which line of the user's files something came from."""

from __future__ import annotations

import types
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


def of_frames(frame: types.FrameType | None, files: set[str]) -> UserLine | None:
    """The innermost frame that lies in one of the files."""
    while frame is not None:
        if frame.f_code.co_filename in files:
            return UserLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def of_traceback(error: BaseException, files: set[str]) -> UserLine | None:
    """The innermost line of the files that an exception passed through."""
    found = None
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename in files:
            found = UserLine(step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return found
