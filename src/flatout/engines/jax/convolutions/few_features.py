"""Which convolutions of a step on a GPU are computed by kernels of ours, in the place of cuDNN's."""

from __future__ import annotations

import math
import os
from typing import Any

import jax.numpy as jnp
from jax import lax

from flatout.engines.jax import triton_gpu

from .convolution_shape import ConvolutionShape

# The GPU on which our kernels and cuDNN's were compared, an H200, and the convolutions for which ours took less time.
_MEASURED = "9.0"
_MOST_FEATURES, _MOST_FEATURES_OF_A_GRADIENT = 32, 64
_FEWEST_POSITIONS, _MOST_PLACES = 4096, 49
# That an int32 counts, also beyond the last position.
_MOST_NUMBERS = 2**30


def has_kernel(lhs: Any, rhs: Any, **parameters: Any) -> bool:
    """Whether there is a kernel for what `lax.conv_general_dilated_p` computes of such operands, and a GPU for it."""
    shape = ConvolutionShape.of(lhs, rhs, parameters)
    if triton_gpu.capability() != _MEASURED or shape.is_grouped or not _rounds_as_kernels_do(lhs, rhs, parameters):
        return False
    numbers = parameters["dimension_numbers"]
    images, positions, places = lhs.shape[numbers.lhs_spec[0]], math.prod(shape.result), math.prod(shape.window)
    features, most = rhs.shape[numbers.rhs_spec[1]], _MOST_FEATURES
    lasts = _features_last(numbers.lhs_spec), _features_last(numbers.out_spec)
    if _is_gradient(shape):
        if set(shape.spread) != {1}:
            return False
        images, positions, places = lhs.shape[numbers.lhs_spec[1]], places, positions
        features, most = lhs.shape[numbers.lhs_spec[0]], _MOST_FEATURES_OF_A_GRADIENT
        lasts = _features_last(_turned(numbers.lhs_spec)), _features_last(_turned(numbers.rhs_spec))
    is_small = max(features, rhs.shape[numbers.rhs_spec[0]]) <= most and places <= _MOST_PLACES
    numbers_of_results = images * positions * rhs.shape[numbers.rhs_spec[0]]
    is_large = images * positions >= _FEWEST_POSITIONS and max(lhs.size, rhs.size, numbers_of_results) <= _MOST_NUMBERS
    has_numbers = min(lhs.size, rhs.size, places) > 0
    return has_numbers and is_small and is_large and all(axes == tuple(range(lhs.ndim)) for axes in lasts)


def by_kernel(lhs: Any, rhs: Any, interpret: bool = False, **parameters: Any) -> Any:
    """What `lax.conv_general_dilated_p` computes, where there is a kernel for it."""
    # Not before: Pallas takes its time to import.
    from .window_kernels import WindowForm, convolved, gradient_of_kernel

    numbers, shape = parameters["dimension_numbers"], ConvolutionShape.of(lhs, rhs, parameters)
    padding, results = tuple(low for low, _ in parameters["padding"]), rhs.shape[numbers.rhs_spec[0]]
    if _is_gradient(shape):
        # To the convolution, images are features here, and features images.
        images, features = lhs.shape[numbers.lhs_spec[1]], lhs.shape[numbers.lhs_spec[0]]
        sizes = images, shape.lengths, shape.window, shape.result
        form = WindowForm(*sizes, shape.spacing, shape.strides, shape.spread, padding, features, results, interpret)
        found = gradient_of_kernel(form, lhs, rhs, triton_gpu.cores())
        first, second, *places = numbers.out_spec
        order = [*places, first, second]
        return jnp.transpose(found, sorted(range(found.ndim), key=order.__getitem__))
    images, features = lhs.shape[numbers.lhs_spec[0]], lhs.shape[numbers.lhs_spec[1]]
    sizes = images, shape.lengths, shape.result, shape.window
    form = WindowForm(*sizes, shape.strides, shape.spacing, shape.spread, padding, features, results, interpret)
    second, first, *places = numbers.rhs_spec
    return convolved(form, lhs, jnp.transpose(rhs, (*places, first, second)))


def _is_gradient(shape: ConvolutionShape) -> bool:
    """Whether the result is a kernel, and what is taken for a kernel the gradient of a result."""
    return math.prod(shape.result) < math.prod(shape.window)


def _rounds_as_kernels_do(lhs: Any, rhs: Any, parameters: dict[str, Any]) -> bool:
    """Whether cuDNN may use TF32 here."""
    precision, dtype = parameters["precision"], parameters["preferred_element_type"]
    # Else it may also be one algorithm.
    is_default = precision is None or (isinstance(precision, tuple) and set(precision) == {lax.Precision.DEFAULT})
    is_float32 = lhs.dtype == rhs.dtype == jnp.float32 and dtype in (None, jnp.float32)
    return is_default and is_float32 and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def _turned(spec: Any) -> tuple[int, ...]:
    return (spec[1], spec[0], *spec[2:])


def _features_last(spec: Any) -> tuple[int, ...]:
    """An operand's axes as images, positions, features."""
    return (spec[0], *spec[2:], spec[1])
