"""The models of `flatout bench` as a user of plain PyTorch writes them, and Keras' weights copied into them.

They compute what the Keras models of `flatout.bench.models` compute, but end in logits, and images have their channels
first. One thing is torch's own: a batch normalization's moving variance, which no step reads, is the unbiased one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from flatout.bench.models import CATEGORIES, NUMBERS, SEQUENCE, VOCABULARY

_EMBEDDING = 16
_KERAS_NORMALIZATION = {"eps": 1e-3, "momentum": 0.01}


def seed() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class LinearOfImages(nn.Linear):
    """Linear after flattened images; its columns are ordered by channel first, the rows of Keras' kernel by pixel."""

    def __init__(self, channels: int, pixels: int, outputs: int) -> None:
        super().__init__(channels * pixels, outputs)
        self.channels = channels


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        LinearOfImages(64, 5 * 5, 10),
    )


class Embeddings(nn.Module):
    """An embedding for each column."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(VOCABULARY, _EMBEDDING) for _ in range(CATEGORIES))

    def forward(self, categories: Tensor) -> Tensor:
        return torch.cat([embedding(categories[:, n]) for n, embedding in enumerate(self.columns)], 1)


class JoinedEmbedding(nn.Module):
    """One embedding for all columns, whose rows follow each other."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CATEGORIES * VOCABULARY, _EMBEDDING)
        self.register_buffer("firsts", torch.arange(CATEGORIES, dtype=torch.int32) * VOCABULARY)

    def forward(self, categories: Tensor) -> Tensor:
        return self.embedding(categories + self.firsts).flatten(1)


