"""Products of states with recurrent kernels, inside of a kernel: by a GPU's own units, or number by number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
from jax import lax

from .cells import TILE, Form

# Of a float32: what a bfloat16 has.
_UPPER_HALF = -(2**16)


def kernels(form: Form, weights: Any) -> Callable[[int], list[Any]]:
    """The parts of each recurrent kernel, of which a program has all from the beginning if they fit."""

    def loaded(number: int) -> list[Any]:
        return [weights[number, part] for part in range(weights.shape[1])]

    if form.reloads:
        return loaded
    return [loaded(number) for number in range(weights.shape[0])].__getitem__


def parts(form: Form, weights: Any) -> Any:
    """Recurrent kernels `[directions, products, parts, units, units]`."""
    return jnp.stack(_split(weights, 3) if form.is_split else [weights], axis=2)


def _split(value: Any, count: int) -> list[Any]:
    """So many bfloat16 numbers that add up to a number, from the largest to the smallest; three are exact for float32.

    By bits: XLA takes a number that was made a bfloat16 and back for the number itself.
    """
    parts = []
    for _ in range(count - 1):
        bits = lax.bitcast_convert_type(value, jnp.int32) & _UPPER_HALF
        part = lax.bitcast_convert_type(bits, jnp.float32)
        parts.append(part.astype(jnp.bfloat16))
        value = value - part
    return [*parts, value.astype(jnp.bfloat16)]


def product(form: Form, pairs: Iterable[tuple[Any, list[Any]]]) -> Any:
    """The sum of products of states and kernels in one or three parts, in float32."""
    if form.rows < TILE:
        # No matrices for the GPU's own units: each thread multiplies the part of a kernel that is in its registers.
        terms = (_as_kept(states, kernel)[:, :, None] * kernel[0].astype(jnp.float32) for states, kernel in pairs)
        return jnp.sum(sum(terms), axis=1)
    return sum(_dot(states, kernel) for states, kernel in pairs)


def _as_kept(states: Any, kernel: list[Any]) -> Any:
    """Rounded to what a kernel has, as if they were multiplied with it by the GPU's own units."""
    return states.astype(kernel[0].dtype).astype(jnp.float32)


def _dot(states: Any, kernel: list[Any]) -> Any:
    if kernel[0].dtype == jnp.float32:
        return jnp.dot(states, kernel[0], precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    parts = _split(states, len(kernel))
    # Small ones first; what is left out is smaller than float32 can tell.
    pairs = [(one, order - one) for order in reversed(range(len(kernel))) for one in range(order + 1)]
    return sum(jnp.dot(parts[one], kernel[other], preferred_element_type=jnp.float32) for one, other in pairs)
