"""How fast batches come from worker processes: stock Keras' PyDataset and a feed of the same, in turns, in one run.

    KERAS_BACKEND=jax python benchmarks/workers.py [--workers 2] [--batches 24] [--repeats 5] [--epochs 2]

A batch is 64 images of 224 x 224 x 3 float32 values, 38.5 MB, which the dataset has in memory already: what is measured
is the way from the worker to the training process, without a model. Each repeat starts with new workers; `first` is the
time to its first batch, and an epoch's first batch is left out of GB/s. flatout hands over views of shared memory, so a
second table has both sides copy each batch into one buffer, as a program does that fills chunks for a device.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras.src.trainers.data_adapters import get_data_adapter

from flatout.data.batches.feed import feed

SHAPE = (64, 224, 224, 3)


class Images(keras.utils.PyDataset):
    def __init__(self, batches: int, **options: Any):
        super().__init__(**options)
        self.batches = batches
        self.images = np.random.default_rng(0).random((2, *SHAPE), np.float32)
        self.labels = np.zeros(SHAPE[0], np.int32)

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> Any:
        return self.images[index % 2], self.labels


def measure(adapter: Any, epochs: int, buffer: np.ndarray | None) -> tuple[float, float, float]:
    """Seconds to the first batch, seconds from the end of an epoch to the next one's first batch, GB/s."""
    firsts, rates = [], []
    for _ in range(epochs):
        begin = time.perf_counter()
        adapter.on_epoch_begin()
        nbytes = 0
        for number, (x, _) in enumerate(adapter.get_numpy_iterator()):
            if number == 0:
                firsts.append(time.perf_counter() - begin)
                begin = time.perf_counter()
            else:
                nbytes += x.nbytes
            if buffer is not None:
                np.copyto(buffer, x)
        rates.append(nbytes / (time.perf_counter() - begin) / 1e9)
        adapter.on_epoch_end()
    return firsts[0], statistics.median(firsts[1:] or firsts), statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=24, help="batches of an epoch")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    dataset = Images(arguments.batches, workers=arguments.workers, use_multiprocessing=True)
    for title, buffer in (("handed over", None), ("copied into a buffer", np.zeros(SHAPE, np.float32))):
        stock, flatout = [], []
        for _ in range(arguments.repeats):
            stock.append(measure(get_data_adapter(dataset), arguments.epochs, buffer))
            with feed(dataset) as source:
                flatout.append(measure(source, arguments.epochs, buffer))
        print(f"{arguments.workers} workers, 38.5 MB a batch, {title}; medians of {arguments.repeats}:")
        print(f"{'':<10}{'first ms':>10}{'next epoch ms':>15}{'ms a batch':>12}{'GB/s':>8}")
        rates = [row(name, runs) for name, runs in (("stock", stock), ("flatout", flatout))]
        print(f"flatout is {rates[1] / rates[0]:.1f} times as fast\n", flush=True)


def row(name: str, runs: list[tuple[float, float, float]]) -> float:
    """Print the medians of a side and return its GB/s."""
    first, next_epoch, rate = (statistics.median(column) for column in zip(*runs, strict=True))
    batch = np.prod(SHAPE) * 4 / rate / 1e6
    print(f"{name:<10}{first * 1e3:>10.0f}{next_epoch * 1e3:>15.0f}{batch:>12.1f}{rate:>8.2f}")
    return rate


if __name__ == "__main__":
    main()
