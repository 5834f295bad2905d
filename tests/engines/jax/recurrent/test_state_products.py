"""Products of parts are as good as products of float32 numbers, and products of few rows as those of many."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from flatout.engines.jax.recurrent.cells import LSTM, TILE, Form
from flatout.engines.jax.recurrent.state_products import _dot, _split, product

pytestmark = pytest.mark.backend("jax")


def test_products_of_parts_are_as_good_as_float32() -> None:
    random = np.random.default_rng(3)
    states = np.tanh(random.normal(size=(TILE, 128))).astype("float32")
    kernel = (random.normal(size=(128, 128)) / 12).astype("float32")
    exact = states.astype("float64") @ kernel.astype("float64")
    parts = _dot(jnp.asarray(states), _split(jnp.asarray(kernel), 3))
    np.testing.assert_allclose(sum(np.asarray(part, "float64") for part in _split(jnp.asarray(kernel), 3)), kernel)
    assert np.abs(parts - exact).max() <= 1.5 * np.abs(states @ kernel - exact).max()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_number_by_number_they_are_what_they_are_by_the_units_of_a_gpu(dtype: str) -> None:
    random = np.random.default_rng(4)
    pairs = [
        (jnp.asarray(random.normal(size=(TILE, 32)), "float32"), [jnp.asarray(random.normal(size=(32, 32)), dtype)])
        for _ in range(2)
    ]
    few, many = (product(Form(LSTM, (False,), rows), pairs) for rows in (4, TILE))
    np.testing.assert_allclose(few, many, rtol=1e-5, atol=1e-5)
