"""The gradient of max pooling on a GPU: by a mask instead of a scatter.

XLA's GPU compiler writes down where the largest value of each window is, number by number, and scatters the gradients
one by one. Where windows do not overlap, every position belongs to one window and can ask whether it is the one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import lax

# Of a window: each is an operation.
_MOST_PLACES = 64


def can_be_masked(source: Any, operand: Any, **parameters: Any) -> bool:
    """Whether it is of a maximum, and no windows overlap."""
    window, strides = parameters["window_dimensions"], parameters["window_strides"]
    is_max = parameters["select_prim"] is lax.ge_p and math.prod(window) <= _MOST_PLACES
    return is_max and tuple(window) == tuple(strides) and not any(map(any, parameters["padding"]))


def masked(source: Any, operand: Any, **parameters: Any) -> Any:
    """What `lax.select_and_scatter_add_p` computes, where it can be masked."""
    window = parameters["window_dimensions"]
    # Windows side by side: each axis is a number of windows, and a place in the window.
    whole = tuple(count * size for count, size in zip(source.shape, window, strict=True))
    pairs = tuple(itertools.chain.from_iterable(zip(source.shape, window, strict=True)))
    apart = lax.slice(operand, (0,) * operand.ndim, whole).reshape(pairs)
    places = [*itertools.product(*map(range, window))]
    best = chosen = None
    for number, place in enumerate(places):
        value = apart[tuple(itertools.chain.from_iterable((slice(None), at) for at in place))]
        if best is None:
            best, chosen = value, jnp.zeros(value.shape, jnp.int32)
        else:
            # As XLA compares, also with NaN: the first of the largest values.
            stays = best >= value
            best, chosen = jnp.where(stays, best, value), jnp.where(stays, chosen, number)
    spread = tuple(range(0, 2 * source.ndim, 2))
    number_of_place = sum(
        lax.broadcasted_iota(jnp.int32, pairs, 2 * axis + 1) * math.prod(window[axis + 1 :])
        for axis in range(source.ndim)
    )
    chosen, gradient = (lax.broadcast_in_dim(part, pairs, spread) for part in (chosen, source))
    found = jnp.where(chosen == number_of_place, gradient, jnp.zeros((), source.dtype)).reshape(whole)
    rest = [(0, size - used, 0) for size, used in zip(operand.shape, whole, strict=True)]
    return lax.pad(found, jnp.zeros((), found.dtype), rest)
