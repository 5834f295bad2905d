"""Tracebacks as plain Python gives them: without the frames of flatout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

from flatout.base.errors import FlatoutError

_PACKAGE = str(Path(__file__).absolute().parents[1]) + os.sep


def hide_ours(error: BaseException, traceback: TracebackType | None) -> None:
    """Show `traceback`, without our frames, when `error` ends the program.

    Frames are added to an error while it rises, so they can only be taken away where it is shown.
    """
    for other in _chain(error):
        if other is not error:
            other.__traceback__ = _without_ours(other, other.__traceback__)
    shown = _without_ours(error, traceback)
    show = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, its_traceback: TracebackType | None) -> None:
        if value is error:
            value.__traceback__ = its_traceback = shown
        show(kind, value, its_traceback)

    sys.excepthook = excepthook


def _chain(error: BaseException) -> list[BaseException]:
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            waiting += [one.__cause__, one.__context__]
    return list(found.values())


def _without_ours(error: BaseException, traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    # What flatout raised by mistake must point at the mistake.
    if entries and _is_ours(entries[-1]) and not isinstance(error, FlatoutError):
        kept = entries
    else:
        kept = [entry for entry in entries if not _is_ours(entry)]
    following: TracebackType | None = None
    for entry in reversed(kept):
        entry.tb_next = following
        following = entry
    return following


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_PACKAGE)
