"""How long the validation after an epoch takes."""

from __future__ import annotations

import time
import warnings
from typing import Any

from flatout.base.when_used import keras
from flatout.doctor.diagnosis_facts import Interval
from flatout.seam import stock_methods as stock

_MOST_STEPS, _REPEATS = 20, 3
NONE = Interval(0.0, 0.0, 0.0)


def validation_seconds(model: Any, call: dict[str, Any]) -> tuple[Interval, str]:
    """Seconds of a validation, averaged over epochs, and why it was not timed; by some of its steps."""
    data = call["validation_data"]
    if data is None:
        return NONE, ""
    if not isinstance(data, (tuple, list)) or not all(hasattr(leaf, "shape") for leaf in keras.tree.flatten(data[0])):
        return NONE, "The validation: its data are no arrays."
    arguments = dict(zip(("x", "y", "sample_weight"), data, strict=False))
    rows = len(keras.tree.flatten(data[0])[0])
    batch = call["validation_batch_size"] or call["batch_size"] or 32
    steps = call["validation_steps"] or -(-rows // batch)
    timed = min(max(1, rows // batch - 1), _MOST_STEPS)

    def seconds(count: int) -> float:
        began = time.perf_counter()
        stock.original("evaluate")(model, **arguments, batch_size=batch, steps=count, verbose=0)
        return time.perf_counter() - began

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds(1)
        start = min(seconds(1) for _ in range(_REPEATS))
        whole = [seconds(1 + timed) for _ in range(_REPEATS)]
    # What a validation takes to start is much, beside few small steps.
    samples = [max(one - start, one / (1 + timed)) / timed for one in whole]
    frequency = call["validation_freq"]
    often = 1.0 / frequency if isinstance(frequency, int) else len(frequency) / max(1, call["epochs"])
    found = Interval.of(samples)
    return Interval(*(steps * often * value for value in (found.low, found.mid, found.high))), ""
