"""How long the validation after an epoch takes."""

from __future__ import annotations

import time
import warnings
from typing import Any

from flatout.doctor.diagnosis_facts import NO_TIME, Interval
from flatout.engines.contract import Engine
from flatout.seam import stock_methods as stock

from .user_data import UserData

_MOST_STEPS, _REPEATS = 20, 3
_OF_EVALUATE = ("x", "y", "sample_weight", "batch_size")


def validation_seconds(model: Any, call: dict[str, Any], engine: Engine) -> tuple[Interval, str]:
    """Seconds of a validation, averaged over epochs, and why it was not timed; by some of its steps."""
    given = call["validation_data"]
    if given is None:
        return NO_TIME, ""
    parts = dict(
        zip(("x", "y", "sample_weight"), given if isinstance(given, (tuple, list)) else (given,), strict=False)
    )
    batch = call["validation_batch_size"] or call["batch_size"]
    empty = {"y": None, "sample_weight": None, "shuffle": False, "class_weight": None}
    data = UserData({**empty, **parts, "batch_size": batch}, engine)
    if data.kind == "generator":
        return NO_TIME, "The validation: what is read of a generator cannot be read again."
    steps = call["validation_steps"] or data.batches_in_pass()
    if steps is None:
        return NO_TIME, "The validation: nobody knows how many steps it has."
    timed = min(max(1, steps - 1), _MOST_STEPS)

    def seconds(count: int) -> float:
        arguments = data.reading(count)
        began = time.perf_counter()
        stock.original("evaluate")(model, **{name: arguments[name] for name in _OF_EVALUATE}, steps=count, verbose=0)
        return time.perf_counter() - began

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds(1)
        start = min(seconds(1) for _ in range(_REPEATS))
        whole = [seconds(1 + timed) for _ in range(_REPEATS)]
    data.put_back()
    # What a validation takes to start is much, beside few small steps.
    samples = [max(one - start, one / (1 + timed)) / timed for one in whole]
    frequency = call["validation_freq"]
    often = 1.0 / frequency if isinstance(frequency, int) else len(frequency) / max(1, call["epochs"])
    found = Interval.of(samples)
    return Interval(*(steps * often * value for value in (found.low, found.mid, found.high))), ""
