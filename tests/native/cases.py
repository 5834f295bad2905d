"""Models that the native engine takes: every layer, loss, metric and optimizer that it knows.

Without hypothesis, which a GPU machine need not have; `networks.py` draws cases at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers

CURVES = ("relu", "tanh", "sigmoid", "silu", "gelu", "elu", "leaky_relu", "linear", "softmax")
LOSSES = (
    "sparse",
    "sparse_logits",
    "categorical",
    "categorical_logits",
    "binary",
    "binary_logits",
    "mse",
    "mae",
    "huber",
)


@dataclass(frozen=True)
class Block:
    """A hidden layer: Dense with an activation of its own, or of a layer after it, or after BatchNormalization."""

    width: int
    curve: str
    way: str
    l1: float
    l2: float


@dataclass(frozen=True)
class Case:
    """A model, its data and its optimizer."""

    shape: tuple[int, ...]
    first: str
    blocks: tuple[Block, ...]
    loss: str
    outputs: int
    optimizer: str
    clip: tuple[str, float] | None
    schedule: str | None
    rows: int
    batch_size: int
    seed: int
    smoothing: float
    weighted: bool

    @property
    def kind(self) -> str:
        return self.loss.removesuffix("_logits")

    def data(self) -> tuple[np.ndarray, ...]:
        """x and y, and sample weights if the case has them."""
        random = np.random.default_rng(self.seed)
        x = random.standard_normal((self.rows, *self.shape)).astype("float32")
        if self.first == "rescaling":
            x = random.integers(0, 256, (self.rows, *self.shape)).astype("uint8")
        y: Any
        if self.kind == "sparse":
            y = random.integers(0, self.outputs, self.rows).astype("int32")
        elif self.kind == "categorical":
            y = np.eye(self.outputs, dtype="float32")[random.integers(0, self.outputs, self.rows)]
        elif self.kind == "binary":
            y = random.integers(0, 2, (self.rows, self.outputs)).astype("float32")
        else:
            y = random.standard_normal((self.rows, self.outputs)).astype("float32")
        return (x, y, random.uniform(0.2, 2.0, self.rows).astype("float32")) if self.weighted else (x, y)

    def build(self) -> Any:
        """The model, compiled, from the case's seed."""
        keras.utils.set_random_seed(self.seed)
        chain = [layers.Input(self.shape), *_first(self)]
        for block in self.blocks:
            chain += _block(block)
        chain += _head(self)
        model = keras.Sequential(chain)
        model.compile(self._optimizer(), self._loss(), metrics=_metrics(self), weighted_metrics=_weighted(self))
        return model

    def _loss(self) -> Any:
        logits = self.loss.endswith("_logits")
        if self.kind == "sparse":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
        if self.kind == "categorical":
            return keras.losses.CategoricalCrossentropy(from_logits=logits, label_smoothing=self.smoothing)
        if self.kind == "binary":
            return keras.losses.BinaryCrossentropy(from_logits=logits, label_smoothing=self.smoothing)
        return {"mse": "mse", "mae": "mae", "huber": keras.losses.Huber(0.7)}[self.kind]

    def _optimizer(self) -> Any:
        rate: Any = 0.001
        if self.schedule == "exponential":
            rate = keras.optimizers.schedules.ExponentialDecay(0.001, 7, 0.5, staircase=self.seed % 2 == 0)
        elif self.schedule == "cosine":
            rate = keras.optimizers.schedules.CosineDecay(0.0005, 15, warmup_target=0.001, warmup_steps=4)
        elif self.schedule == "piecewise":
            rate = keras.optimizers.schedules.PiecewiseConstantDecay([5, 12], [0.001, 0.002, 0.0005])
        clip = {} if self.clip is None else {self.clip[0]: self.clip[1]}
        optimizers = keras.optimizers
        return {
            "sgd": lambda: optimizers.SGD(rate, **clip),
            "momentum": lambda: optimizers.SGD(rate, momentum=0.9, **clip),
            "nesterov": lambda: optimizers.SGD(rate, momentum=0.8, nesterov=True, weight_decay=0.01, **clip),
            "adam": lambda: optimizers.Adam(rate, **clip),
            "amsgrad": lambda: optimizers.Adam(rate, beta_1=0.8, amsgrad=True, **clip),
            "adamw": lambda: _without_bias_decay(optimizers.AdamW(rate, weight_decay=0.02, **clip)),
            "rmsprop": lambda: optimizers.RMSprop(rate, **clip),
            "rmsprop_centered": lambda: optimizers.RMSprop(rate, momentum=0.5, centered=True, epsilon=1e-5, **clip),
        }[self.optimizer]()


