"""What the native engine knows of a model: layers, loss, metrics and optimizer as frozen facts, without Keras.

Kernels are generated from these alone, whatever their form: one kernel a stage, or one for the whole step. The
`Binding` says which of Keras' objects they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .c_expressions import Curve

LossKind = Literal["sparse", "categorical", "binary", "mse", "mae", "huber"]
# How a loss comes from an output to logarithms; kernels/staged/loss.cuh has the four.
LossForm = Literal["logits", "z", "probabilities", "clipped"]
MetricKind = Literal["sparse_accuracy", "categorical_accuracy", "binary_accuracy", "squared_error", "absolute_error"]
OptimizerKind = Literal["sgd", "adam", "rmsprop"]
Clip = Literal["none", "value", "norm", "global_norm"]


@dataclass(frozen=True)
class Weight:
    """A variable of a layer, with a name unique in the network (`"dense/kernel"`), and the factors of its penalties."""

    name: str
    shape: tuple[int, ...]
    trainable: bool = True
    l1: float = 0.0
    l2: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_penalized(self) -> bool:
        return self.trainable and (self.l1 != 0 or self.l2 != 0)


@dataclass(frozen=True)
class Dense:
    """`curve(x @ kernel + bias)` over `lines` rows of each sample."""

    name: str
    inputs: int
    outputs: int
    lines: int
    kernel: Weight
    bias: Weight | None
    curve: Curve

    @property
    def size(self) -> int:
        return self.lines * self.outputs

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.kernel,) if self.bias is None else (self.kernel, self.bias)


@dataclass(frozen=True)
class Affine:
    """Rescaling and Normalization: each feature scaled and shifted by constants."""

    name: str
    size: int
    kind: Literal["rescale", "normalize"]
    scale: Weight
    offset: Weight

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.scale, self.offset)


@dataclass(frozen=True)
class Activation:
    """A function of each value on its own."""

    name: str
    size: int
    curve: Curve
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Softmax:
    """Softmax over the last axis, of `width` values, in `lines` rows of each sample."""

    name: str
    width: int
    lines: int
    weights: tuple[Weight, ...] = ()

    @property
    def size(self) -> int:
        return self.lines * self.width


@dataclass(frozen=True)
class Dropout:
    """Values dropped in training, with masks of our own; `number` counts the Dropout layers."""

    name: str
    size: int
    rate: float
    number: int
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class BatchNorm:
    """Normalization by the statistics of a batch; by the moving ones where `frozen`, and outside training."""

    name: str
    width: int
    lines: int
    gamma: Weight | None
    beta: Weight | None
    moving_mean: Weight
    moving_variance: Weight
    momentum: float
    epsilon: float
    frozen: bool

    @property
    def size(self) -> int:
        return self.lines * self.width

    @property
    def weights(self) -> tuple[Weight, ...]:
        both = [weight for weight in (self.gamma, self.beta) if weight is not None]
        return (*both, self.moving_mean, self.moving_variance)


Layer = Dense | Affine | Activation | Softmax | Dropout | BatchNorm


@dataclass(frozen=True)
class Loss:
    """The loss of the output.

    Attributes:
        form: For cross-entropies: what the logarithm is taken of.
        epsilon: Keras' epsilon, to which probabilities are clipped.
        is_mean: Whether rows are averaged; else summed.
        scale: `loss_weights`.
        targets_sum_to_1: Whether the gradient takes that for granted, as tensorflow does.
    """

    kind: LossKind
    form: LossForm = "logits"
    epsilon: float = 1e-7
    smoothing: float = 0.0
    delta: float = 1.0
    is_mean: bool = True
    scale: float = 1.0
    targets_sum_to_1: bool = False


@dataclass(frozen=True)
class Metric:
    """The mean over rows of a function of output and target; `weighted` by the sample weights, if there are any."""

    kind: MetricKind
    threshold: float = 0.5
    weighted: bool = False


@dataclass(frozen=True)
class Optimizer:
    """How gradients become weights.

    Attributes:
        kind: Which formula; Adam stands for AdamW too.
        slots: Its variables beside each weight, in the order of the kernel's arguments.
        numbers: Its constants by name.
        clip: How gradients are clipped first.
        clip_at: The limit.
        weight_decay: Of each step, or None.
        decayed: Names of the weights that decay.
    """

    kind: OptimizerKind
    slots: tuple[str, ...]
    numbers: tuple[tuple[str, float], ...]
    clip: Clip = "none"
    clip_at: float = 0.0
    weight_decay: float | None = None
    decayed: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> float:
        return dict(self.numbers)[name]


@dataclass(frozen=True)
class Network:
    """A model that is a chain of layers, with what `compile()` gave it; without loss it can only predict."""

    features: int
    layers: tuple[Layer, ...]
    outputs: int
    loss: Loss | None
    metrics: tuple[Metric, ...]
    optimizer: Optimizer | None

    @property
    def weights(self) -> tuple[Weight, ...]:
        return tuple(weight for layer in self.layers for weight in layer.weights)

    @property
    def trained(self) -> tuple[Weight, ...]:
        return tuple(weight for weight in self.weights if weight.trainable)

    @property
    def widest(self) -> int:
        """The most values that a row has in any layer."""
        return max([self.features, self.outputs, *(layer.size for layer in self.layers)])

    @property
    def has_sparse_targets(self) -> bool:
        """Whether a target is the number of a class."""
        return self.loss is not None and self.loss.kind == "sparse"

    @property
    def denses(self) -> tuple[Dense, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Dense))

    @property
    def dropouts(self) -> tuple[Dropout, ...]:
        return tuple(layer for layer in self.layers if isinstance(layer, Dropout))


@dataclass(frozen=True)
class Binding:
    """Which Keras objects belong to which buffers: variables of layers and of the optimizer by the buffers' names.

    Attributes:
        constants: Functions that give constants of layers, by the names of their buffers.
        seeds: The seed generators of the Dropout layers.
        metrics: The loss' tracker, then the metrics in order.
        log_names: The metrics' names in the logs.
    """

    weights: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Callable[[], np.ndarray]] = field(default_factory=dict)
    slots: dict[str, Any] = field(default_factory=dict)
    seeds: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    log_names: list[str] = field(default_factory=list)

    def names_the_same_as(self, other: Binding) -> bool:
        """Whether both name the same objects."""

        def ids(one: Binding) -> list[int]:
            return [id(each) for each in (*one.weights.values(), *one.slots.values(), *one.seeds, *one.metrics)]

        return ids(self) == ids(other) and self.log_names == other.log_names
