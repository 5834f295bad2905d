"""The doctor's verdicts on the six models of `flatout bench`, as stock Keras runs them:

KERAS_BACKEND=torch python benchmarks/doctor_bench_models.py --html reports
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
from rich.console import Console
from rich.table import Table

import flatout
from flatout.bench import bench_device
from flatout.bench.workloads import WORKLOADS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(WORKLOADS), help=f"default: {' '.join(WORKLOADS)}")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each; default: 60")
    parser.add_argument("--html", type=Path, help="a folder for the reports")
    given = parser.parse_args()
    table = Table("model", "step", "verdict", "flatout", "seconds")
    for name in given.names:
        workload = WORKLOADS[name]
        steps = workload.gpu_steps if bench_device.device().is_gpu else workload.cpu_steps
        x, y = workload.data(steps)
        batch_size = workload.batch_size
        diagnosis = flatout.diagnose(
            workload.build(), x, y, batch_size=batch_size, epochs=100, verbose=0, budget=given.budget
        )
        gains = [one.gain for one in diagnosis.findings if one.is_automatic and one.gain is not None]
        gain = f"{gains[0].times:.1f} times faster ({gains[0].low:.1f} to {gains[0].high:.1f})" if gains else "-"
        table.add_row(name, f"{1e6 * diagnosis.step.mid:,.0f} us", diagnosis.verdict, gain, f"{diagnosis.seconds:.0f}")
        if given.html is not None:
            given.html.mkdir(parents=True, exist_ok=True)
            diagnosis.save_html(given.html / f"{keras.config.backend()}-{name}.html")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
