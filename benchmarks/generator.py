"""A generator that takes as long for a batch as the training takes for a step: does one wait for the other?

    KERAS_BACKEND=jax python benchmarks/generator.py [--steps 200] [--repeats 3] [--width N] [--cpu-bound] [--bar]

First the step alone is measured, on resident data, and the generator alone, without a model. Then stock Keras and
flatout train on that generator in one process, in turns and from the same seed. At best an epoch takes as long as the
slower of the two; one after the other they take the sum. The generator sleeps, as one that waits for a disk or a
service does. With `--cpu-bound` it augments images with NumPy instead, which needs a core that the training leaves
free. With `--bar` both sides draw Keras' progress bar, as `fit` does by default, for which stock Keras waits for
each step. The model has two hidden layers of `--width` units, more on a GPU than on a CPU, so that a step takes some
milliseconds on both: the shorter the steps, the more it counts what a batch costs Python.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import flatout
from flatout.bench.bench_device import device
from flatout.bench.comparison import SEED, SIDES, EpochTimer, agree

GOAL = 1.15
SIDE_LENGTH = 28
PIXELS = SIDE_LENGTH**2
# Batches that the generator has ready, and gives again and again.
PREPARED = 16

Batch = tuple[np.ndarray, np.ndarray]
# Does something for about as long as the training step takes.
Delay = Callable[[np.ndarray], np.ndarray]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="steps of an epoch (default: 200)")
    parser.add_argument("--epochs", type=int, default=3, help="of a training; the first is not counted (default: 3)")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each side, in turns (default: 3)")
    parser.add_argument("--width", type=int, help="units of a hidden layer (default: 1024, on a GPU 8192)")
    parser.add_argument("--cpu-bound", action="store_true", help="augment with NumPy instead of sleeping")
    parser.add_argument("--bar", action="store_true", help="with a progress bar, which is not shown")
    arguments = parser.parse_args()
    width, batch_size = (8192, 1024) if device().is_gpu else (1024, 32)
    width = arguments.width or width
    batches = _batches(batch_size)
    steps, epochs = arguments.steps, arguments.epochs

    resident = tuple(np.concatenate(arrays) for arrays in zip(*_cycle(batches, steps), strict=True))
    timer, _ = _train("flatout", width, *resident, batch_size=batch_size, epochs=epochs + 2, data="resident")
    step = statistics.median(_seconds(timer)) / steps
    delay = _augmenting(step, batches[0][0]) if arguments.cpu_bound else _sleeping(step)
    wait = _alone(_generator(batches, delay), steps)

    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    histories: dict[str, dict[str, list[float]]] = {}
    for repeat in range(arguments.repeats):
        for side in SIDES if repeat % 2 == 0 else reversed(SIDES):
            source = _generator(batches, delay)
            verbose = 1 if arguments.bar else 0
            timer, histories[side] = _train(side, width, source, steps_per_epoch=steps, epochs=epochs, verbose=verbose)
            seconds[side] += _seconds(timer)

    longer, both = max(wait, step) * steps, (wait + step) * steps
    kind = "augmenting" if arguments.cpu_bound else "sleeping"
    bar = ", with a progress bar" if arguments.bar else ""
    print(f"{keras.backend.backend()} on {device().name}, {kind}{bar}")
    print(f"  step alone       {step * 1e3:>8.2f} ms, on resident data")
    print(f"  generator alone  {wait * 1e3:>8.2f} ms a batch")
    print(f"  an epoch of {steps} steps, medians of {len(seconds['stock'])}:")
    print(f"  {'':<10}{'seconds':>10}{'/ longer':>11}{'/ sum':>9}")
    for side in SIDES:
        epoch = statistics.median(seconds[side])
        print(f"  {side:<10}{epoch:>10.2f}{epoch / longer:>11.2f}{epoch / both:>9.2f}")
    ratio = statistics.median(seconds["flatout"]) / longer
    same = "the same losses" if agree(*histories.values()) else f"DIFFERENT losses: {histories}"
    print(f"  flatout / max(wait, step) = {ratio:.2f} (goal: at most {GOAL}), {same}", flush=True)


def _build(width: int) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((PIXELS,)),
            layers.Dense(width, activation="relu"),
            layers.Dense(width, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _train(side: str, width: int, *data: Any, **arguments: Any) -> tuple[EpochTimer, dict[str, list[float]]]:
    keras.utils.set_random_seed(SEED)
    model, timer = _build(width), EpochTimer(arguments["epochs"])
    arguments = {"verbose": 0, **arguments}
    with flatout.options(force=True), contextlib.redirect_stdout(io.StringIO()):
        history = flatout.fit(model, *data, callbacks=[timer], engine=SIDES[side], **arguments)
    return timer, history.history


def _seconds(timer: EpochTimer) -> list[float]:
    """How long the epochs after the first took."""
    return [end - begin for begin, end in itertools.pairwise(timer.ends)]


def _batches(batch_size: int) -> list[Batch]:
    random = np.random.default_rng(1)
    patterns = random.random((10, PIXELS), np.float32)
    batches = []
    for _ in range(PREPARED):
        labels = random.integers(0, 10, batch_size, np.int32)
        batches.append((patterns[labels] + random.standard_normal((batch_size, PIXELS), np.float32), labels))
    return batches


def _cycle(batches: list[Batch], count: int) -> Iterator[Batch]:
    return itertools.islice(itertools.cycle(batches), count)


def _generator(batches: list[Batch], delay: Delay) -> Iterator[Batch]:
    for x, y in itertools.cycle(batches):
        yield delay(x), y


def _alone(batches: Iterator[Batch], count: int) -> float:
    """Seconds for a batch of a generator without a model."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        next(batches)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _sleeping(seconds: float) -> Delay:
    def sleep(x: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return x

    return sleep


def _augmenting(seconds: float, x: np.ndarray) -> Delay:
    """Shifts and noise, as often as it takes to last that long."""

    def augment(x: np.ndarray, rounds: int) -> np.ndarray:
        # Anew for each batch: stock Keras and flatout shall see the same.
        random = np.random.default_rng(0)
        images = x.reshape(-1, SIDE_LENGTH, SIDE_LENGTH)
        for _ in range(rounds):
            down, right = random.integers(-2, 3, 2)
            shifted = np.roll(images, (down, right), (1, 2))
            images = images * np.float32(0.9) + shifted * np.float32(0.1)
            images += random.standard_normal(images.shape, np.float32) * np.float32(0.01)
        return images.reshape(x.shape)

    samples = []
    for _ in range(20):
        began = time.perf_counter()
        augment(x, 1)
        samples.append(time.perf_counter() - began)
    rounds = max(1, round(seconds / statistics.median(samples)))
    return lambda x: augment(x, rounds)


if __name__ == "__main__":
    main()
