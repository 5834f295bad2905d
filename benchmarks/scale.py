"""What `workers=` itself costs, and what it could gain: measured with one worker, projected for more.

    KERAS_BACKEND=torch python benchmarks/scale.py
    KERAS_BACKEND=jax python benchmarks/scale.py --model convnet --launcher ray

An epoch of plain flatout and one of a single worker process are timed side by side, each the median of those after
the first, by a callback of each. A worker alone sums nothing with anybody: the difference is what the process, and the
line to it, cost. The projection is no measurement: a step's time here, divided among GPUs, and the bytes of all
gradients over links of published rates, neither beside the other; what a step costs whatever its batch is taken from a
batch of half the size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import keras
import numpy as np
from rich.console import Console
from rich.table import Table

import flatout
from flatout.bench import models

# Bytes a second in each direction, as published: NVLink of an H100 or H200, and InfiniBand NDR for each GPU.
_LINKS = {"8 GPUs, NVLink": (8, 450e9), "64 nodes of 8, InfiniBand": (512, 50e9)}
_SECONDS_OF_A_SUM = 20e-6


class EpochTimes(keras.callbacks.Callback):
    """Comes back from another process with what it has seen there."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends.append(time.time())


def main() -> None:
    given = _arguments()
    shape = (28, 28, 1) if given.model == "convnet" else (28, 28)
    random = np.random.default_rng(0)
    x, y = random.random((given.rows, *shape), "float32"), random.integers(0, 10, given.rows)
    plain, process, started, halves = [], [], [], []
    for _ in range(given.repeats):
        plain.append(_epoch(given, x, y, given.batch_size, None)[0])
        seconds, before = _epoch(given, x, y, given.batch_size, given.launcher)
        process.append(seconds)
        started.append(before)
        halves.append(_epoch(given, x, y, given.batch_size // 2, None)[0])
    steps = given.rows // given.batch_size
    here, there = statistics.median(plain), statistics.median(process)
    print(f"{given.model}, batches of {given.batch_size}, {steps} steps an epoch, {keras.config.backend()}")
    print(f"plain flatout            {1e6 * here / steps:10.0f} us a step")
    print(f"one worker ({given.launcher:5})       {1e6 * there / steps:10.0f} us a step, {there / here:.2f} of plain")
    print(f"until its first epoch ends {statistics.median(started):8.1f} s: processes, imports, compiling")
    _project(given, here / steps, statistics.median(halves) / (2 * steps))


def _epoch(given: argparse.Namespace, x: Any, y: Any, batch_size: int, launcher: str | None) -> tuple[float, float]:
    """Seconds of an epoch, and those until the first has ended."""
    keras.utils.set_random_seed(1)
    model, times, began = getattr(models, given.model)(), EpochTimes(), time.time()
    with flatout.options(launcher=launcher, force=True):
        flatout.fit(model, x, y, batch_size=batch_size, epochs=given.epochs, verbose=0, callbacks=[times])
    between = [after - before for before, after in zip(times.ends, times.ends[1:], strict=False)]
    return statistics.median(between), times.ends[0] - began


def _project(given: argparse.Namespace, step: float, half: float) -> None:
    fixed = max(0.0, 2 * half - step)
    nbytes = 4 * getattr(models, given.model)().count_params()
    table = Table(title=f"a projection, not a measurement: {nbytes / 1e6:.1f} MB of gradients a step")
    for column in ("", "sum, us", "same batch: times faster", "same rows a GPU: efficiency"):
        table.add_column(column, justify="right" if column else "left")
    for name, (devices, rate) in _LINKS.items():
        total = _SECONDS_OF_A_SUM + 2 * nbytes * (devices - 1) / devices / rate
        divided = step / (fixed + (step - fixed) / min(devices, given.batch_size) + total)
        table.add_row(name, f"{1e6 * total:.0f}", f"{divided:.1f}", f"{step / (step + total):.0%}")
    Console(width=100).print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["seed", "convnet"], default="seed")
    parser.add_argument("--launcher", choices=["local", "ray"], default="local")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
