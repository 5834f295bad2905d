"""The kernels compute what a plain loop computes, in value and gradient, and compile for a GPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.engines.jax.compiled_loop import cost_of
from flatout.engines.jax.flat_step import flattened, mapped
from flatout.engines.jax.recurrent.cells import GRU, LSTM, SIMPLE, TILE, Cell, Form
from flatout.engines.jax.recurrent.recurrence import recurrence

pytestmark = pytest.mark.backend("jax")

CELLS = {"lstm": LSTM, "gru": GRU, "simple": SIMPLE}


def arguments(cell: Cell, tiles: int, steps: int, directions: int, units: int, is_masked: bool, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return random.normal(0, 0.5, shape).astype("float32")

    rows = tiles * TILE
    mask = (random.random((rows, steps)) < 0.6).astype("int32") if is_masked else None
    states = tuple(numbers(rows, directions, units) for _ in range(cell.states))
    weights = numbers(directions, len(cell.products), units, units)
    return numbers(rows, steps, directions, cell.gates, units), weights, states, mask


def by_a_loop(form: Form, inputs: Any, weights: Any, initial: Any, mask: Any) -> Any:
    outputs, lasts = [], []
    for direction, is_backwards in enumerate(form.backwards):
        states = tuple(state[:, direction] for state in initial)
        found: dict[int, Any] = {}
        for time in sorted(range(inputs.shape[1]), reverse=is_backwards):
            received = [inputs[:, time, direction, gate] for gate in range(form.cell.gates)]
            for number, gate in enumerate(form.cell.products):
                received[gate] += jnp.dot(states[0], weights[direction, number], precision="highest")
            after = form.cell.step(received, states)
            if mask is not None:
                takes = mask[:, time, None] != 0
                after = tuple(jnp.where(takes, one, other) for one, other in zip(after, states, strict=True))
            found[time], states = after[0], after
        outputs.append(jnp.stack([found[time] for time in sorted(found)], axis=1))
        lasts.append(states)
    return jnp.stack(outputs, axis=2), tuple(jnp.stack(parts, axis=1) for parts in zip(*lasts, strict=True))


def gradients_of(function: Any, form: Form) -> Any:
    """Outputs, and gradients of a sum in which each has a weight of its own."""

    def total(inputs: Any, weights: Any, initial: Any, mask: Any) -> Any:
        results = function(form, inputs, weights, initial, mask)
        leaves = jax.tree.leaves(results)
        weighted = (leaf * jnp.cos(jnp.arange(leaf.size).reshape(leaf.shape)).astype(leaf.dtype) for leaf in leaves)
        return sum(part.astype(jnp.float32).sum() for part in weighted), results

    return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))


def assert_close(ours: Any, theirs: Any) -> None:
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(other).max())))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(CELLS)),
    tiles=st.integers(1, 2),
    steps=st.integers(1, 4),
    ways=st.sampled_from([(False,), (True,), (False, True)]),
    is_masked=st.booleans(),
    chosen=st.sampled_from([{}, {"rows": 1}, {"rows": 4}, {"is_split": True}, {"is_split": True, "reloads": True}]),
)
def test_kernels_equal_a_loop(name: str, tiles: int, steps: int, ways: Any, is_masked: bool, chosen: Any) -> None:
    form = Form(CELLS[name], ways, interpret=True, **chosen)
    given_ = arguments(form.cell, tiles, steps, len(ways), 16, is_masked)
    assert_close(gradients_of(recurrence, form)(*given_), gradients_of(by_a_loop, form)(*given_))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CELLS)
def test_kernels_compile_for_a_gpu(name: str, dtype: str) -> None:
    wide = {"is_split": dtype == "float32", "reloads": True}
    both = False, True
    for is_masked, ways, more in (
        (False, (True,), {}),
        (True, both, {}),
        (True, both, wide),
        (True, both, {"rows": 1}),
    ):
        form = Form(CELLS[name], ways, **more)
        given_ = jax.tree.map(
            lambda leaf: leaf.astype(dtype) if leaf.dtype == np.float32 else leaf,
            arguments(form.cell, 1, 5, len(ways), 64, is_masked),
        )
        for function in (jax.jit(lambda *all_, form=form: recurrence(form, *all_)), gradients_of(recurrence, form)):
            text = function.trace(*given_).lower(lowering_platforms=("cuda",)).as_text()
            assert "triton" in text


@pytest.mark.parametrize("rows", [1, TILE])
def test_models_with_them_can_be_mapped(rows: int) -> None:
    form = Form(LSTM, (False, True), rows)
    models = [arguments(LSTM, 1, 2, 2, 16, True, seed) for seed in range(2)]
    on_gpu = [flattened(gradients_of(recurrence, form).trace(*one).jaxpr) for one in models]
    assert on_gpu[0].digest == on_gpu[1].digest
    here = Form(LSTM, (False, True), rows, interpret=True)
    flat = flattened(gradients_of(recurrence, here).trace(*models[0]).jaxpr)
    stacked = [jnp.stack(leaves) for leaves in zip(*map(jax.tree.leaves, models), strict=True)]
    found = jax.jit(lambda leaves: mapped(flat, [])(leaves, [], []))(stacked)
    assert_close([leaf[1] for leaf in found], gradients_of(recurrence, here)(*models[1]))
    jax.jit(lambda leaves: mapped(on_gpu[0], [])(leaves, [], [])).trace(stacked).lower(lowering_platforms=("cuda",))


def test_a_step_with_them_counts_as_one_that_loops_itself() -> None:
    form = Form(SIMPLE, (False,))
    traced = gradients_of(recurrence, form).trace(*arguments(SIMPLE, 1, 3, 1, 16, False))
    assert cost_of(traced.jaxpr.jaxpr).has_loop


def test_half_precision_is_rounded_as_by_the_units_of_a_gpu() -> None:
    given_ = jax.tree.map(lambda leaf: jnp.asarray(leaf, "bfloat16"), arguments(LSTM, 1, 3, 2, 16, False))
    found = [gradients_of(recurrence, Form(LSTM, (False, True), rows, interpret=True))(*given_) for rows in (1, TILE)]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        one, other = np.asarray(one, "float32"), np.asarray(other, "float32")
        np.testing.assert_allclose(one, other, rtol=0.02, atol=0.02 * max(1.0, float(np.abs(other).max())))
