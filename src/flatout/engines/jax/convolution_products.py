"""A convolution as one product of matrices, for kernels that are mapped over models.

Mapped, a convolution becomes one with a group of features for each model, for which GPUs have no fast kernels; products
become batched products, for which they have. What the window covers is laid out beside it, window by window: over the
positions of the window, or over those of the result where they are fewer, as in the gradient of a kernel.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax

# As many slices are laid out at most; a window of 7 by 7 is the largest that is common.
_MOST_SLICES = 64


def convolution(lhs: Any, rhs: Any, **parameters: Any) -> Any:
    """What `lax.conv_general_dilated_p` computes, with its parameters."""
    numbers = parameters["dimension_numbers"]
    strides, spacing = parameters["window_strides"], parameters["rhs_dilation"]
    window, result = _sizes(lhs, rhs, parameters)
    is_grouped = parameters["feature_group_count"] != 1 or parameters["batch_group_count"] != 1
    if is_grouped or 0 in result or min(math.prod(window), math.prod(result)) > _MOST_SLICES:
        return lax.conv_general_dilated_p.bind(lhs, rhs, **parameters)
    lhs = _spread(lhs, numbers.lhs_spec, parameters["padding"], parameters["lhs_dilation"])
    outputs, inputs, *places = numbers.rhs_spec
    kernel = jnp.transpose(rhs, (*places, inputs, outputs))
    product = {"precision": parameters["precision"], "preferred_element_type": parameters["preferred_element_type"]}
    laid_out = _over_window if math.prod(window) <= math.prod(result) else _over_result
    found = laid_out(lhs, kernel, result, strides, spacing, product)
    # From batch, positions, features to the places that the result shall have them at.
    batch, features, *positions = numbers.out_spec
    order = sorted(range(found.ndim), key=lambda axis: (batch, *positions, features)[axis])
    return jnp.transpose(found, order)


def _sizes(lhs: Any, rhs: Any, parameters: dict[str, Any]) -> tuple[list[int], list[int]]:
    """How many places the window has, and how many positions the result, along each axis."""
    numbers = parameters["dimension_numbers"]
    window = [rhs.shape[axis] for axis in numbers.rhs_spec[2:]]
    lengths = [lhs.shape[axis] for axis in numbers.lhs_spec[2:]]
    result = []
    for number, size in enumerate(window):
        low, high = parameters["padding"][number]
        spread = (lengths[number] - 1) * parameters["lhs_dilation"][number] + 1 + low + high
        reach = (size - 1) * parameters["rhs_dilation"][number] + 1
        result.append(max(0, (spread - reach) // parameters["window_strides"][number] + 1))
    return window, result


def _spread(lhs: Any, spec: Any, padding: Any, dilation: Any) -> Any:
    """The operand as batch, positions, features, padded and with zeros between its entries."""
    batch, features, *positions = spec
    lhs = jnp.transpose(lhs, (batch, *positions, features))
    edges = [(low, high, step - 1) for (low, high), step in zip(padding, dilation, strict=True)]
    if not any(itertools.chain.from_iterable(edges)):
        return lhs
    return lax.pad(lhs, jnp.zeros((), lhs.dtype), [(0, 0, 0), *edges, (0, 0, 0)])


def _over_window(lhs: Any, kernel: Any, result: Any, strides: Any, spacing: Any, product: Any) -> Any:
    """Each place of the window beside the others, for all positions of the result."""
    patches = jnp.stack(_slices(lhs, kernel.shape[:-2], spacing, result, strides), axis=-2)
    flat = kernel.reshape(-1, *kernel.shape[-2:])
    last = patches.ndim
    return lax.dot_general(patches, flat, (((last - 2, last - 1), (0, 1)), ((), ())), **product)


def _over_result(lhs: Any, kernel: Any, result: Any, strides: Any, spacing: Any, product: Any) -> Any:
    """What the whole window covers, for each position of the result beside the others."""
    patches = jnp.stack(_slices(lhs, result, strides, kernel.shape[:-2], spacing), axis=1)
    covered = tuple(range(2, patches.ndim))
    found = lax.dot_general(patches, kernel, ((covered, tuple(range(kernel.ndim - 1))), ((), ())), **product)
    return found.reshape(lhs.shape[0], *result, kernel.shape[-1])


def _slices(lhs: Any, starts: Any, apart: Any, sizes: Any, steps: Any) -> list[Any]:
    """A slice of these sizes and steps from each of as many `starts`, which lie `apart`."""
    found = []
    for place in itertools.product(*map(range, starts)):
        start = [at * step for at, step in zip(place, apart, strict=True)]
        stop = [first + (size - 1) * step + 1 for first, size, step in zip(start, sizes, steps, strict=True)]
        found.append(lax.slice(lhs, (0, *start, 0), (lhs.shape[0], *stop, lhs.shape[-1]), (1, *steps, 1)))
    return found
