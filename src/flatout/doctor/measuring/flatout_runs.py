"""The same fit by flatout's engine, with each placement of the data: how long a step takes once it runs."""

from __future__ import annotations

import contextlib
import io
import time
import warnings
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


@dataclass(frozen=True)
class FlatoutRun:
    """A fit of some epochs by flatout; `seconds` of a step, `until_steady` before the epochs that were timed."""

    placement: str
    seconds: Interval
    until_steady: float
    report: RunReport


def run_flatout(
    model: Any, data: UserData, callbacks: list[Any], placement: str, seconds_of_step: float
) -> FlatoutRun | None:
    """Some epochs with this placement; None if the data ended first."""
    steps = max(8, min(2000, round(4 * _SECONDS_OF_AN_EPOCH / seconds_of_step)))
    if data.kind == "generator":
        # Each batch is kept for the fit itself.
        steps = max(4, min(steps, round(_SECONDS_OF_AN_EPOCH / seconds_of_step)))
    in_pass = data.batches_in_pass()
    if in_pass is not None:
        steps = min(steps, in_pass)
    ends: list[float] = []
    stamp = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    arguments = {**data.reading(steps), "steps_per_epoch": steps, "epochs": _EPOCHS, "verbose": 0}
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(options(data=placement, enabled=True, force=True))
        reports = stack.enter_context(recorded_apart())
        conduct("fit", model, (), {**arguments, "callbacks": [*callbacks, stamp]})
    if len(ends) < _EPOCHS:
        return None
    lengths = [after - before for before, after in zip(ends[_NOT_TIMED - 1 :], ends[_NOT_TIMED:], strict=False)]
    return FlatoutRun(
        placement, Interval.of([length / steps for length in lengths]), ends[_NOT_TIMED - 1] - began, reports[-1]
    )
