"""Train a workload with stock Keras and with flatout in one process, in turns, from the same seed; tell the result."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import keras
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Column, Table

from flatout.base.errors import Reason
from flatout.base.report import RunReport, recorded
from flatout.fit import fit

from .bench_device import device
from .workloads import Workload

# The engine of each side.
SIDES = {"stock": "stock", "flatout": "auto"}
SEED = 7
# Relative; float32 sums in another order differ by less after a few epochs of any of the six.
AGREEMENT = 1e-3
# On a GPU the order of sums varies, and runs of stock Keras differ among themselves; flatout's may by some times that.
_SPREADS = 3


@dataclass(frozen=True)
class Timing:
    """One side: a step in the epochs after the first of all repeats, the first with its compilation, the end's loss."""

    us_per_step: float
    first_epoch_seconds: float
    loss: float
    epochs_us_per_step: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """One workload on one backend.

    The histories of the two sides agree if they are equal up to rounding, or as near as those of stock Keras'
    repeats, which are `stock_spread` apart.
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
    stock_spread: float
    agrees: bool
    accelerated: bool
    engine: str
    reasons: tuple[Reason, ...]
    scan_us_per_step: float | None = None


class EpochTimer(keras.callbacks.Callback):
    """When each epoch ended, validation included; adds nothing to a step. Stops after `epochs`."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())
        if len(self.ends) == self.epochs:
            self.model.stop_training = True


@dataclass(frozen=True)
class Run:
    """One training of one side; seconds count from the call of `fit`, to its epochs' ends and to its return."""

    history: dict[str, list[float]]
    epoch_ends: list[float]
    seconds: float
    report: RunReport
    weights: list[np.ndarray]

    @property
    def epoch_seconds(self) -> list[float]:
        """How long each epoch took, the first with all that came before it."""
        return np.diff(self.epoch_ends, prepend=0.0).tolist()


def train(
    engine: str, workload: Workload, x: Any, y: Any, epochs: int, planned: int | None = None, **arguments: Any
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
        engine=engine,
        **arguments,
    )
    seconds = time.perf_counter() - began
    return Run(history.history, [end - began for end in timer.ends], seconds, recorded()[-1], model.get_weights())


def largest_difference(one: dict[str, list[float]], other: dict[str, list[float]]) -> float:
    """The largest absolute difference between two histories; NaN equals NaN, and an absent series is infinity."""
    if one.keys() != other.keys():
        return float("inf")
    pairs = [(np.asarray(one[name]), np.asarray(other[name])) for name in one]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max(float(np.max(np.where(np.isnan(a) & np.isnan(b), 0, np.abs(a - b)))) for a, b in pairs)


def agree(one: dict[str, list[float]], other: dict[str, list[float]], spread: float = 0.0) -> bool:
    """Whether two histories hold the same series, equal up to rounding; `spread` is what their like are apart."""
    # Infinite where stock Keras' own runs have other series, or ended elsewhere: that excuses nothing.
    apart = max(AGREEMENT, _SPREADS * spread) if np.isfinite(spread) else AGREEMENT
    return one.keys() == other.keys() and all(
        len(one[name]) == len(other[name]) and np.allclose(one[name], other[name], AGREEMENT, apart, equal_nan=True)
        for name in one
    )


def compare(
    workload: Workload,
    *,
    steps: int | None = None,
    epochs: int = 3,
    planned: int = 10,
    repeats: int = 3,
    precision: str = "exact",
) -> Comparison:
    """Measure a workload on the backend that Keras runs on.

    The first of `epochs` warms up and does not count. Trainings of the sides take turns, so that a slow minute of the
    machine hits both. Without `steps`, an epoch has as many as the workload has on this device. They are the first ones
    of a training of `planned` full epochs, whose length decides what is worth compiling.
    """
    on = device()
    steps = steps or (workload.gpu_steps if on.is_gpu else workload.cpu_steps)
    x, y = workload.data(steps)
    # flatout weighs compiling against the whole training. A few steps must be judged as the start of a real one.
    planned = max(epochs, planned * workload.gpu_steps // steps)
    runs: dict[str, list[Run]] = {side: [] for side in SIDES}
    for repeat in range(repeats):
        for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
            runs[side].append(train(SIDES[side], workload, x, y, epochs, planned, precision=precision))
    stock, flatout = (_timing(runs[side], steps) for side in SIDES)
    theirs, ours = (runs[side][0].history for side in SIDES)
    spread = max(largest_difference(theirs, run.history) for run in runs["stock"])
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
        largest_difference=largest_difference(theirs, ours),
        stock_spread=spread,
        agrees=agree(theirs, ours, spread),
        accelerated=report.accelerated,
        engine=report.engine,
        reasons=report.reasons,
    )


def _timing(runs: list[Run], steps: int) -> Timing:
    measured = tuple(seconds / steps * 1e6 for run in runs for seconds in run.epoch_seconds[1:])
    first = runs[0]
    return Timing(statistics.median(measured), first.epoch_ends[0], first.history["loss"][-1], measured)


def print_table(console: Console, comparisons: Sequence[Comparison]) -> None:
    """Print one line for each comparison, and below it why something was not accelerated."""
    with_scan = any(one.scan_us_per_step is not None for one in comparisons)
    table = Table(Column("model", no_wrap=True), "backend", box=box.SIMPLE_HEAD, pad_edge=False)
    times = ("stock\nus/step", "flatout\nus/step", *(["scan\nus/step"] if with_scan else []), "times\nfaster")
    for heading in (*times, "1st epoch\nstock", "1st epoch\nflatout", "end loss\nstock", "end loss\nflatout"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ran on")
    for one in comparisons:
        scan = [_microseconds(one.scan_us_per_step) if one.scan_us_per_step else ""] if with_scan else []
        colour = "green" if one.ratio >= 1.05 else "red" if one.ratio < 0.95 else "default"
        table.add_row(
            one.workload,
            one.backend,
            _microseconds(one.stock.us_per_step),
            _microseconds(one.flatout.us_per_step),
            *scan,
            f"[{colour}]{one.ratio:.2f}[/]",
            f"{one.stock.first_epoch_seconds:.2f} s",
            f"{one.flatout.first_epoch_seconds:.2f} s",
            f"{one.stock.loss:.5f}",
            f"{one.flatout.loss:.5f}" if one.agrees else f"[red]{one.flatout.loss:.5f}[/]",
            one.engine if one.accelerated else "stock Keras: " + ", ".join(why.code for why in one.reasons),
        )
    console.print(table)
    for one in comparisons:
        for why in () if one.accelerated else one.reasons:
            console.print(f"{one.workload} ran on stock Keras. {why.message}", highlight=False)
        if not one.agrees:
            console.print(
                f"[red]{one.workload}: the histories differ by up to {one.largest_difference:.2g}[/]", highlight=False
            )


def as_json(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What `--json` writes: versions, machine and one entry for each comparison."""
    versions = {}
    for package in ("flatout", "keras", "jax", "jaxlib", "tensorflow", "torch", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "format": 1,
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "results": [dataclasses.asdict(one) for one in comparisons],
    }


def _microseconds(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
