"""Microseconds per training step on the torch backend: stock Keras' `fit` and the torch engine, on the reference MLP.

    KERAS_BACKEND=torch python benchmarks/torch_step.py [--steps 1875] [--epochs 3] [--kernels] [--source]

Prints one line for each way to run the step, and on CUDA the kernels of one step.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections import Counter

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

from flatout.engines.torch.engine import TorchEngine

BATCH = 32


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(function) -> float:
    wait()
    start = time.perf_counter()
    function()
    wait()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1875)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--kernels", action="store_true", help="list the CUDA kernels of one step")
    parser.add_argument("--source", action="store_true", help="list the operations of one step")
    arguments = parser.parse_args()
    rows = arguments.steps * BATCH
    generator = np.random.default_rng(0)
    x, y = generator.random((rows, 784), dtype=np.float32), generator.integers(0, 10, rows)

    stock = build()
    stock.fit(x[: 20 * BATCH], y[: 20 * BATCH], batch_size=BATCH, verbose=0)
    stock = build()
    stock_seconds = seconds(lambda: stock.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0))
    stock_step = stock_seconds / arguments.steps * 1e6
    print(f"stock fit             {stock_step:9.1f} us/step")

    model, engine = build(), TorchEngine()
    model._symbolic_build(data_batch=(x[:BATCH], y[:BATCH]))
    model.optimizer.build(model.trainable_variables)
    data = engine.place((x, y))
    start = time.perf_counter()
    program = engine.prepare(model, "train", data, rows, BATCH)
    wait()
    print(f"{type(program.loop).__name__}, prepared in {time.perf_counter() - start:.2f} s, reasons: {program.reasons}")
    model.reset_metrics()
    program.begin_pass(np.arange(rows))
    first = seconds(lambda: program.run(0, arguments.steps, False))
    difference = max(
        (a.value - b.value).abs().max().item()
        for a, b in zip(stock.trainable_variables, model.trainable_variables, strict=True)
    )
    print(f"largest difference of a weight to stock after {arguments.steps} steps: {difference:.2e}")
    print(f"first epoch           {first / arguments.steps * 1e6:9.1f} us/step")
    for every_step in (False, True):
        run = functools.partial(program.run, 0, arguments.steps, every_step)
        took = min(seconds(run) for _ in range(arguments.epochs))
        step = took / arguments.steps * 1e6
        print(f"every_step={every_step!s:<5}      {step:9.1f} us/step   {stock_step / step:.1f} times stock")

    if arguments.source:
        captured = getattr(program.loop, "full", None) or program.loop._full._captured
        for instruction in captured.quiet_graph.instructions:
            print(" ", instruction.target, instruction.args, instruction.kwargs, "->", instruction.results)
    if torch.cuda.is_available():
        for name, run in (("quiet", lambda: program.run(0, 9, False)), ("one", lambda: program.run(0, 1, True))):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                run()
                wait()
            kernels = Counter(event.name[:110] for event in profile.events() if event.device_type.name == "CUDA")
            print(f"{name}: {sum(kernels.values())} device activities" + (" in 9 steps" if name == "quiet" else ""))
            if arguments.kernels and name == "one":
                for kernel, count in kernels.most_common():
                    print(f"  {count:4d}  {kernel}")


if __name__ == "__main__":
    main()
