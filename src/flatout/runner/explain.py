"""`flatout.explain()`: the reports of all calls, and what `flatout check` finds in the losses that ran as written.

The checker takes its time, so no fit waits for it: it is asked when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType
from typing import Any

from flatout.base.errors import Reason, reason
from flatout.base.report import RunReport, recorded
from flatout.base.when_used import keras

# Loops that grow with the data.
_LOOPS = ("FO101", "FO102", "FO103", "FO105", "FO107")
_known: dict[tuple[str, CodeType], tuple[Reason, ...]] = {}


def explain() -> list[RunReport]:
    """The reports of this process' calls, oldest first.

    Example:
        >>> import flatout
        >>> for report in flatout.explain():
        ...     print(report)
    """
    return [_with_findings(report) for report in recorded()]


def _with_findings(report: RunReport) -> RunReport:
    if not report.unchecked:
        return report
    reasons = list(report.reasons)
    for place, function in reversed(report.unchecked):
        reasons[place:place] = about_loss(function)
    return replace(report, reasons=tuple(dict.fromkeys(reasons)), unchecked=())


def about_loss(function: Callable[..., Any]) -> tuple[Reason, ...]:
    """What `flatout check` finds in a loss: what stops it from being compiled, and loops over its data."""
    # A loss that is made anew for every model has the same code.
    key = (function.__code__.co_filename, function.__code__)
    if key not in _known:
        _known[key] = tuple(_found(function))
    return _known[key]


def _found(function: Any) -> Iterator[Reason]:
    from flatout.check.examining.examine import findings_of

    backend = keras.backend.backend()
    found = findings_of(function, backend)
    errors = [one for one in found if one.severity == "error"]
    loops = [one for one in found if one.code in _LOOPS and one.severity != "info"]
    place = f"`{function.__name__}` ({function.__code__.co_filename}:{function.__code__.co_firstlineno})"
    if errors:
        yield reason("loss_error", place, f"{_lines(errors)}, on {backend}: {errors[0].message}")
    if loops:
        yield reason("loss_loop", place, _lines(loops))


def _lines(findings: list[Any]) -> str:
    return ", ".join(dict.fromkeys(f"{one.code} in line {one.line}" for one in findings))
