"""Sentences for the user on stderr, which never break the user's program; the last one tells what was accelerated."""

from __future__ import annotations

import atexit
import os
import sys

from flatout.base.report import RunReport, recorded, summary_line

from .explain import explain


def tell(message: str) -> None:
    """Write `flatout: message` on stderr; a closed or broken stderr is no error."""
    write(f"flatout: {message}")


def write(text: str) -> None:
    """Write a text on stderr after what the program has printed so far; says nothing where nobody listens."""
    for stream, output in ((sys.stdout, ""), (sys.stderr, text + "\n")):
        # A stream is None without a console, closed (ValueError) or a broken pipe (OSError).
        try:
            if stream is not None:
                stream.write(output)
                stream.flush()
        except (OSError, ValueError):
            pass


def announce_at_exit(with_reports: bool) -> None:
    """Write the closing line when this process ends; `with_reports` adds every call with its reasons.

    Call it before the program starts: exit functions run in reverse order, so ours comes last.
    """
    process = os.getpid()

    @atexit.register
    def announce() -> None:
        line = summary_line(recorded())
        # A child made by os.fork() inherits the exit functions; the line is its parent's.
        if os.getpid() != process or line is None:
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
