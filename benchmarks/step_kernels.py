"""Where the GPU's time in a step goes: the kernels of the models of `flatout bench` under flatout, by their time.

    KERAS_BACKEND=jax python benchmarks/step_kernels.py tabular convnet
    KERAS_BACKEND=torch python benchmarks/step_kernels.py resnet20 --seconds 100

One epoch is seen by the backend's profiler, after as many seconds as the step may need to become what it stays.
"Idle" is the time between kernels. A copy from the host is an epoch's order of rows.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import time
from collections import defaultdict
from typing import Any

import keras
from rich.console import Console
from rich.table import Table

import flatout
from flatout.bench.comparison import SEED
from flatout.bench.workloads import WORKLOADS, Workload
from flatout.doctor.measuring.device_activity import DeviceSpan, device_spans, seconds_covered

_LONG = 100_000
_WIDTH = 90


class Profiled(keras.callbacks.Callback):
    """Has an epoch profiled once the step is what it stays, and stops after it."""

    def __init__(self, epochs_before: int, seconds_before: float):
        super().__init__()
        self.spans: list[DeviceSpan] = []
        self.seconds: list[float] = []
        self._wait = epochs_before, time.monotonic() + seconds_before
        self._is_last = False
        self._profile = contextlib.ExitStack()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        first, earliest = self._wait
        if epoch >= first and time.monotonic() > earliest:
            self._is_last = True
            self.spans = self._profile.enter_context(device_spans())
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        seconds = time.perf_counter() - self._began
        self._profile.close()
        if self._is_last:
            self.model.stop_training = True
        else:
            self.seconds.append(seconds)


def profiled(workload: Workload, steps: int, seconds: float) -> Profiled:
    x, y = workload.data(steps)
    keras.utils.set_random_seed(SEED)
    callback = Profiled(3, seconds)
    arguments: dict[str, Any] = {"batch_size": workload.batch_size, "epochs": _LONG, "verbose": 0}
    # Not "auto", which may take native kernels.
    flatout.fit(workload.build(), x, y, callbacks=[callback], engine=keras.config.backend(), **arguments)
    return callback


def table_of(title: str, spans: list[DeviceSpan], steps: int, most: int) -> Table:
    kinds: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        kinds[span.name].append(1e6 * (span.ended - span.began) / steps)
    table = Table("kernel", "launches", "us a step", "share", title=title, title_justify="left")
    whole = 1e6 * (max(span.ended for span in spans) - min(span.began for span in spans)) / steps
    by_time = sorted(kinds.items(), key=lambda kind: -sum(kind[1]))
    for name, times in by_time[:most]:
        _add(table, re.sub(r"^void |<.*", "", name)[:_WIDTH] or name[:_WIDTH], len(times) / steps, sum(times), whole)
    rest = [times for _, times in by_time[most:]]
    if rest:
        _add(table, f"{len(rest)} others", sum(map(len, rest)) / steps, sum(map(sum, rest)), whole)
    table.add_section()
    _add(table, "idle", None, whole - 1e6 * seconds_covered(spans) / steps, whole)
    _add(table, "all, under the profiler", len(spans) / steps, whole, whole)
    return table


def _add(table: Table, name: str, launches: float | None, us: float, whole: float) -> None:
    table.add_row(name, "" if launches is None else f"{launches:.2f}", f"{us:.1f}", f"{us / whole:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKLOADS)}; all by default")
    parser.add_argument("--most", type=int, default=20, help="kernels in a table")
    parser.add_argument("--steps", type=int, help="of an epoch; default: as in `flatout bench`")
    parser.add_argument("--seconds", type=float, default=0, help="of training before; on torch Inductor may take 100")
    given = parser.parse_args()
    console = Console(width=140)
    for name in given.names or WORKLOADS:
        workload = WORKLOADS[name]
        steps = given.steps or workload.gpu_steps
        found = profiled(workload, steps, given.seconds)
        if not found.spans:
            console.print(f"{name}: no profiler saw a GPU at work")
            continue
        us = 1e6 * min(found.seconds[-3:]) / steps
        console.print(table_of(f"{name}, {us:.1f} us a step without a profiler", found.spans, steps, given.most))


if __name__ == "__main__":
    main()
