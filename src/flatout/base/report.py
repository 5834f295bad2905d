"""What flatout did: one `RunReport` for each fit, evaluate or predict, in the order they ended."""

from __future__ import annotations

import collections
import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .errors import Reason

# A grid search makes thousands of calls; the oldest reports go first.
_KEPT = 10_000
_reports: collections.deque[RunReport] = collections.deque(maxlen=_KEPT)
_apart: contextvars.ContextVar[list[RunReport] | None] = contextvars.ContextVar("reports_apart", default=None)


@dataclass(frozen=True)
class RunReport:
    """One call of `fit`, `evaluate` or `predict`.

    Attributes:
        method: `"fit"`, `"evaluate"` or `"predict"`.
        accelerated: False when stock Keras ran.
        engine: `"jax"`, `"tensorflow"`, `"torch"`, `"native"` or `"stock"`.
        data: Where the rows lived: `"resident"`, `"streamed"`, `"direct"`, or `"host"` under stock Keras.
        steps: Training, test or prediction steps taken; 0 where stock Keras ran and did not say.
        seconds: Wall time of the call.
        reasons: Why stock Keras ran, or why a slower way was taken; often empty.
        loads: The path that the bytes of files took: a `DirectReport` for each that was read before the first step, a
            `StreamReport` for what was decoded beside the steps.
        ended_by: The exception that cut the call short, such as `"KeyboardInterrupt"`; mostly empty.
        unchecked: The user's losses and metrics that ran as they are written, each with the place among the reasons
            for what is to be said of it. Nobody has asked `flatout check` about them yet; `flatout.explain()` does.
    """

    method: str
    accelerated: bool
    engine: str
    data: str
    steps: int
    seconds: float
    reasons: tuple[Reason, ...] = ()
    loads: tuple[Any, ...] = ()
    ended_by: str = ""
    unchecked: tuple[tuple[int, Callable[..., Any]], ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        what = f"{self.method}: {self.engine}, {self.data} data, {self.steps} steps, {self.seconds:.2f} s"
        what += f", ended by {self.ended_by}" if self.ended_by else ""
        return "\n".join([what, *(f"  {line}" for line in (*self.reasons, *self.loads))])


def record(report: RunReport) -> None:
    apart = _apart.get()
    (_reports if apart is None else apart).append(report)


@contextlib.contextmanager
def recorded_apart() -> Iterator[list[RunReport]]:
    """Meanwhile, record what runs here in a list of its own: the user did not call it."""
    reports: list[RunReport] = []
    token = _apart.set(reports)
    try:
        yield reports
    finally:
        _apart.reset(token)


def recorded() -> list[RunReport]:
    """The reports of this process' calls, oldest first."""
    return list(_reports)


def summary_line(reports: list[RunReport]) -> str | None:
    """One line for the end of a run, or None if nothing was fitted, evaluated or predicted."""
    if not reports:
        return None
    fast = [report for report in reports if report.accelerated]
    steps = sum(report.steps for report in fast)
    seconds = sum(report.seconds for report in fast)
    parts = [_calls(fast) + f" accelerated, {steps} steps in {seconds:.2f} s"] if fast else ["nothing accelerated"]
    stock = [report for report in reports if not report.accelerated]
    if stock:
        # What was said of a loss is no reason for stock Keras.
        about_losses = ("vectorized", "not_vectorized", "loss_loop", "loss_error")
        reasons = (why.code for report in stock for why in report.reasons if why.code not in about_losses)
        codes = collections.Counter(reasons)
        why = ", ".join(f"{code} x{count}" if count > 1 else code for code, count in codes.items())
        parts.append(f"{_calls(stock)} on stock Keras ({why})")
    return "flatout: " + "; ".join(parts)


def _calls(reports: list[RunReport]) -> str:
    counts = collections.Counter(report.method for report in reports)
    return ", ".join(f"{count} {method}" for method, count in counts.items())
