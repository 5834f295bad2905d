"""A convolution as one product of matrices, for kernels that are mapped over models.

Mapped, a convolution becomes one with a group of features for each model, for which GPUs have no fast kernels; products
become batched products, for which they have. There are three such products, of which that is taken that writes the
least: what the window covers at each position of the result, laid out before it is multiplied; what each position of
the operand gives to every place of the window, multiplied before it is added up; and, where the window is larger than
the result, as in the gradient of a kernel, what the whole window covers. Operands stay in the layout that they have.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from .convolution_shape import ConvolutionShape

# As many slices are laid out at most; a window of 7 by 7 is the largest that is common.
_MOST_SLICES = 64


def convolution(lhs: Any, rhs: Any, **parameters: Any) -> Any:
    """What `lax.conv_general_dilated_p` computes, with its parameters."""
    numbers = parameters["dimension_numbers"]
    shape = ConvolutionShape.of(lhs, rhs, parameters)
    positions, places = math.prod(shape.result), math.prod(shape.window)
    if shape.is_grouped or positions == 0 or min(places, positions) > _MOST_SLICES:
        return lax.conv_general_dilated_p.bind(lhs, rhs, **parameters)
    features, results = (rhs.shape[axis] for axis in (numbers.rhs_spec[1], numbers.rhs_spec[0]))
    if places > positions:
        found = _laid_out_over_result(lhs, rhs, shape)
    elif set(shape.strides) == {1} and math.prod(shape.lengths) * results < positions * features:
        found = _multiplied_first(lhs, rhs, shape)
    else:
        found = _laid_out_over_window(lhs, rhs, shape)
    # From batch, positions, features to the places that the result shall have them at.
    batch, feature, *spatial = numbers.out_spec
    return jnp.transpose(found, sorted(range(found.ndim), key=lambda axis: (batch, *spatial, feature)[axis]))


def _laid_out_over_window(lhs: Any, rhs: Any, shape: ConvolutionShape) -> Any:
    """Each place of the window beside the others, for all positions of the result."""
    numbers = shape.parameters["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    slices = _slices(_spread(lhs, shape), spatial, shape.window, shape.spacing, shape.result, shape.strides)
    patches = jnp.stack(slices, axis=feature)
    kernel = _kernel(rhs, numbers.rhs_spec)
    found = lax.dot_general(patches, kernel, (((feature, feature + 1), (0, 1)), ((), ())), **shape.products)
    # The axes that are left are in the operand's order.
    left = sorted((batch, *spatial))
    return jnp.transpose(found, (*(left.index(axis) for axis in (batch, *spatial)), len(left)))


def _multiplied_first(lhs: Any, rhs: Any, shape: ConvolutionShape) -> Any:
    """What each position of the operand gives to all places of the window, added up where it belongs."""
    numbers, given = shape.parameters["dimension_numbers"], shape.parameters
    batch, feature, *spatial = numbers.lhs_spec
    kernel = _kernel(rhs, numbers.rhs_spec)
    products = shape.products
    dtype = products["preferred_element_type"] or jnp.result_type(lhs, rhs)
    if jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32:
        # Rounded once, when all is added up.
        products["preferred_element_type"] = jnp.float32
    parts = lax.dot_general(lhs, kernel, (((feature,), (1,)), ((), ())), **products)
    left = sorted((batch, *spatial))
    parts = jnp.transpose(parts, (*(left.index(axis) for axis in (batch, *spatial)), parts.ndim - 2, parts.ndim - 1))
    found: Any = None
    for number, place in enumerate(itertools.product(*map(range, shape.window))):
        edges = []
        for axis, at in enumerate(place):
            low = given["padding"][axis][0] - at * shape.spacing[axis]
            inner = given["lhs_dilation"][axis] - 1
            length = shape.lengths[axis] + (shape.lengths[axis] - 1) * inner
            edges.append((low, shape.result[axis] - length - low, inner))
        part = lax.pad(parts[..., number, :], jnp.zeros((), parts.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
        found = part if found is None else found + part
    return found.astype(dtype)


def _laid_out_over_result(lhs: Any, rhs: Any, shape: ConvolutionShape) -> Any:
    """What the whole window covers, for each position of the result beside the others."""
    numbers = shape.parameters["dimension_numbers"]
    batch, feature, *spatial = numbers.lhs_spec
    slices = _slices(_spread(lhs, shape), spatial, shape.result, shape.strides, shape.window, shape.spacing)
    patches = jnp.stack(slices, axis=batch)
    # The new axis comes before that of the batch.
    covered = [axis + (axis >= batch) for axis in (feature, *spatial)]
    _, into, *places = numbers.rhs_spec
    found = lax.dot_general(patches, rhs, ((covered, (into, *places)), ((), ())), **shape.products)
    found = found.reshape(*shape.result, *found.shape[1:])
    return jnp.moveaxis(found, len(shape.result), 0)


def _kernel(rhs: Any, spec: Any) -> Any:
    """The kernel as places, features, results."""
    outputs, inputs, *places = spec
    kernel = jnp.transpose(rhs, (*places, inputs, outputs))
    return kernel.reshape(-1, *kernel.shape[-2:])


def _spread(lhs: Any, shape: ConvolutionShape) -> Any:
    """The operand padded, and with zeros between its entries."""
    edges = [(0, 0, 0)] * lhs.ndim
    spatial = shape.parameters["dimension_numbers"].lhs_spec[2:]
    both = zip(spatial, shape.parameters["padding"], shape.parameters["lhs_dilation"], strict=True)
    for axis, (low, high), spread in both:
        edges[axis] = (low, high, spread - 1)
    if not any(itertools.chain.from_iterable(edges)):
        return lhs
    return lax.pad(lhs, jnp.zeros((), lhs.dtype), edges)


def _slices(lhs: Any, axes: Any, starts: Any, apart: Any, sizes: Any, steps: Any) -> list[Any]:
    """A slice of these sizes and steps along some axes from each of as many `starts`, which lie `apart`."""
    found = []
    for place in itertools.product(*map(range, starts)):
        first, last, step = [0] * lhs.ndim, [*lhs.shape], [1] * lhs.ndim
        for number, axis in enumerate(axes):
            first[axis] = place[number] * apart[number]
            last[axis] = first[axis] + (sizes[number] - 1) * steps[number] + 1
            step[axis] = steps[number]
        found.append(lax.slice(lhs, first, last, step))
    return found
