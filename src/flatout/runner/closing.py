"""The closing line: what was accelerated and what was not, on stderr, when the program ends."""

from __future__ import annotations

import atexit
import os
import sys

from flatout.base.report import RunReport, recorded, summary_line

from .explain import explain
from .notice import write


def announce_at_exit(with_reports: bool) -> None:
    """Write the closing line when this process ends; `with_reports` adds every call with its reasons.

    Call it before the program starts: exit functions run in reverse order, so ours comes last.
    """
    atexit.register(_announce, os.getpid(), with_reports)


def _announce(process: int, with_reports: bool) -> None:
    # A child made by os.fork() inherits the exit functions; the line is its parent's.
    if os.getpid() != process:
        return
    line = summary_line(recorded())
    if line is None:
        return
    if with_reports:
        reports = explain()
        write(_table(reports) if _is_terminal() else "\n".join(map(str, reports)))
    write(line)


def _is_terminal() -> bool:
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False


def _table(reports: list[RunReport]) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table("call", "engine", "data", "steps", "seconds", "why", title="flatout", title_justify="left")
    for one in reports:
        ended = [f"ended by {one.ended_by}"] if one.ended_by else []
        why = "\n".join([*ended, *map(str, one.reasons)])
        table.add_row(one.method, one.engine, one.data, str(one.steps), f"{one.seconds:.2f}", why)
    console = Console(stderr=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")