class Tabular(nn.Module):
    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.normalize = nn.BatchNorm1d(NUMBERS, **_KERAS_NORMALIZATION)
        self.dense = nn.Sequential(
            nn.Linear(NUMBERS + CATEGORIES * _EMBEDDING, 256),
            nn.ReLU(),
            nn.BatchNorm1d(256, **_KERAS_NORMALIZATION),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.BatchNorm1d(128, **_KERAS_NORMALIZATION),
            nn.Linear(128, 1),
        )

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        return self.dense(torch.cat((self.normalize(numbers), self.embeddings(categories)), 1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 128)
        self.lstm = nn.LSTM(128, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.dense = nn.Linear(128, 1)
        # Keras has one bias where cuDNN adds two; trained both, their sum would move twice as fast.
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias_hh"):
                parameter.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        _, (last, _) = self.lstm(self.embedding(tokens))
        return self.dense(torch.cat((last[-2], last[-1]), 1))


class Attention(nn.Module):
    """Two heads of width 32 over 32 features; the three projections are one product."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.Linear(32, 3 * 64)
        self.output = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.projections(x).unflatten(2, (3, 2, 32)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.output(attended.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 32)
        self.places = nn.Embedding(SEQUENCE, 32)
        self.attention = nn.Sequential(Attention(), nn.Dropout(0.1))
        self.normalize = nn.LayerNorm(32, eps=1e-6)
        self.feed = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.Dropout(0.1))
        self.normalize_again = nn.LayerNorm(32, eps=1e-6)
        self.classify = nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 20), nn.ReLU(), nn.Dropout(0.1), nn.Linear(20, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places.weight
        hidden = self.normalize(hidden + self.attention(hidden))
        hidden = self.normalize_again(hidden + self.feed(hidden))
        return self.classify(hidden.mean(1))


class SamePadding(nn.Conv2d):
    """A convolution padded as in Keras: with stride 2, images of even size get their border right and below alone."""

    def __init__(self, inputs: int, channels: int, size: int, stride: int) -> None:
        padding = size // 2 if stride == 1 else 0
        super().__init__(inputs, channels, size, stride, padding, bias=False)
        self.border = size - stride if stride > 1 else 0

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.pad(x, (0, self.border, 0, self.border)) if self.border > 0 else x)


def _convolution(inputs: int, channels: int, size: int, stride: int) -> nn.Sequential:
    return nn.Sequential(SamePadding(inputs, channels, size, stride), nn.BatchNorm2d(channels, **_KERAS_NORMALIZATION))


class Block(nn.Module):
    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _convolution(inputs, channels, 3, stride), nn.ReLU(), _convolution(channels, channels, 3, 1)
        )
        self.shortcut = nn.Identity() if stride == 1 else _convolution(inputs, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet20() -> nn.Module:
    stages = ((16, 16, 1), (16, 32, 2), (32, 64, 2))
    blocks = [
        Block(inputs if n == 0 else channels, channels, stride if n == 0 else 1)
        for inputs, channels, stride in stages
        for n in range(3)
    ]
    return nn.Sequential(
        _convolution(3, 16, 3, 1), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


@dataclass(frozen=True)
class ByHand:
    """A model by hand, and how it is trained; a binary one has a single logit."""

    build: Callable[[], nn.Module]
    is_binary: bool = False
    has_auc: bool = False
    optimizer: str = "adam"


MODELS = {
    "seed": ByHand(seed),
    "convnet": ByHand(convnet),
    "tabular": ByHand(lambda: Tabular(Embeddings()), is_binary=True, has_auc=True),
    "tabular_joined": ByHand(lambda: Tabular(JoinedEmbedding()), is_binary=True, has_auc=True),
    "lstm": ByHand(Recurrent, is_binary=True),
    "transformer": ByHand(Transformer),
    "resnet20": ByHand(resnet20, optimizer="sgd"),
}

Kinds = dict[str, Iterator[list[Tensor]]]


@torch.no_grad()
def copy_weights(keras_model: Any, module: nn.Module) -> None:
    """Give a model by hand the weights of Keras' one; layers of a kind must stand in the same order in both."""
    layers: dict[str, list[Tensor]] = {}
    for variable in keras_model.weights:
        layers.setdefault(variable.path.rpartition("/")[0], []).append(variable.value.detach())
    kinds: dict[str, list[list[Tensor]]] = {}
    for path, weights in layers.items():
        kinds.setdefault(re.sub(r"_\d+$", "", path.rpartition("/")[2]), []).append(weights)
    left = {kind: iter(members) for kind, members in kinds.items()}
    _copy(module, left)
    forgotten = [kind for kind, members in left.items() if next(members, None) is not None]
    if forgotten:
        raise ValueError(f"The model by hand lacks layers of Keras' model: {', '.join(forgotten)}.")


def _copy(module: nn.Module, kinds: Kinds) -> None:
    match module:
        case Attention():
            _copy_attention(module, kinds)
        case nn.LSTM():
            _copy_lstm(module, kinds)
        case nn.Linear():
            kernel, bias = next(kinds["dense"])
            if isinstance(module, LinearOfImages):
                kernel = kernel.unflatten(0, (-1, module.channels)).transpose(0, 1).flatten(0, 1)
            _fill((module.weight, module.bias), (kernel.T, bias))
        case nn.Conv2d():
            kernel, *bias = next(kinds["conv2d"])
            _fill(module.parameters(), (kernel.permute(3, 2, 0, 1), *bias))
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            places = (module.weight, module.bias, module.running_mean, module.running_var)
            _fill(places, next(kinds["batch_normalization"]))
        case nn.LayerNorm():
            _fill(module.parameters(), next(kinds["layer_normalization"]))
        case nn.Embedding():
            _fill(module.parameters(), next(kinds["embedding"]))
        case _:
            for child in module.children():
                _copy(child, kinds)


def _copy_attention(module: Attention, kinds: Kinds) -> None:
    kernels, biases = zip(*(next(kinds[name]) for name in ("query", "key", "value")), strict=True)
    weight = torch.cat([kernel.flatten(1).T for kernel in kernels])
    _fill(module.projections.parameters(), (weight, torch.cat([bias.flatten() for bias in biases])))
    kernel, bias = next(kinds["attention_output"])
    _fill(module.output.parameters(), (kernel.flatten(0, 1).T, bias))


def _copy_lstm(module: nn.LSTM, kinds: Kinds) -> None:
    for end in ("l0", "l0_reverse", "l1", "l1_reverse"):
        kernel, recurrent, bias = next(kinds["lstm_cell"])
        places = [getattr(module, f"{name}_{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        _fill(places, (kernel.T, recurrent.T, bias, torch.zeros_like(bias)))


def _fill(places: Any, values: Any) -> None:
    for place, value in zip(places, values, strict=True):
        place.copy_(value)
