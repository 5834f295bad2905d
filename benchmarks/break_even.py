"""After how many steps flatout has repaid what it costs to start, for each model of `flatout bench`.

    KERAS_BACKEND=jax python benchmarks/break_even.py [NAME...] [--steps 600]

Each side trains in a process of its own, without any compilation cache on disk, in epochs of 20 steps, and notes the
time since `fit` was called at the end of each. flatout breaks even at the first epoch from which on it is ahead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from typing import Literal

EPOCH = 20


def main() -> None:
    """Measure both sides of each model and print a line for it."""
    from flatout.bench.workloads import WORKLOADS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; all if none is named")
    parser.add_argument("--steps", type=int, default=600, help="steps of the whole training (default: 600)")
    parser.add_argument("--side", choices=["stock", "flatout"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        _train(arguments.names[0], arguments.side, arguments.steps)
        return
    print(f"{'model':<12}{'stock s':>9}{'flatout s':>11}{'first epoch':>16}{'even after':>12}")
    for name in arguments.names or WORKLOADS:
        stock, flatout = (_in_a_process(name, side, arguments.steps) for side in ("stock", "flatout"))
        behind = [number for number, (one, other) in enumerate(zip(stock, flatout, strict=True)) if other > one]
        even = f"{(behind[-1] + 2 if behind else 1) * EPOCH} steps"
        if behind and behind[-1] == len(stock) - 1:
            even = "never"
        firsts = f"{stock[0]:.1f} / {flatout[0]:.1f} s"
        print(f"{name:<12}{stock[-1]:>9.1f}{flatout[-1]:>11.1f}{firsts:>16}{even:>12}", flush=True)


def _in_a_process(name: str, side: str, steps: int) -> list[float]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FLATOUT_FORCE": "1", "XDG_CACHE_HOME": cache}
        command = [sys.executable, __file__, name, "--steps", str(steps), "--side", side]
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{name} with {side} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def _train(name: str, side: Literal["stock", "flatout"], steps: int) -> None:
    from flatout.bench.comparison import SIDES, train
    from flatout.bench.workloads import WORKLOADS

    workload = WORKLOADS[name]
    x, y = workload.data(EPOCH)
    print(json.dumps(train(SIDES[side], workload, x, y, steps // EPOCH).epoch_ends))


if __name__ == "__main__":
    main()
