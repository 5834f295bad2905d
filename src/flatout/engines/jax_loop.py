"""Many steps as one XLA program: a loop whose length is known only when it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxprs_in_params

from .base import Structure

# What a modest GPU reaches on the small operations of a small model; only the pace of the progress bar hangs on it.
_SLOW_GPU_FLOPS = 2e12
_LONGEST_UNIT = 128


def loop(step: Callable[..., Any], output: Any, unit: int, capacity: int | None) -> Callable[..., Any]:
    """A function that runs the steps `bounds[0]` to `bounds[1] - 1` and returns the last output, or all of them.

    How many steps run is known only at run time, so that one program serves chunks of every length. A loop of unknown
    length makes XLA ask the GPU after each iteration whether to go on (about 10 us), so an inner loop of `unit`
    steps, whose length is known, goes inside.

    Args:
        step: `(state, data, numbers) -> (output, state)`.
        output: The shapes and dtypes of a step's output.
        unit: Steps of the inner loop; the number of steps must be a multiple of it.
        capacity: Room for this many outputs, or None to keep the last output alone.
    """

    def run(state: Any, data: Structure, order: Any, bounds: Any) -> tuple[Any, Any]:
        start, stop = bounds[0], bounds[1]
        room = () if capacity is None else (capacity,)
        outputs = jax.tree.map(lambda leaf: jnp.zeros((*room, *leaf.shape), leaf.dtype), output)

        def one(position: Any, carry: Any) -> Any:
            outputs, state = carry
            new, state = step(state, data, order[position])
            if capacity is None:
                return new, state
            keep = functools.partial(lax.dynamic_update_index_in_dim, index=position - start, axis=0)
            return jax.tree.map(keep, outputs, new), state

        def several(number: Any, carry: Any) -> Any:
            first = start + number * unit
            return lax.fori_loop(0, unit, lambda offset, carry: one(first + offset, carry), carry)

        if unit == 1:
            return lax.fori_loop(start, stop, one, (outputs, state))
        return lax.fori_loop(0, (stop - start) // unit, several, (outputs, state))

    return run


def choose_unit(steps: int, step: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    """The length of the inner loop on a GPU: about a tenth of a second, and such that few steps are left over.

    Args:
        steps: Full batches in a pass.
        step: The step, a function of jax operations.
        arguments: Its arguments, or their shapes.
    """
    traced = jax.jit(step).trace(*arguments)
    if _has_loop(traced.jaxpr.jaxpr):
        # A recurrent layer: slow whatever its arithmetic.
        most = 4
    else:
        operations = (traced.lower().cost_analysis() or {}).get("flops", 0.0)
        most = max(1, min(_LONGEST_UNIT, int(0.1 * _SLOW_GPU_FLOPS / max(1.0, operations))))
    if steps <= most:
        return max(1, steps)
    return min(range(most, most // 4, -1), key=lambda unit: steps % unit)


def _has_loop(jaxpr: Any) -> bool:
    return any(
        equation.primitive.name in ("scan", "while") or any(map(_has_loop, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )
