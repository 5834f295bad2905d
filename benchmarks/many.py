"""Many models of `flatout bench` at once, one after the other, and with stock Keras: seconds, and the ratios.

    KERAS_BACKEND=jax python benchmarks/many.py seed --models 16 --epochs 3
    KERAS_BACKEND=jax python benchmarks/many.py convnet --models 64 --batch-size 128 --engine jax

Learning rates and seeds differ. Everything is timed from `build` on, compiling included. One after the other, `--lone`
models are trained by each of flatout and stock Keras, and the time for all is extrapolated from the last of them, which
compiles the least. The first models are compared with those trained alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import flatout
from flatout.bench import models
from flatout.bench.fashion_mnist import load


def main() -> None:
    given = _arguments()
    images = load()
    x, y = images.x_train[: given.rows], images.y_train[: given.rows]
    if given.model == "convnet":
        x = x[..., None]
    points = [{"seed": number, "learning_rate": 1e-3 / (1 + number % 4)} for number in range(given.models)]
    arguments = {"x": x, "y": y, "batch_size": given.batch_size, "epochs": given.epochs, "verbose": 0}

    def build(learning_rate: float) -> Any:
        model = getattr(models, given.model)()
        model.optimizer.learning_rate = learning_rate
        return model

    def lone(engine: str) -> tuple[float, list[Any]]:
        """Seconds of all models, one after the other, as far as those that were trained tell; and those."""
        seconds, trained = [], []
        for point in points[: given.lone]:
            started = time.perf_counter()
            keras.utils.set_random_seed(point["seed"])
            trained.append(build(point["learning_rate"]))
            with flatout.options(force=True):
                flatout.fit(trained[-1], engine=engine, **arguments)
            seconds.append(time.perf_counter() - started)
        return sum(seconds) + (given.models - len(seconds)) * seconds[-1], trained

    together, many = _timed(lambda: flatout.fit_many(build, points, engine=given.engine, **arguments))
    alone, trained = lone(given.engine)
    difference = max(
        np.abs(one - other).max()
        for single, model in zip(trained, many.models, strict=False)
        for one, other in zip(single.get_weights(), model.get_weights(), strict=True)
    )
    stock, _ = lone("stock")
    steps = given.models * given.epochs * -(-len(x) // given.batch_size)
    print(f"{given.models} x {given.model}, {given.epochs} epochs of {len(x)} rows, batch {given.batch_size}; {many!r}")
    print(f"{'fit_many':<34}{together:8.2f} s {1e6 * together / steps:9.2f} us a model and step")
    print(f"{'flatout, one after the other':<34}{alone:8.2f} s {alone / together:9.2f} times as long")
    print(f"{'stock Keras, one after the other':<34}{stock:8.2f} s {stock / together:9.2f} times as long")
    print(f"largest difference of a weight from those of {len(trained)} models trained alone: {difference:.1e}")


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["seed", "convnet"])
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--lone", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--engine", default="auto")
    return parser.parse_args()


if __name__ == "__main__":
    main()
