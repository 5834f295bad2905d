"""The six workloads: a model, its data and how many steps an epoch has on a CPU and on a GPU.

Batches and models are the same everywhere; a CPU only takes fewer steps, so that a bench ends in minutes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import fashion_mnist

Arrays = Any


@dataclass(frozen=True)
class Workload:
    """One line of the bench; `name` is also the model's function in `models.py`, `rows` draws that many x and y."""

    name: str
    title: str
    batch_size: int
    cpu_steps: int
    gpu_steps: int
    rows: Callable[[int, np.random.Generator], tuple[Arrays, np.ndarray]]

    def build(self) -> Any:
        """A fresh compiled model."""
        return getattr(importlib.import_module(".models", __package__), self.name)()

    def data(self, steps: int) -> tuple[Arrays, np.ndarray]:
        """The rows of `steps` whole batches; always the same ones."""
        return self.rows(steps * self.batch_size, np.random.default_rng(1))


def _fashion_rows(rows: int, random: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    data = fashion_mnist.load()
    take = np.arange(rows) % len(data.x_train)
    return data.x_train[take], data.y_train[take]


def _images(*shape: int) -> Callable[[int, np.random.Generator], tuple[Arrays, np.ndarray]]:
    def draw(rows: int, random: np.random.Generator) -> tuple[Arrays, np.ndarray]:
        labels = random.integers(0, 10, rows)
        patterns = random.random((10, *shape), dtype=np.float32)
        return patterns[labels] / 2 + random.random((rows, *shape), dtype=np.float32) / 2, labels

    return draw


def _clicks(rows: int, random: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    numbers = random.standard_normal((rows, 13), dtype=np.float32)
    categories = random.integers(0, 1000, (rows, 26), dtype=np.int32)
    likely = numbers[:, 0] + (categories[:, 0] % 3) - 1 + random.standard_normal(rows)
    return {"numbers": numbers, "categories": categories}, (likely > 0).astype(np.float32)


def _sentences(rows: int, random: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    labels = random.integers(0, 2, rows)
    tokens = random.integers(0, 1000, (rows, 200), dtype=np.int32)
    # Low token numbers are commoner in sentences of class 1, so there is something to learn.
    marked = random.random((rows, 200)) < 0.2 * labels[:, None]
    return np.where(marked, tokens % 100, tokens).astype(np.int32), labels


_ALL = (
    Workload("seed", "dense 784-128-10", 32, 1875, 1875, _fashion_rows),
    Workload("convnet", "convnet, dropout", 128, 20, 400, _images(28, 28, 1)),
    Workload("tabular", "tabular, 26 embeddings", 1024, 40, 200, _clicks),
    Workload("lstm", "2 bidirectional LSTMs", 32, 8, 100, _sentences),
    Workload("transformer", "transformer block", 32, 30, 500, _sentences),
    Workload("resnet20", "ResNet-20", 128, 4, 200, _images(32, 32, 3)),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
