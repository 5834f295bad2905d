"""The same fit by flatout's engine, with each placement of the data: how long a step takes once it runs."""

from __future__ import annotations

import contextlib
import io
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatout.base.options import options
from flatout.base.report import RunReport, recorded_apart
from flatout.base.when_used import keras
from flatout.doctor.diagnosis_facts import Interval
from flatout.fit import conduct

from .user_data import UserData

# The first epoch places the data and compiles, the second may still exchange the step for a faster form of it.
_EPOCHS, _NOT_TIMED = 6, 2
_SECONDS_OF_AN_EPOCH = 0.15
# Epochs that are too short to be timed well: more of them.
_SHORT_EPOCH, _MANY_EPOCHS = 0.02, 40
_REPEATS = 3


@dataclass(frozen=True)
class FlatoutRun:
    """A fit of some epochs by flatout.

    Attributes:
        placement: Of the data, as asked for.
        seconds: Of a step.
        times: How many times faster than stock Keras a step is, which was timed before and after.
        report: What flatout says about it.
    """

    placement: str
    seconds: Interval
    times: Interval
    report: RunReport


def run_flatout(
    model: Any, data: UserData, callbacks: Callable[[], list[Any]], placement: str, stock_step: Callable[[], float]
) -> FlatoutRun | None:
    """Some epochs with this placement, between some steps of stock Keras; None if the data ended first."""
    seconds: list[float] = []
    times: list[float] = []
    before, epochs = stock_step(), _EPOCHS
    for _ in range(_REPEATS):
        steps = _steps(data, before)
        arguments = {**data.reading(steps), "steps_per_epoch": steps, "epochs": epochs}
        ends, report = _epochs(model, arguments, callbacks(), placement)
        after = stock_step()
        if len(ends) < epochs:
            return None
        lengths = [later - end for end, later in zip(ends[_NOT_TIMED - 1 :], ends[_NOT_TIMED:], strict=False)]
        step = statistics.median(lengths) / steps
        seconds.append(step)
        times += [before / step, after / step]
        before = after
        if statistics.median(lengths) < _SHORT_EPOCH and data.kind != "generator":
            epochs = _MANY_EPOCHS
    faster = Interval(min(times), statistics.median(times), max(times))
    return FlatoutRun(placement, Interval.of(seconds), faster, report)


def _steps(data: UserData, seconds_of_step: float) -> int:
    """Of an epoch, so that it can be timed; flatout's are mostly quicker than these."""
    # Each batch of a generator is kept for the fit itself.
    quicker = 1 if data.kind == "generator" else 4
    steps = max(2, min(2000, round(quicker * _SECONDS_OF_AN_EPOCH / seconds_of_step)))
    in_pass = data.batches_in_pass()
    return steps if in_pass is None else min(steps, in_pass)


def _epochs(
    model: Any, arguments: dict[str, Any], callbacks: list[Any], placement: str
) -> tuple[list[float], RunReport]:
    """When each epoch ended, and flatout's report."""
    ends: list[float] = []
    stamp = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(options(data=placement, enabled=True, force=True))
        reports = stack.enter_context(recorded_apart())
        conduct("fit", model, (), {**arguments, "verbose": 0, "callbacks": [*callbacks, stamp]})
    return ends, reports[-1]
