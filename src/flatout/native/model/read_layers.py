"""Keras layers as layers of a `Network`. Exact types alone: a subclass may compute anything."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import layers

from flatout.base.errors import Refusal, reason
from flatout.seam.layers import automatic_name, has_own_losses

from . import activations as curves
from .activations import Curve
from .c_spelling import identifier
from .network import Activation, Affine, BatchNorm, Dense, Dropout, Layer, Softmax, Weight

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerReading:
    """A layer that was read; without `layer` it only gives the values another shape."""

    shape: Shape
    layer: Layer | None = None
    weights: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Callable[[], np.ndarray]] = field(default_factory=dict)
    seeds: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class PlaceInChain:
    """Where a layer is in its chain.

    Attributes:
        name: What it is called in the program.
        shape: Of a sample that it is given.
        dropouts: How many Dropout layers are before it.
    """

    name: str
    shape: Shape
    dropouts: int


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


def read_layer(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    """Read a Keras layer."""
    reader = _READERS.get(type(layer))
    if reader is None:
        raise _refusal(layer, f"a {type(layer).__name__} has no kernel")
    if layer.dtype_policy.name != "float32":
        raise _refusal(layer, f"its dtype policy is {layer.dtype_policy.name}")
    if "call" in vars(layer) or getattr(layer, "activity_regularizer", None) is not None or has_own_losses(layer):
        raise _refusal(layer, "it has a call, losses or an activity regularizer of its own")
    return reader(layer, at)


def _refusal(layer: Any, why: str) -> Refusal:
    return Refusal(reason("native_layer", layer.name, why))


def _flatten(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if getattr(layer, "data_format", "channels_last") != "channels_last" and len(at.shape) > 1:
        raise _refusal(layer, "channels_first flattens in another order")
    return [LayerReading((math.prod(at.shape),))]


def _reshape(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    return [LayerReading(tuple(layer.compute_output_shape((None, *at.shape))[1:]))]


def _constant(value: Any, shape: Shape) -> np.ndarray:
    """A constant of a layer, one value for each of a sample's."""
    array = np.asarray(keras.ops.convert_to_numpy(value), np.float32)
    array = array.reshape(array.shape[1:]) if array.ndim > len(shape) and array.shape[0] == 1 else array
    return np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1)


