"""Train a workload with stock Keras and with flatout in one process, in turns, from the same seed."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import Any, Literal

import keras
import numpy as np

from flatout.base.errors import Reason
from flatout.base.report import RunReport, recorded
from flatout.fit import fit

from .bench_device import device
from .workloads import Workload

Side = Literal["stock", "flatout"]
SIDES: tuple[Side, Side] = ("stock", "flatout")
ENGINES: dict[Side, str] = {"stock": "stock", "flatout": "auto"}
SEED = 7
REAL_EPOCHS = 10
# Relative; float32 sums in another order differ by less after a few epochs of any of the six.
AGREEMENT = 1e-3


@dataclass(frozen=True)
class Timing:
    """One side of a comparison.

    Attributes:
        us_per_step: The median over the epochs after the first of all repeats.
        first_epoch_seconds: From the first call of `fit` to the end of its first epoch, compilation included.
        loss: At the end of training.
        epochs_us_per_step: What the median was taken of.
    """

    us_per_step: float
    first_epoch_seconds: float
    loss: float
    epochs_us_per_step: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """One workload on one backend.

    Attributes:
        ratio: How many times faster flatout is.
        largest_difference: Over every number of the two histories.
        agrees: Whether the histories are equal up to rounding.
        accelerated: False where flatout left the work to stock Keras; `reasons` say why.
        scan_us_per_step: A plain `lax.scan` over `train_step`, where asked for.
    """

    workload: str
    title: str
    backend: str
    device: str
    batch_size: int
    steps: int
    epochs: int
    repeats: int
    stock: Timing
    flatout: Timing
    ratio: float
    largest_difference: float
    agrees: bool
    accelerated: bool
    engine: str
    reasons: tuple[Reason, ...]
    scan_us_per_step: float | None = None


class EpochTimer(keras.callbacks.Callback):
    """When each epoch began and ended, validation included; adds nothing to a step. Stops after `epochs`."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.begins: list[float] = []
        self.ends: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock."""
        self.begins.append(time.perf_counter())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop the clock."""
        self.ends.append(time.perf_counter())
        if len(self.ends) == self.epochs:
            self.model.stop_training = True


@dataclass(frozen=True)
class Run:
    """One training of one side.

    Attributes:
        history: As `fit` returned it.
        epoch_seconds: How long each epoch took.
        epoch_ends: Seconds from the call of `fit` to the end of each epoch.
        seconds: How long `fit` took.
        report: What flatout says that it did.
        weights: At the end.
    """

    history: dict[str, list[float]]
    epoch_seconds: list[float]
    epoch_ends: list[float]
    seconds: float
    report: RunReport
    weights: list[np.ndarray]


def train(
    side: Side,
    workload: Workload,
    x: Any,
    y: Any,
    epochs: int,
    planned: int | None = None,
    precision: str = "exact",
    engine: str | None = None,
    **arguments: Any,
) -> Run:
    """Build the workload's model from the seed and fit it for `epochs`, the first ones of `planned`."""
    keras.utils.set_random_seed(SEED)
    model = workload.build()
    timer = EpochTimer(epochs)
    began = time.perf_counter()
    history = fit(
        model,
        x,
        y,
        batch_size=workload.batch_size,
        epochs=planned or epochs,
        verbose=0,
        callbacks=[timer],
        engine=engine or ENGINES[side],
        precision=precision,
        **arguments,
    )
    seconds = time.perf_counter() - began
    return Run(
        history=history.history,
        epoch_seconds=[end - begin for begin, end in zip(timer.begins, timer.ends, strict=True)],
        epoch_ends=[end - began for end in timer.ends],
        seconds=seconds,
        report=recorded()[-1],
        weights=model.get_weights(),
    )


def largest_difference(one: dict[str, list[float]], other: dict[str, list[float]]) -> float:
    """The largest absolute difference between two histories; NaN equals NaN, and an absent series is infinity."""
    if one.keys() != other.keys():
        return float("inf")
    pairs = [(np.asarray(one[name]), np.asarray(other[name])) for name in one]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max(float(np.max(np.where(np.isnan(a) & np.isnan(b), 0, np.abs(a - b)))) for a, b in pairs)


def agree(one: dict[str, list[float]], other: dict[str, list[float]]) -> bool:
    """Whether two histories hold the same series, equal up to rounding."""
    return one.keys() == other.keys() and all(
        len(one[name]) == len(other[name]) and np.allclose(one[name], other[name], AGREEMENT, AGREEMENT, equal_nan=True)
        for name in one
    )


def compare(
    workload: Workload, *, steps: int | None = None, epochs: int = 3, repeats: int = 3, precision: str = "exact"
) -> Comparison:
    """Measure a workload on the backend that Keras runs on.

    Args:
        workload: What to train.
        steps: Steps of an epoch; the workload's own number for this device if None.
        epochs: Epochs of a training; the first one warms up and does not count.
        repeats: Trainings of each side, in turns, so that a slow minute of the machine hits both.
        precision: Of flatout's side, as `flatout.fit` takes it.
    """
    on = device()
    steps = steps or (workload.gpu_steps if on.is_gpu else workload.cpu_steps)
    x, y = workload.data(steps)
    # flatout weighs compiling against the whole training. A few steps must be judged as the start of a real one.
    planned = max(epochs, REAL_EPOCHS * workload.gpu_steps // steps)
    runs: dict[Side, list[Run]] = {"stock": [], "flatout": []}
    for _, order in zip(range(repeats), itertools.cycle((SIDES, SIDES[::-1])), strict=False):
        for side in order:
            runs[side].append(train(side, workload, x, y, epochs, planned, precision))
    stock, flatout = (_timing(runs[side], steps) for side in SIDES)
    histories = [runs[side][0].history for side in SIDES]
    report = runs["flatout"][0].report
    return Comparison(
        workload=workload.name,
        title=workload.title if precision == "exact" else f"{workload.title}, precision={precision}",
        backend=keras.backend.backend(),
        device=on.name,
        batch_size=workload.batch_size,
        steps=steps,
        epochs=epochs,
        repeats=repeats,
        stock=stock,
        flatout=flatout,
        ratio=stock.us_per_step / flatout.us_per_step,
        largest_difference=largest_difference(*histories),
        agrees=agree(*histories),
        accelerated=report.accelerated,
        engine=report.engine,
        reasons=report.reasons,
    )


def _timing(runs: list[Run], steps: int) -> Timing:
    measured = tuple(seconds / steps * 1e6 for run in runs for seconds in run.epoch_seconds[1:])
    first = runs[0]
    return Timing(statistics.median(measured), first.epoch_ends[0], first.history["loss"][-1], measured)
