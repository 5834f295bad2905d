"""A unit that has no weights stays at 0, so that units can be added to fill a block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.engines.jax.recurrent.cells import GRU, LSTM, SIMPLE, Cell

pytestmark = pytest.mark.backend("jax")


@pytest.mark.parametrize("cell", [LSTM, GRU, SIMPLE], ids=["lstm", "gru", "simple"])
def test_a_unit_without_weights_stays_at_zero(cell: Cell) -> None:
    nothing = jnp.zeros((2, 3))
    states = (nothing,) * cell.states
    after, pull = jax.vjp(cell.step, [nothing] * cell.gates, states)
    assert len(after) == cell.states
    assert max(cell.products) < cell.gates
    for state in after:
        np.testing.assert_array_equal(state, nothing)
    for gradient in jax.tree.leaves(pull(states)):
        np.testing.assert_array_equal(gradient, nothing)