def _rescaling(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if keras.config.image_data_format() == "channels_first" and np.ndim(layer.scale) > 0:
        raise _refusal(layer, "its scales follow channels_first")
    return [_affine(layer, at, "rescale", lambda: layer.scale, lambda: layer.offset)]


def _normalization(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if getattr(layer, "mean", None) is None:
        raise _refusal(layer, "it has no mean and variance yet")

    def deviation() -> np.ndarray:
        variance = np.asarray(keras.ops.convert_to_numpy(layer.variance), np.float32)
        return np.maximum(np.sqrt(variance), np.float32(keras.config.epsilon()))

    kind = "rescale" if layer.invert else "normalize"
    return [_affine(layer, at, kind, deviation, lambda: layer.mean)]


def _affine(
    layer: Any, at: PlaceInChain, kind: Any, scale: Callable[[], Any], offset: Callable[[], Any]
) -> LayerReading:
    name, shape, size = at.name, at.shape, math.prod(at.shape)
    weights = [Weight(f"{name}/{part}", (size,), trainable=False) for part in ("scale", "offset")]
    constants: dict[str, Callable[[], np.ndarray]] = {
        weight.name: functools.partial(lambda give: _constant(give(), shape), give)
        for weight, give in zip(weights, (scale, offset), strict=True)
    }
    try:
        for give in constants.values():
            give()
    except ValueError as error:
        raise _refusal(layer, "its constants do not fit its input") from error
    return LayerReading(shape, Affine(name, size, kind, *weights), constants=constants)


def _penalty(layer: Any, regularizer: Any) -> tuple[float, float]:
    if regularizer is None:
        return 0.0, 0.0
    kinds = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
    if type(regularizer) not in kinds:
        raise _refusal(layer, f"the regularizer {type(regularizer).__name__} has no kernel")
    l1, l2 = (float(keras.ops.convert_to_numpy(getattr(regularizer, name, 0.0))) for name in ("l1", "l2"))
    return l1, l2


def _weight(layer: Any, name: str, part: str, variable: Any) -> Weight:
    if variable.constraint is not None:
        raise _refusal(layer, f"its {part} has a constraint")
    if keras.backend.standardize_dtype(variable.dtype) != "float32":
        raise _refusal(layer, f"its {part} is {variable.dtype}")
    l1, l2 = _penalty(layer, getattr(variable, "regularizer", None))
    trainable = bool(variable.trainable) and bool(layer.trainable)
    return Weight(f"{name}/{part}", tuple(variable.shape), trainable, l1, l2)


def _dense(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None) is not None:
        raise _refusal(layer, "it is quantized or has LoRA")
    if not at.shape:
        raise _refusal(layer, "it is given no features")
    name, inputs, outputs = at.name, at.shape[-1], layer.units
    kernel = _weight(layer, at.name, "kernel", layer.kernel)
    bias = _weight(layer, at.name, "bias", layer.bias) if layer.use_bias else None
    if bias is not None and bias.trainable != kernel.trainable:
        raise _refusal(layer, "only one of kernel and bias is trained")
    weights = {kernel.name: layer.kernel, **({bias.name: layer.bias} if bias is not None else {})}
    lines, after = math.prod(at.shape[:-1]), (*at.shape[:-1], outputs)
    if _is_softmax(layer.activation):
        dense = Dense(name, inputs, outputs, lines, kernel, bias, curves.LINEAR)
        return [LayerReading(after, dense, weights), LayerReading(after, Softmax(f"{name}/softmax", outputs, lines))]
    return [
        LayerReading(after, Dense(name, inputs, outputs, lines, kernel, bias, _curve(layer, layer.activation)), weights)
    ]


def _is_softmax(function: Any) -> bool:
    return function is keras.activations.softmax


def _curve(layer: Any, function: Any) -> Curve:
    if function is None:
        return curves.LINEAR
    name = getattr(function, "__name__", "")
    if name not in curves.NAMED or function is not getattr(keras.activations, name, None):
        raise _refusal(layer, f"the activation {name or type(function).__name__} has no kernel")
    if name == "leaky_relu":
        return _leaky_relu(0.2)
    return curves.NAMED[name]()


def _leaky_relu(slope: float) -> Curve:
    return curves.leaky_relu(slope, slope_at_zero_is_1=keras.config.backend() == "jax")


def _activation(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    return _softmax(layer, at) if _is_softmax(layer.activation) else _curve_layer(layer, at)


def _softmax(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if not at.shape:
        raise _refusal(layer, "it is given no features")
    if getattr(layer, "axis", -1) not in (-1, len(at.shape)):
        raise _refusal(layer, f"its axis is {layer.axis}, not the last")
    return [LayerReading(at.shape, Softmax(at.name, at.shape[-1], math.prod(at.shape[:-1])))]


def _curve_layer(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    return [LayerReading(at.shape, Activation(at.name, math.prod(at.shape), _CURVES[type(layer)](layer)))]


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


def _dropout(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if getattr(layer, "noise_shape", None) is not None and any(size is not None for size in layer.noise_shape):
        raise _refusal(layer, "its noise_shape has no kernel")
    generator = getattr(layer, "seed_generator", None)
    if layer.rate == 0 or generator is None:
        return [LayerReading(at.shape)]
    return [
        LayerReading(at.shape, Dropout(at.name, math.prod(at.shape), float(layer.rate), at.dropouts), seeds=[generator])
    ]


def _batch_norm(layer: Any, at: PlaceInChain) -> list[LayerReading]:
    if layer.axis not in (-1, len(at.shape)) or not at.shape:
        raise _refusal(layer, f"its axis is {layer.axis}, not the last")
    if getattr(layer, "renorm", False) or layer.synchronized:
        raise _refusal(layer, "renorm and synchronized have no kernel")
    variables = {name: getattr(layer, name) for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    weights = {name: None if one is None else _weight(layer, at.name, name, one) for name, one in variables.items()}
    both = [one for one in (weights["gamma"], weights["beta"]) if one is not None]
    if any(one.l1 or one.l2 for one in both):
        raise _refusal(layer, "its regularizers have no kernel")
    if any(one.trainable != bool(layer.trainable) for one in both):
        raise _refusal(layer, "only some of its weights are trained")
    mean, variance = weights["moving_mean"], weights["moving_variance"]
    assert mean is not None
    assert variance is not None
    spec = BatchNorm(
        at.name,
        at.shape[-1],
        math.prod(at.shape[:-1]),
        weights["gamma"],
        weights["beta"],
        mean,
        variance,
        float(layer.momentum),
        float(layer.epsilon),
        frozen=not layer.trainable,
    )
    return [
        LayerReading(at.shape, spec, {one.name: variables[name] for name, one in weights.items() if one is not None})
    ]


_READERS: dict[type, Callable[[Any, PlaceInChain], list[LayerReading]]] = {
    layers.Flatten: _flatten,
    layers.Reshape: _reshape,
    layers.Rescaling: _rescaling,
    layers.Normalization: _normalization,
    layers.Dense: _dense,
    layers.Activation: _activation,
    layers.ReLU: _curve_layer,
    layers.LeakyReLU: _curve_layer,
    layers.ELU: _curve_layer,
    layers.Softmax: _softmax,
    layers.Dropout: _dropout,
    layers.BatchNormalization: _batch_norm,
}
