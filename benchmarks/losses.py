"""Losses: stock Keras and flatout side by side.

    KERAS_BACKEND=jax python benchmarks/losses.py            # also tensorflow, torch
    KERAS_BACKEND=torch python benchmarks/losses.py --only loop --batch 128 --steps 20 --json losses.json

`loop`: four losses that loop over the batch or over time, inside stock `fit`, as they are and with `flatout.vectorize`:
the time to the first step (compilation included), that of a step after that, and how long the proof took, which is done
once and is not in these figures. The floor is the first step of the same model with a loss of Keras' own: what
compiling the model costs. Then the same with `flatout.fit`, in a process with an empty cache and in a second one.

`class`: a margin loss with two columns of a class table. Stock Keras looks each label up in pandas, as users write it,
which needs `run_eagerly=True`; flatout compiles the same loss with a `flatout.Table`.

`sample`: a weight for each sample from a table of a million rows. The same model is trained on the same rows with and
without the join, in turns, with flatout's engine and with stock Keras' own `fit`.

`join`: the join alone, compiled, for batches of 256 and 4096 keys.

Each figure of the tables is that of the fastest epoch. `--cpu-time` counts processor time there, for a machine on which
other work runs; with OMP_NUM_THREADS=1 torch's threads do not count their waiting for each other.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
PARTS = ("loop", "class", "sample", "join")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts (default: all)")
    parser.add_argument("--batch", type=int, default=128, help="batch size of the loop (default: 128)")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each figure of the loop (default: 3)")
    parser.add_argument("--steps", type=int, help="steps of an epoch (default: 30 for the loop, 200 for the tables)")
    parser.add_argument("--cpu-time", action="store_true", help="processor time instead of wall-clock time (tables)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    flags = parser.parse_args()

    import keras
    from losses_with_loops import measure_loop
    from losses_with_tables import measure_tables, use_processor_time

    from flatout.bench.bench_device import device

    print(f"{keras.backend.backend()} on {device().name}")
    report: dict[str, Any] = {"backend": keras.backend.backend(), "device": device().name}
    if "loop" in flags.only:
        report["loop"] = measure_loop(flags.batch, flags.steps or 30, flags.repeats)
    if flags.cpu_time:
        use_processor_time()
    if set(flags.only) & {"class", "sample", "join"}:
        report |= measure_tables(flags.only, flags.steps or 200)
    if flags.json:
        flags.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
