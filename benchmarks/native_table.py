"""Where `engine="auto"` trains by one kernel, and that it is never slower there than the engine of the backend.

    KERAS_BACKEND=jax python benchmarks/native_table.py

Dense networks over 784 features with Adam: a line for each width, depth and batch size, the others as in the seed model
(128 units, one hidden layer, batch 32). Each is trained with the backend's engine and with `auto`, in turns in one run.
The last columns are of a kernel a stage, which runs when it is asked for. `--grid` goes over all combinations instead,
and has a line for each that `auto` trains by one kernel.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from typing import Any

import keras
import numpy as np

import flatout
from flatout.bench.comparison import EpochTimer
from flatout.native.run.native_engine import one_kernel_is_better

_SEED = (128, 1, 32)
_WIDTHS = (32, 64, 96, 128, 256, 512, 1024)
_DEPTHS = (2, 3, 4, 6)
_BATCHES = (16, 64, 128, 512, 4096)


def _model(width: int, depth: int) -> Any:
    keras.utils.set_random_seed(3)
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(depth)]
    model = keras.Sequential([keras.Input((784,)), *hidden, keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _us_per_step(engine: str, cell: tuple[int, int, int], x: Any, y: Any, epochs: int) -> tuple[float, str]:
    width, depth, batch_size = cell
    timer = EpochTimer(epochs)
    with flatout.options(force=True):
        flatout.fit(
            _model(width, depth),
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            verbose=0,
            callbacks=[timer],
            engine=engine,
        )
    seconds = [end - begin for begin, end in itertools.pairwise(timer.ends)]
    return statistics.median(seconds) / (len(x) // batch_size) * 1e6, flatout.explain()[-1].engine


def _is_by_one_kernel(cell: tuple[int, int, int], x: Any, y: Any) -> bool:
    width, depth, batch_size = cell
    model = _model(width, depth)
    model._symbolic_build(data_batch=(x[:batch_size], y[:batch_size]))
    with flatout.options(force=True):
        return one_kernel_is_better(model, (x, y, None), batch_size, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_960, help="rows of x (default 40960)")
    parser.add_argument("--epochs", type=int, default=4, help="epochs of each training (default 4)")
    parser.add_argument(
        "--staged", action="store_true", help="also where auto leaves it to the backend: a kernel a stage"
    )
    parser.add_argument("--grid", action="store_true", help="all combinations that auto trains by one kernel")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    x = random.random((arguments.rows, 784), np.float32)
    y = random.integers(0, 10, arguments.rows).astype("int32")
    width, depth, batch_size = _SEED
    cells = [(one, depth, batch_size) for one in _WIDTHS]
    cells += [(width, one, batch_size) for one in _DEPTHS]
    cells += [(width, depth, one) for one in _BATCHES]
    if arguments.grid:
        every = itertools.product(_WIDTHS, (depth, *_DEPTHS), sorted((batch_size, *_BATCHES)))
        cells = [cell for cell in every if _is_by_one_kernel(cell, x, y)]
    backend = keras.config.backend()
    print(
        f"{'width':>6}{'depth':>6}{'batch':>6}  {'auto runs':<10}{backend + ' us':>10}{'auto us':>10}{'ratio':>8}",
        flush=True,
    )
    for cell in cells:
        ours, engine = _us_per_step("auto", cell, x, y, arguments.epochs)
        theirs, _ = _us_per_step(backend, cell, x, y, arguments.epochs) if engine == "native" else (ours, backend)
        line = f"{cell[0]:>6}{cell[1]:>6}{cell[2]:>6}  {engine:<10}{theirs:>10.2f}{ours:>10.2f}{theirs / ours:>8.2f}"
        if arguments.staged and engine != "native":
            line += f"   a kernel a stage {_us_per_step('native', cell, x, y, arguments.epochs)[0]:.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
