"""Many steps as one XLA program: a loop whose length is known only when it runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from flatout.engines.contract import Structure

from .executables import equations, primitives

# What a modest GPU reaches on the small operations of a small model; only the pace of the progress bar hangs on it.
_SLOW_GPU_FLOPS = 2e12
_LONGEST_UNIT = 128
# On two cores: about 5 ms, and about 50 ms.
_CPU_OPERATIONS_OF_A_SHORT_STEP = 2e8
_CPU_OPERATIONS_OF_A_LONG_STEP = 1e9


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


@dataclass(frozen=True)
class Cost:
    """What a step does, as far as its jax operations tell; it loops itself if it has recurrent layers."""

    # Floating-point operations in products and convolutions.
    operations: float
    has_loop: bool
    has_convolution: bool


def cost_of(jaxpr: Any) -> Cost:
    """Add up what a step's jaxpr does; a loop inside counts once."""
    names = primitives(jaxpr)
    return Cost(
        operations=sum(map(_operations, equations(jaxpr))),
        has_loop=bool(names & {"scan", "while"}),
        has_convolution="conv_general_dilated" in names,
    )


def loop_pays_on_cpu(cost: Cost) -> bool:
    """Whether a loop of steps is faster on a CPU than one dispatch a step.

    Inside a loop XLA's CPU compiler does not call its fast convolution (measured: 9 times slower), and a step that
    takes milliseconds gains nothing by sparing a dispatch of 0.1 ms.
    """
    return not cost.has_convolution and not cost.has_loop and cost.operations < _CPU_OPERATIONS_OF_A_SHORT_STEP


def anything_pays_on_cpu(cost: Cost) -> bool:
    """Whether sparing Keras' half a millisecond a step can be noticed at all."""
    return not cost.has_loop and cost.operations < _CPU_OPERATIONS_OF_A_LONG_STEP


def choose_unit(steps: int, cost: Cost) -> int:
    """The length of the inner loop on a GPU: about a tenth of a second, and such that few of `steps` are left over."""
    if cost.has_loop:
        # A recurrent layer takes long whatever its arithmetic, and 10 us more are nothing to it. An inner loop of 4
        # steps made two LSTMs a tenth slower (H200).
        return 1
    most = max(1, min(_LONGEST_UNIT, int(0.1 * _SLOW_GPU_FLOPS / max(1.0, cost.operations))))
    if steps <= most:
        return max(1, steps)
    return min(range(most, most // 4, -1), key=lambda unit: steps % unit)


def _operations(equation: Any) -> float:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) / max(1, outputs)
    return 0.0
