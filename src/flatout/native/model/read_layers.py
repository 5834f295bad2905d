"""Keras layers as layers of a `Network`. Exact types alone: a subclass may compute anything."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import keras
import numpy as np
from keras import layers

from flatout.base.errors import Refusal, reason
from flatout.seam.layers import automatic_name, has_own_losses

from . import c_expressions as curves
from .c_expressions import Curve, identifier
from .network import Activation, Affine, BatchNorm, Binding, Dense, Dropout, Layer, Softmax, Weight


@dataclass
class ChainReading:
    """Layers as they are read one after the other, each by its `name`, with what belongs to their buffers.

    Attributes:
        shape: What a sample has after the last of them.
    """

    shape: tuple[int, ...]
    layers: list[Layer] = field(default_factory=list)
    binding: Binding = field(default_factory=Binding)
    name: str = ""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def lines(self) -> int:
        """Rows of a sample, for a layer that works on the last axis."""
        return math.prod(self.shape[:-1])

    def add(self, layer: Layer) -> None:
        """Add a layer; an activation after a Dense layer without one becomes a part of it."""
        last = self.layers[-1] if self.layers else None
        if isinstance(layer, Activation) and isinstance(last, Dense) and last.curve.is_linear:
            self.layers[-1] = dataclasses.replace(last, curve=layer.curve)
        elif not (isinstance(layer, Activation) and layer.curve.is_linear):
            self.layers.append(layer)

    def weight(self, layer: Any, part: str) -> Weight | None:
        """A variable of a Keras layer, bound to a buffer of its own; None where the layer has none."""
        variable = getattr(layer, part)
        if variable is None:
            return None
        if variable.constraint is not None:
            raise _refusal(layer, f"its {part} has a constraint")
        if keras.backend.standardize_dtype(variable.dtype) != "float32":
            raise _refusal(layer, f"its {part} is {variable.dtype}")
        l1, l2 = _penalty(layer, getattr(variable, "regularizer", None))
        trainable = bool(variable.trainable) and bool(layer.trainable)
        weight = Weight(f"{self.name}/{part}", tuple(variable.shape), trainable, l1, l2)
        self.binding.weights[weight.name] = variable
        return weight


def names_of(chain: list[Any]) -> list[str]:
    """A name for each layer: the user's, or that which Keras would give in a process without other models.

    Keras numbers the layers of one model on from those of the last; the kernels would be compiled anew for each.
    """
    counts: dict[str, int] = {}
    names = []
    for layer in chain:
        automatic = automatic_name(layer)
        name = layer.name
        if re.fullmatch(rf"{automatic}(_\d+)?", name):
            count = counts.setdefault(automatic, 0)
            counts[automatic] += 1
            name = automatic if count == 0 else f"{automatic}_{count}"
        names.append(identifier(name))
    return names if len(set(names)) == len(names) else [f"{name}_{number}" for number, name in enumerate(names)]


def read_layer(layer: Any, chain: ChainReading) -> None:
    """Read a Keras layer, and add it to those before it."""
    reader = _READERS.get(type(layer))
    if reader is None:
        raise _refusal(layer, f"a {type(layer).__name__} has no kernel")
    if layer.dtype_policy.name != "float32":
        raise _refusal(layer, f"its dtype policy is {layer.dtype_policy.name}")
    if "call" in vars(layer) or getattr(layer, "activity_regularizer", None) is not None or has_own_losses(layer):
        raise _refusal(layer, "it has a call, losses or an activity regularizer of its own")
    reader(layer, chain)


def _refusal(layer: Any, why: str) -> Refusal:
    return Refusal(reason("native_layer", layer.name, why))


def _flatten(layer: Any, chain: ChainReading) -> None:
    if getattr(layer, "data_format", "channels_last") != "channels_last" and len(chain.shape) > 1:
        raise _refusal(layer, "channels_first flattens in another order")
    chain.shape = (chain.size,)


def _reshape(layer: Any, chain: ChainReading) -> None:
    chain.shape = tuple(layer.compute_output_shape((None, *chain.shape))[1:])


def _rescaling(layer: Any, chain: ChainReading) -> None:
    if keras.config.image_data_format() == "channels_first" and np.ndim(layer.scale) > 0:
        raise _refusal(layer, "its scales follow channels_first")
    _affine(layer, chain, "rescale", scale=lambda: layer.scale, offset=lambda: layer.offset)


def _normalization(layer: Any, chain: ChainReading) -> None:
    if getattr(layer, "mean", None) is None:
        raise _refusal(layer, "it has no mean and variance yet")

    def deviation() -> np.ndarray:
        variance = np.asarray(keras.ops.convert_to_numpy(layer.variance), np.float32)
        return np.maximum(np.sqrt(variance), np.float32(keras.config.epsilon()))

    _affine(layer, chain, "rescale" if layer.invert else "normalize", scale=deviation, offset=lambda: layer.mean)


def _affine(layer: Any, chain: ChainReading, kind: Literal["rescale", "normalize"], **parts: Callable[[], Any]) -> None:
    weights = {part: Weight(f"{chain.name}/{part}", (chain.size,), trainable=False) for part in parts}
    for part, give in parts.items():
        constant = functools.partial(_constant, give, chain.shape)
        try:
            constant()
        except ValueError as error:
            raise _refusal(layer, "its constants do not fit its input") from error
        except (NotImplementedError, TypeError) as error:
            # Keras has built the layer in passing: they are meta tensors of torch, or jax' tracers.
            raise _refusal(layer, "its constants have no values yet") from error
        chain.binding.constants[weights[part].name] = constant
    chain.add(Affine(chain.name, chain.size, kind, **weights))


def _constant(give: Callable[[], Any], shape: tuple[int, ...]) -> np.ndarray:
    """A constant of a layer as it is now, one value for each of a sample's."""
    array = np.asarray(keras.ops.convert_to_numpy(give()), np.float32)
    array = array.reshape(array.shape[1:]) if array.ndim > len(shape) and array.shape[0] == 1 else array
    return np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1)


def _penalty(layer: Any, regularizer: Any) -> tuple[float, float]:
    if regularizer is None:
        return 0.0, 0.0
    kinds = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
    if type(regularizer) not in kinds:
        raise _refusal(layer, f"the regularizer {type(regularizer).__name__} has no kernel")
    l1, l2 = (float(keras.ops.convert_to_numpy(getattr(regularizer, name, 0.0))) for name in ("l1", "l2"))
    return l1, l2


def _dense(layer: Any, chain: ChainReading) -> None:
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None) is not None:
        raise _refusal(layer, "it is quantized or has LoRA")
    if not chain.shape:
        raise _refusal(layer, "it is given no features")
    kernel, bias = chain.weight(layer, "kernel"), chain.weight(layer, "bias")
    assert kernel is not None
    if bias is not None and bias.trainable != kernel.trainable:
        raise _refusal(layer, "only one of kernel and bias is trained")
    is_softmax = layer.activation is keras.activations.softmax
    curve = curves.LINEAR if is_softmax else _curve(layer, layer.activation)
    chain.add(Dense(chain.name, chain.shape[-1], layer.units, chain.lines, kernel, bias, curve))
    if is_softmax:
        chain.add(Softmax(f"{chain.name}/softmax", layer.units, chain.lines))
    chain.shape = (*chain.shape[:-1], layer.units)


def _curve(layer: Any, function: Any) -> Curve:
    if function is None:
        return curves.LINEAR
    name = getattr(function, "__name__", "")
    if function is keras.activations.leaky_relu:
        return _leaky_relu(0.2)
    if name not in curves.NAMED or function is not getattr(keras.activations, name, None):
        raise _refusal(layer, f"the activation {name or type(function).__name__} has no kernel")
    return curves.NAMED[name]


def _leaky_relu(slope: float) -> Curve:
    return curves.leaky_relu(slope, slope_at_zero_is_1=keras.config.backend() == "jax")


def _softmax(layer: Any, chain: ChainReading) -> None:
    if not chain.shape:
        raise _refusal(layer, "it is given no features")
    if getattr(layer, "axis", -1) not in (-1, len(chain.shape)):
        raise _refusal(layer, f"its axis is {layer.axis}, not the last")
    chain.add(Softmax(chain.name, chain.shape[-1], chain.lines))


def _curve_layer(layer: Any, chain: ChainReading) -> None:
    if getattr(layer, "activation", None) is keras.activations.softmax:
        _softmax(layer, chain)
    else:
        chain.add(Activation(chain.name, chain.size, _CURVES[type(layer)](layer)))


def _relu(layer: Any) -> Curve:
    slope, threshold = float(layer.negative_slope or 0.0), float(layer.threshold or 0.0)
    most = None if layer.max_value is None else float(layer.max_value)
    if slope != 0 and most is None and threshold == 0:
        return _leaky_relu(slope)
    return curves.relu(slope, most, threshold)


_CURVES: dict[type, Callable[[Any], Curve]] = {
    layers.Activation: lambda layer: _curve(layer, layer.activation),
    layers.ReLU: _relu,
    layers.LeakyReLU: lambda layer: _leaky_relu(float(layer.negative_slope)),
    layers.ELU: lambda layer: curves.elu(float(layer.alpha)),
}


def _dropout(layer: Any, chain: ChainReading) -> None:
    if getattr(layer, "noise_shape", None) is not None and any(size is not None for size in layer.noise_shape):
        raise _refusal(layer, "its noise_shape has no kernel")
    generator = getattr(layer, "seed_generator", None)
    if layer.rate != 0 and generator is not None:
        seeds = chain.binding.seeds
        chain.add(Dropout(chain.name, chain.size, float(layer.rate), number=len(seeds)))
        seeds.append(generator)


def _batch_norm(layer: Any, chain: ChainReading) -> None:
    if layer.axis not in (-1, len(chain.shape)) or not chain.shape:
        raise _refusal(layer, f"its axis is {layer.axis}, not the last")
    if getattr(layer, "renorm", False) or layer.synchronized:
        raise _refusal(layer, "renorm and synchronized have no kernel")
    gamma, beta = chain.weight(layer, "gamma"), chain.weight(layer, "beta")
    mean, variance = chain.weight(layer, "moving_mean"), chain.weight(layer, "moving_variance")
    assert mean is not None
    assert variance is not None
    both = [weight for weight in (gamma, beta) if weight is not None]
    if any(weight.l1 or weight.l2 for weight in both):
        raise _refusal(layer, "its regularizers have no kernel")
    if any(weight.trainable != bool(layer.trainable) for weight in both):
        raise _refusal(layer, "only some of its weights are trained")
    chain.add(
        BatchNorm(
            chain.name,
            chain.shape[-1],
            chain.lines,
            gamma,
            beta,
            mean,
            variance,
            float(layer.momentum),
            float(layer.epsilon),
            frozen=not layer.trainable,
        )
    )


_READERS: dict[type, Callable[[Any, ChainReading], None]] = {
    layers.Flatten: _flatten,
    layers.Reshape: _reshape,
    layers.Rescaling: _rescaling,
    layers.Normalization: _normalization,
    layers.Dense: _dense,
    **dict.fromkeys(_CURVES, _curve_layer),
    layers.Softmax: _softmax,
    layers.Dropout: _dropout,
    layers.BatchNormalization: _batch_norm,
}
