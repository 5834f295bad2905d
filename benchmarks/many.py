"""Many models of `flatout bench` at once, one after the other, and with stock Keras: seconds, and the ratios.

    KERAS_BACKEND=jax python benchmarks/many.py seed --models 16 --epochs 3
    KERAS_BACKEND=jax python benchmarks/many.py convnet --models 64 --batch-size 128 --engine jax
    KERAS_BACKEND=torch python benchmarks/many.py seed --models 16 --alone-by torch

Learning rates and seeds differ. Everything is timed from `build` on, compiling included, but for the first model that
each way trains for an epoch before. One after the other, `--lone` models are trained by each of flatout and stock
Keras, and the time for all is extrapolated from the last of them. What a further epoch costs is the difference to a
run of one epoch. The first models are compared with those trained alone.
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
    held_out = images.x_test, images.y_test
    if given.model == "convnet":
        x, held_out = x[..., None], (held_out[0][..., None], held_out[1])
    points = [{"seed": number, "learning_rate": 1e-3 / (1 + number % 4)} for number in range(given.models)]
    arguments: dict[str, Any] = {"x": x, "y": y, "batch_size": given.batch_size, "verbose": 0}
    if given.validate:
        arguments["validation_data"] = held_out

    def build(learning_rate: float) -> Any:
        model = getattr(models, given.model)()
        model.optimizer.learning_rate = learning_rate
        return model

    def together(epochs: int) -> Any:
        return flatout.fit_many(build, points, engine=given.engine, epochs=epochs, **arguments)

    def alone(point: dict[str, Any], engine: str, epochs: int) -> Any:
        keras.utils.set_random_seed(point["seed"])
        model = build(point["learning_rate"])
        with flatout.options(force=True):
            flatout.fit(model, engine=engine, epochs=epochs, **arguments)
        return model

    def one_after_the_other(engine: str, epochs: int) -> tuple[float, list[Any]]:
        timed = [_timed(lambda point=point: alone(point, engine, epochs)) for point in points[: given.lone]]
        seconds = [spent for spent, _ in timed]
        return sum(seconds) + (given.models - len(seconds)) * seconds[-1], [model for _, model in timed]

    whole, many = _timed(lambda: together(given.epochs))
    again, _ = _timed(lambda: together(given.epochs))
    short, _ = _timed(lambda: together(1))
    alone(points[0], given.alone_by, 1)
    in_turns, trained = one_after_the_other(given.alone_by, given.epochs)
    in_turns_short, _ = one_after_the_other(given.alone_by, 1)
    difference = max(
        np.abs(one - other).max()
        for single, model in zip(trained, many.models, strict=False)
        for one, other in zip(single.get_weights(), model.get_weights(), strict=True)
    )
    steps = given.models * -(-len(x) // given.batch_size)
    print(f"{given.models} x {given.model}, {given.epochs} epochs of {len(x)} rows, batch {given.batch_size}; {many!r}")
    print(f"{'fit_many, first':<34}{whole:8.2f} s")
    print(f"{'fit_many, again':<34}{again:8.2f} s {1e6 * again / steps / given.epochs:9.2f} us a model and step")
    print(f"{'flatout, one after the other':<34}{in_turns:8.2f} s {in_turns / again:9.2f} times as long")
    if given.epochs > 1:
        further, alone_further = (
            (long - brief) / (given.epochs - 1) for long, brief in ((again, short), (in_turns, in_turns_short))
        )
        if further <= 0:
            print("What a further epoch takes is lost in what building takes: give more --epochs.")
        else:
            print(
                f"a further epoch: {1e3 * further:.2f} ms for all ({1e6 * further / steps:.3f} us a model and step), "
                f"{1e3 * alone_further / given.models:.2f} ms for one alone: all take {further / alone_further:.3f} of "
                f"the time of one after the other, {given.models * further / alone_further:.2f} times that of one"
            )
    if given.stock:
        stock, _ = one_after_the_other("stock", given.epochs)
        print(f"{'stock Keras, one after the other':<34}{stock:8.2f} s {stock / again:9.2f} times as long")
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
    parser.add_argument("--alone-by", help="the engine that trains one after the other; that of --engine by default")
    parser.add_argument("--validate", action="store_true", help="on 10,000 rows after each epoch")
    parser.add_argument("--no-stock", dest="stock", action="store_false", help="spare stock Keras' time")
    given = parser.parse_args()
    given.alone_by = given.alone_by or given.engine
    return given


if __name__ == "__main__":
    main()
