"""A recurrence over all time steps as one Pallas kernel, and its gradient as another.

Every direction of a layer and every tile of a batch is a program of its own, which keeps its states in registers from
the first step to the last. The large products stay outside: inputs are projected for all steps before the kernel, and
the gradient of the recurrent kernels is one product after it. Arrays are batch, time, direction, gate, unit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as triton

from .cells import TILE, Form

# With fewer, what the float32 form holds does not fit into registers, and it takes ten times as long (H200).
_WARPS = 8
# Of a float32: what a bfloat16 has.
_UPPER_HALF = -(2**16)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recurrence(form: Form, inputs: Any, weights: Any, initial: tuple[Any, ...], mask: Any) -> Any:
    """Run all time steps.

    Args:
        form: Of the kernel.
        inputs: What the gates receive of the inputs, `[rows, steps, directions, gates, units]`; rows and units
            fill tiles.
        weights: Recurrent kernels, `[directions, products, units, units]`.
        initial: The states to begin with, each `[rows, directions, units]`.
        mask: `[rows, steps]`, 0 where a step shall leave the states as they are; or None.

    Returns:
        The first state after each step, `[rows, steps, directions, units]`, and the last states, as `initial`.
    """
    outputs, last, _, _ = _run(form, inputs, weights, initial, mask, keeps=False)
    return outputs, last


def _forward(form: Form, inputs: Any, weights: Any, initial: tuple[Any, ...], mask: Any) -> Any:
    outputs, last, gates, before = _run(form, inputs, weights, initial, mask, keeps=True)
    return (outputs, last), (weights, mask, gates, before)


def _backward(form: Form, kept: Any, gradients: Any) -> Any:
    weights, mask, gates, before = kept
    of_gates, of_initial = _run_back(form, weights, mask, gates, before, *gradients)
    # As accurate as the products inside.
    precision = None if weights.dtype == jnp.bfloat16 else lax.Precision.HIGHEST
    products = of_gates
    if len(form.cell.products) < form.cell.gates:
        products = jnp.stack([of_gates[:, :, :, gate] for gate in form.cell.products], axis=3)
    of_weights = jnp.einsum(
        "btdh,btdgk->dghk", before[0], products, precision=precision, preferred_element_type=jnp.float32
    )
    return of_gates, of_weights.astype(weights.dtype), of_initial, None


recurrence.defvjp(_forward, _backward)


def _run(form: Form, inputs: Any, weights: Any, initial: tuple[Any, ...], mask: Any, keeps: bool) -> Any:
    """The forward kernel; with what its gradient needs if that shall be kept."""
    rows, steps, directions, gates, units = inputs.shape
    specs = _Specs(steps, gates, units)
    weights = _parts(form, weights)
    sequence = jax.ShapeDtypeStruct((rows, steps, directions, units), inputs.dtype)
    shapes: Any = [sequence, tuple(jax.ShapeDtypeStruct(state.shape, state.dtype) for state in initial), None, None]
    out_specs: Any = [specs.sequence, (specs.state,) * len(initial), None, None]
    if keeps:
        shapes[2:] = [jax.ShapeDtypeStruct(inputs.shape, inputs.dtype), (sequence,) * len(initial)]
        out_specs[2:] = [specs.gates, (specs.sequence,) * len(initial)]
    return pl.pallas_call(
        functools.partial(_steps_forward, form),
        grid=(directions, rows // TILE),
        in_specs=[specs.gates, specs.weights(weights), (specs.state,) * len(initial), specs.mask(mask)],
        out_specs=out_specs,
        out_shape=shapes,
        **_compiled(form),
    )(inputs, weights, initial, mask)


def _run_back(
    form: Form, weights: Any, mask: Any, gates: Any, before: Any, of_outputs: Any, of_last: tuple[Any, ...]
) -> Any:
    """The backward kernel: gradients of what the gates received, and of the first states."""
    rows, steps, directions, number, units = gates.shape
    specs = _Specs(steps, number, units)
    weights = _parts(form, jnp.swapaxes(weights, 2, 3))
    states = (specs.state,) * len(before)
    return pl.pallas_call(
        functools.partial(_steps_back, form),
        grid=(directions, rows // TILE),
        in_specs=[
            *(specs.weights(weights), specs.mask(mask), specs.gates, (specs.sequence,) * len(before)),
            *(specs.sequence, states),
        ],
        out_specs=[specs.gates, states],
        out_shape=[
            jax.ShapeDtypeStruct(gates.shape, gates.dtype),
            tuple(jax.ShapeDtypeStruct(state.shape, state.dtype) for state in of_last),
        ],
        **_compiled(form),
    )(weights, mask, gates, before, of_outputs, of_last)


class _Specs:
    """Which part of an array a program sees: its rows, and its direction."""

    def __init__(self, steps: int, gates: int, units: int):
        self.gates = pl.BlockSpec((TILE, steps, None, gates, units), lambda way, tile: (tile, 0, way, 0, 0))
        self.sequence = pl.BlockSpec((TILE, steps, None, units), lambda way, tile: (tile, 0, way, 0))
        self.state = pl.BlockSpec((TILE, None, units), lambda way, tile: (tile, way, 0))
        self._mask = pl.BlockSpec((TILE, steps), lambda way, tile: (tile, 0))

    def weights(self, weights: Any) -> pl.BlockSpec:
        return pl.BlockSpec((None, *weights.shape[1:]), lambda way, tile: (way, 0, 0, 0, 0))

    def mask(self, mask: Any) -> pl.BlockSpec | None:
        return None if mask is None else self._mask


def _compiled(form: Form) -> dict[str, Any]:
    if form.interpret:
        return {"interpret": True}
    return {"compiler_params": triton.CompilerParams(num_warps=_WARPS, num_stages=1)}


def _steps_forward(
    form: Form, inputs: Any, weights: Any, initial: Any, mask: Any, outputs: Any, last: Any, gates: Any, before: Any
) -> None:
    cell, steps = form.cell, inputs.shape[1]
    kernel = _kernels(form, weights)
    time_of = _times(form, steps)

    def step(turn: Any, states: Any) -> Any:
        time = time_of(turn)
        received = [inputs[:, time, gate, :].astype(jnp.float32) for gate in range(cell.gates)]
        for number, gate in enumerate(cell.products):
            received[gate] += _product(states[0], kernel(number))
        after = _masked(mask, time, cell.step(received, states), states)
        if gates is not None:
            for gate, value in enumerate(received):
                gates[:, time, gate, :] = value.astype(gates.dtype)
            for kept, state in zip(before, states, strict=True):
                kept[:, time, :] = state.astype(kept.dtype)
        outputs[:, time, :] = after[0].astype(outputs.dtype)
        return after

    states = lax.fori_loop(0, steps, step, tuple(state[...].astype(jnp.float32) for state in initial))
    for reference, state in zip(last, states, strict=True):
        reference[...] = state.astype(reference.dtype)


def _steps_back(
    form: Form,
    weights: Any,
    mask: Any,
    gates: Any,
    before: Any,
    of_outputs: Any,
    of_last: Any,
    of_gates: Any,
    of_initial: Any,
) -> None:
    cell, steps = form.cell, gates.shape[1]
    kernel = _kernels(form, weights)
    time_of = _times(form, steps)

    def step(turn: Any, gradients: Any) -> Any:
        time = time_of(steps - 1 - turn)
        gradients = (gradients[0] + of_outputs[:, time, :].astype(jnp.float32), *gradients[1:])
        received = [gates[:, time, gate, :].astype(jnp.float32) for gate in range(cell.gates)]
        states = tuple(state[:, time, :].astype(jnp.float32) for state in before)
        nothing = tuple(map(jnp.zeros_like, gradients))
        _, pull = jax.vjp(cell.step, received, states)
        of_received, of_states = pull(_masked(mask, time, gradients, nothing))
        for gate, value in enumerate(of_received):
            of_gates[:, time, gate, :] = value.astype(of_gates.dtype)
        first, *others = of_states
        for number, gate in enumerate(cell.products):
            first += _product(of_received[gate], kernel(number))
        found = (first, *others)
        if mask is None:
            return found
        # A step that was left out hands on what it gets.
        passed = _masked(mask, time, nothing, gradients)
        return tuple(one + other for one, other in zip(found, passed, strict=True))

    gradients = lax.fori_loop(0, steps, step, tuple(state[...].astype(jnp.float32) for state in of_last))
    for reference, gradient in zip(of_initial, gradients, strict=True):
        reference[...] = gradient.astype(reference.dtype)


def _times(form: Form, steps: int) -> Callable[[Any], Any]:
    """Which time step this program takes as its first, second, ... one."""
    if len(set(form.backwards)) == 1:
        return lambda number: steps - 1 - number if form.backwards[0] else number
    # By arithmetic: a condition that is a scalar cannot be compiled here (jax 0.10.2, 0.11.2).
    is_backwards = pl.program_id(0)
    return lambda number: number + is_backwards * (steps - 1 - 2 * number)


def _masked(mask: Any, time: Any, taken: Any, left: Any) -> Any:
    """Values of rows that take a step, and of rows that leave it out."""
    if mask is None:
        return taken
    takes = mask[:, time][:, None] != 0
    return tuple(jnp.where(takes, one, other) for one, other in zip(taken, left, strict=True))


def _kernels(form: Form, weights: Any) -> Callable[[int], list[Any]]:
    """The parts of each recurrent kernel, of which a program has all from the beginning if they fit."""

    def loaded(number: int) -> list[Any]:
        return [weights[number, part] for part in range(weights.shape[1])]

    if form.reloads:
        return loaded
    return [loaded(number) for number in range(weights.shape[0])].__getitem__


def _parts(form: Form, weights: Any) -> Any:
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


def _product(states: Any, kernel: list[Any]) -> Any:
    """In float32, of a kernel in one or three parts."""
    if kernel[0].dtype == jnp.float32:
        return jnp.dot(states, kernel[0], precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    parts = _split(states, len(kernel))
    # Small ones first; what is left out is smaller than float32 can tell.
    pairs = [(one, order - one) for order in reversed(range(len(kernel))) for one in range(order + 1)]
    return sum(jnp.dot(parts[one], kernel[other], preferred_element_type=jnp.float32) for one, other in pairs)
