"""A recurrence over all time steps as one Pallas kernel, and its gradient as another.

Every direction of a layer and every few rows of a batch are a program of their own, which keeps its states in registers
from the first step to the last, and loads what the next step takes while it computes one. The large products stay
outside: inputs are projected for all steps before the kernel, and the gradient of the recurrent kernels is one product
after it. Arrays are batch, time, direction, gate, unit.
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
from .state_products import kernels, parts, product

# With fewer, what the float32 form holds does not fit into registers, and it takes ten times as long (H200).
_WARPS = 8
# Of recurrent kernels that a program has in registers so many numbers go to a warp, by the rows of a program: more do
# not fit beside all else, and more warps wait longer for each other (H200).
_NUMBERS_OF_A_WARP = {1: 4096, 4: 2048}


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
    specs = _Specs(form, steps, gates, units)
    weights = parts(form, weights)
    sequence = jax.ShapeDtypeStruct((rows, steps, directions, units), inputs.dtype)
    shapes: Any = [sequence, tuple(jax.ShapeDtypeStruct(state.shape, state.dtype) for state in initial), None, None]
    out_specs: Any = [specs.sequence, (specs.state,) * len(initial), None, None]
    if keeps:
        shapes[2:] = [jax.ShapeDtypeStruct(inputs.shape, inputs.dtype), (sequence,) * len(initial)]
        out_specs[2:] = [specs.gates, (specs.sequence,) * len(initial)]
    return pl.pallas_call(
        functools.partial(_steps_forward, form),
        grid=(directions, rows // form.rows),
        in_specs=[specs.gates, specs.weights(weights), (specs.state,) * len(initial), specs.mask(mask)],
        out_specs=out_specs,
        out_shape=shapes,
        **_compiled(form, units),
    )(inputs, weights, initial, mask)


def _run_back(
    form: Form, weights: Any, mask: Any, gates: Any, before: Any, of_outputs: Any, of_last: tuple[Any, ...]
) -> Any:
    """The backward kernel: gradients of what the gates received, and of the first states."""
    rows, steps, directions, number, units = gates.shape
    specs = _Specs(form, steps, number, units)
    weights = parts(form, jnp.swapaxes(weights, 2, 3))
    states = (specs.state,) * len(before)
    return pl.pallas_call(
        functools.partial(_steps_back, form),
        grid=(directions, rows // form.rows),
        in_specs=[
            *(specs.weights(weights), specs.mask(mask), specs.gates, (specs.sequence,) * len(before)),
            *(specs.sequence, states),
        ],
        out_specs=[specs.gates, states],
        out_shape=[
            jax.ShapeDtypeStruct(gates.shape, gates.dtype),
            tuple(jax.ShapeDtypeStruct(state.shape, state.dtype) for state in of_last),
        ],
        **_compiled(form, units),
    )(weights, mask, gates, before, of_outputs, of_last)


class _Specs:
    """Which part of an array a program sees: its rows, and its direction."""

    def __init__(self, form: Form, steps: int, gates: int, units: int):
        self.gates = pl.BlockSpec((form.rows, steps, None, gates, units), lambda way, tile: (tile, 0, way, 0, 0))
        self.sequence = pl.BlockSpec((form.rows, steps, None, units), lambda way, tile: (tile, 0, way, 0))
        self.state = pl.BlockSpec((form.rows, None, units), lambda way, tile: (tile, way, 0))
        self._mask = pl.BlockSpec((form.rows, steps), lambda way, tile: (tile, 0))

    def weights(self, weights: Any) -> pl.BlockSpec:
        return pl.BlockSpec((None, *weights.shape[1:]), lambda way, tile: (way, 0, 0, 0, 0))

    def mask(self, mask: Any) -> pl.BlockSpec | None:
        return None if mask is None else self._mask


def _compiled(form: Form, units: int) -> dict[str, Any]:
    if form.interpret:
        return {"interpret": True}
    warps = _WARPS
    if form.rows < TILE:
        needed = -(-len(form.cell.products) * units**2 // _NUMBERS_OF_A_WARP[form.rows])
        warps = 1 << (needed - 1).bit_length()
    return {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=1)}


def _steps_forward(
    form: Form, inputs: Any, weights: Any, initial: Any, mask: Any, outputs: Any, last: Any, gates: Any, before: Any
) -> None:
    cell, steps = form.cell, inputs.shape[1]
    kernel = kernels(form, weights)
    time_of = _times(form, steps)

    def loaded(turn: Any) -> Any:
        time = time_of(turn)
        return _takes(mask, time), [inputs[:, time, gate, :].astype(jnp.float32) for gate in range(cell.gates)]

    def step(turn: Any, states: Any, takes: Any, received: list[Any]) -> Any:
        time = time_of(turn)
        for number, gate in enumerate(cell.products):
            received[gate] += product(form, [(states[0], kernel(number))])
        after = _masked(takes, cell.step(received, states), states)
        if gates is not None:
            for gate, value in enumerate(received):
                gates[:, time, gate, :] = value.astype(gates.dtype)
            for kept, state in zip(before, states, strict=True):
                kept[:, time, :] = state.astype(kept.dtype)
        outputs[:, time, :] = after[0].astype(outputs.dtype)
        return after

    states = _all_steps(form, steps, loaded, step, tuple(state[...].astype(jnp.float32) for state in initial))
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
    kernel = kernels(form, weights)
    time_of = _times(form, steps)

    def loaded(turn: Any) -> Any:
        time = time_of(steps - 1 - turn)
        received = [gates[:, time, gate, :].astype(jnp.float32) for gate in range(cell.gates)]
        states = tuple(state[:, time, :].astype(jnp.float32) for state in before)
        return _takes(mask, time), received, states, of_outputs[:, time, :].astype(jnp.float32)

    def step(turn: Any, gradients: Any, takes: Any, received: list[Any], states: Any, of_output: Any) -> Any:
        time = time_of(steps - 1 - turn)
        gradients = (gradients[0] + of_output, *gradients[1:])
        nothing = tuple(map(jnp.zeros_like, gradients))
        _, pull = jax.vjp(cell.step, received, states)
        of_received, of_states = pull(_masked(takes, gradients, nothing))
        for gate, value in enumerate(of_received):
            of_gates[:, time, gate, :] = value.astype(of_gates.dtype)
        first, *others = of_states
        # One after the other: kernels that are loaded anew need room of their own each.
        pairs = ((of_received[gate], kernel(number)) for number, gate in enumerate(cell.products))
        found = (first + product(form, pairs), *others)
        if takes is None:
            return found
        # A step that was left out hands on what it gets.
        passed = _masked(takes, nothing, gradients)
        return tuple(one + other for one, other in zip(found, passed, strict=True))

    gradients = _all_steps(form, steps, loaded, step, tuple(state[...].astype(jnp.float32) for state in of_last))
    for reference, gradient in zip(of_initial, gradients, strict=True):
        reference[...] = gradient.astype(reference.dtype)


def _all_steps(
    form: Form, steps: int, loaded: Callable[[Any], Any], step: Callable[..., Any], begin: tuple[Any, ...]
) -> Any:
    """Take steps on what is loaded for each: while the one before it is computed, if there is room for both."""
    if form.reloads:
        return lax.fori_loop(0, steps, lambda turn, carry: step(turn, carry, *loaded(turn)), begin)

    def one(turn: Any, both: Any) -> Any:
        carry, now = both
        following = loaded(jnp.minimum(turn + 1, steps - 1))
        return step(turn, carry, *now), following

    return lax.fori_loop(0, steps, one, (begin, loaded(0)))[0]


def _times(form: Form, steps: int) -> Callable[[Any], Any]:
    """Which time step this program takes as its first, second, ... one."""
    if len(set(form.backwards)) == 1:
        return lambda number: steps - 1 - number if form.backwards[0] else number
    # By arithmetic: a condition that is a scalar cannot be compiled here (jax 0.10.2, 0.11.2).
    is_backwards = pl.program_id(0)
    return lambda number: number + is_backwards * (steps - 1 - 2 * number)


def _takes(mask: Any, time: Any) -> Any:
    """Which rows take a step; None if all do."""
    return None if mask is None else mask[:, time][:, None]


def _masked(takes: Any, taken: Any, left: Any) -> Any:
    """Values of rows that take a step, and of rows that leave it out."""
    if takes is None:
        return taken
    takes = takes != 0
    return tuple(jnp.where(takes, one, other) for one, other in zip(taken, left, strict=True))