def _without_bias_decay(optimizer: Any) -> Any:
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def _first(case: Case) -> list[Any]:
    if case.first == "rescaling":
        return [layers.Rescaling(1 / 127.5, offset=-1.0), layers.Flatten()]
    if case.first == "normalization":
        width = case.shape[-1]
        mean, variance = np.linspace(-0.5, 0.5, width), np.linspace(0.5, 2.0, width)
        return [layers.Normalization(mean=mean, variance=variance), layers.Flatten()]
    if case.first == "reshape":
        return [layers.Reshape((-1,))]
    # Dense works on the last axis of a sample.
    return [layers.Dense(5, activation="tanh"), layers.Flatten()] if case.first == "dense" else [layers.Flatten()]


def _block(block: Block) -> list[Any]:
    penalty = keras.regularizers.L1L2(block.l1, block.l2) if block.l1 or block.l2 else None
    options: dict[str, Any] = {"kernel_regularizer": penalty}
    if penalty is not None and block.width % 2:
        options["bias_regularizer"] = keras.regularizers.L2(block.l2)
    if block.way == "inside":
        return [layers.Dense(block.width, activation=block.curve, **options)]
    special = {
        "relu": layers.ReLU(max_value=1.5, negative_slope=0.1, threshold=0.2),
        "leaky_relu": layers.LeakyReLU(negative_slope=0.3),
        "elu": layers.ELU(alpha=0.6),
        "softmax": layers.Softmax(),
    }
    activation = special.get(block.curve) or layers.Activation(block.curve)
    if block.way == "after":
        return [layers.Dense(block.width, **options), activation]
    # The gradient of a bias before BatchNormalization is 0 but for rounding, which Adam makes a full step of.
    options.pop("bias_regularizer", None)
    norm = layers.BatchNormalization(momentum=0.7, scale=block.width % 3 > 0, center=block.width % 5 > 0)
    return [layers.Dense(block.width, use_bias=False, **options), norm, activation]


def _head(case: Case) -> list[Any]:
    if case.loss in ("sparse", "categorical"):
        return [layers.Dense(case.outputs, activation="softmax")]
    if case.loss == "binary":
        return [layers.Dense(case.outputs), layers.Activation("sigmoid")]
    return [layers.Dense(case.outputs)]


def _metrics(case: Case) -> list[Any]:
    if case.kind in ("sparse", "categorical"):
        return ["accuracy"]
    return ["accuracy", "mse"] if case.kind == "binary" and case.outputs == 1 else ["mae", "mse"]


def _weighted(case: Case) -> list[Any] | None:
    return ["mae"] if case.weighted and case.kind in ("mse", "mae", "huber") else None


# The model that people learn Keras with, a quarter as wide.
PLAIN = Case(
    shape=(28, 28),
    first="rescaling",
    blocks=(Block(32, "relu", "inside", 0.0, 0.0),),
    loss="sparse",
    outputs=10,
    optimizer="adam",
    clip=None,
    schedule=None,
    rows=19 * 16 + 5,
    batch_size=16,
    seed=3,
    smoothing=0.0,
    weighted=False,
)
