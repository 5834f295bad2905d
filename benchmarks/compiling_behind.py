"""What compiling the step behind a run costs a run that ends before it is done: nothing, it should be.

    python benchmarks/compiling_behind.py seed convnet --seconds 8 --repeats 3

For CUDA and Keras on torch. The same fit is run without a compiler and with one that begins in its first seconds and
finds nothing on disk; both are stopped after as many epochs as took `--seconds` at first. Printed are the medians and
their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile

os.environ["KERAS_BACKEND"] = "torch"

import torch

from flatout.bench.comparison import train
from flatout.bench.workloads import WORKLOADS, Workload
from flatout.engines.torch.compiled import compilation

# Epochs that a fit is told to have: a run that is worth compiling for.
_LONG = 100_000


def seconds(workload: Workload, x: object, y: object, epochs: int, compiles: bool) -> float:
    """Of a fit's epochs but the first, in which the step is recorded."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        run = train("torch", workload, x, y, epochs, _LONG if compiles else epochs)
        codes = {why.code for why in run.report.reasons}
        assert not codes & {"compiled_behind", "not_compiled"}, "the run was long enough to see the compiled step"
        has_begun = compilation._worker()._process is not None
        assert has_begun or not compiles, "nothing was compiled"
        compilation._worker().close()
        compilation._worker.cache_clear()
    return sum(run.epoch_seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["seed", "convnet"], choices=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; medians of {given.repeats} repeats\n")
    print("| model | without, s | compiling behind, s | ratio |\n| --- | ---: | ---: | ---: |")
    for name in given.names:
        workload = WORKLOADS[name]
        x, y = workload.data(workload.gpu_steps)
        epochs = 1 + max(3, int(3 * given.seconds / seconds(workload, x, y, 4, compiles=False)))
        times: dict[bool, list[float]] = {False: [], True: []}
        for repeat in range(given.repeats):
            for compiles in (False, True) if repeat % 2 == 0 else (True, False):
                times[compiles].append(seconds(workload, x, y, epochs, compiles))
        plain, behind = (statistics.median(times[compiles]) for compiles in (False, True))
        print(f"| {workload.title} | {plain:.2f} | {behind:.2f} | {behind / plain:.3f} |", flush=True)


if __name__ == "__main__":
    main()
