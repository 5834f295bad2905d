"""What tests of several processes train; worker processes import it by this name."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

import flatout
from flatout.base.group import joined

ROWS, BATCH = 98, 30
_RANDOM = np.random.default_rng(3)
X = _RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = (X @ _RANDOM.normal(size=(6, 1))).astype("float32")
WEIGHTS = _RANDOM.uniform(0.5, 2.0, ROWS).astype("float32")


def network(*more: Any, optimizer: Any = "adam") -> Any:
    """With what a part of a batch must not decide alone: penalties, a loss that no mean over rows makes, a mask."""
    keras.utils.set_random_seed(5)
    penalized = layers.Dense(8, "relu", kernel_regularizer="l2", activity_regularizer="l2")
    model = keras.Sequential([layers.Input((6,)), penalized, *more, layers.Dense(1)])
    model.compile(optimizer, spread, metrics=["mae", keras.metrics.RootMeanSquaredError()])
    return model


class SeesX(keras.Sequential):
    """Its loss needs all rows of x."""

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *more: Any, **others: Any) -> Any:
        return keras.ops.mean(keras.ops.square(y - y_pred) * keras.ops.square(x[:, :1]))


def seeing_x() -> Any:
    keras.utils.set_random_seed(5)
    model = SeesX([layers.Input((6,)), layers.Dense(1)])
    model.compile("sgd", metrics=["mae"])
    return model


def spread(y_true: Any, y_pred: Any) -> Any:
    """The squared error where the batch as a whole errs most: each row counts by all others."""
    error = keras.ops.square(y_true - y_pred)
    return keras.ops.sum(error * error) / keras.ops.sum(error)


class Penalized(layers.Layer):
    """Adds a sum over rows, which nobody can tell from a mean."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.sum(inputs))
        return inputs


class Words(keras.Model):
    """Unbuilt, without a configuration, with gradients of some rows alone and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(20, 4, mask_zero=True)
        self.ends = {"out": layers.Dense(1)}

    def call(self, words: Any) -> Any:
        return self.ends["out"](self.table(words))


class Batches(keras.utils.PyDataset):
    """Batches of uneven length, in which something may happen to one process, once."""

    def __init__(self, folder: Path | None = None, accident: str = "", in_epoch: int = 0):
        super().__init__()
        self.folder, self.accident, self.in_epoch = folder, accident, in_epoch
        self.epoch = 0

    def __len__(self) -> int:
        return 5

    def __getitem__(self, number: int) -> Any:
        group = joined()
        if self.folder is not None and group is not None:
            (self.folder / f"process-{os.getpid()}").touch()
            if group.place.rank == 1 and number == 2 and self.epoch == self.in_epoch:
                self._have_accident(self.folder / "had it")
        rows = slice(number * 21, (number + 1) * 21)
        return X[rows], Y[rows]

    def _have_accident(self, note: Path) -> None:
        if note.exists():
            return
        note.write_text(str(time.time()))
        if self.accident == "raise":
            raise ValueError("row 47 is broken")
        if self.accident == "warn":
            warnings.warn("row 47 is odd", stacklevel=2)
        else:
            os.kill(os.getpid(), getattr(signal, self.accident))

    def on_epoch_end(self) -> None:
        self.epoch += 1


class Sentences(keras.utils.PyDataset):
    """Batches whose rows are of another length in each."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        rows = np.random.default_rng(number).normal(size=(8, 4 + number % 3, 2)).astype("float32")
        return rows, rows[:, :, :1]


class Schedule(keras.callbacks.Callback):
    """Acts on every batch: sets the rate before, stops after some."""

    def __init__(self, stop_after: int):
        super().__init__()
        self.stop_after = stop_after
        self.seen: list[int] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate.assign(0.01 / (1 + batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(batch)
        self.model.stop_training = len(self.seen) == self.stop_after


class Curious(keras.callbacks.Callback):
    """Asks the model in the first process alone, and has hooks of a validation."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.found.append(float(self.model.evaluate(X[:33], Y[:33], verbose=0)[0]))
        self.found.append(float(np.sum(self.model.predict(X[:9], verbose=0))))
        self.found.append(float(np.sum(flatout.predict(self.model, X[:9], verbose=0))))

    def on_test_begin(self, logs: Any = None) -> None:
        self.found.append(0.0)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.found.append(float(batch))


class Annealed(keras.callbacks.Callback):
    """Changes Python that only the process of the callbacks sees."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.loss.weight = 5.0


class WeightedLoss(keras.losses.Loss):
    weight = 1.0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.weight * keras.ops.square(y_true - y_pred)
