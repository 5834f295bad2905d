"""The gradient of max pooling by a mask is that by a scatter, to the last bit: ties, NaN and rows left over too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from flatout.engines.jax.better_operations import BETTER_WITHOUT_KERNELS
from flatout.engines.jax.flat_step import flattened

pytestmark = pytest.mark.backend("jax")


def by_both(window: Any, strides: Any, padding: str, x: Any, y: Any) -> tuple[Any, Any]:
    def gradient(x: Any) -> Any:
        def loss(x: Any) -> Any:
            pooled = lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)
            return (pooled * y[tuple(map(slice, pooled.shape))]).sum()

        return jax.grad(loss)(x)

    flat = flattened(jax.make_jaxpr(gradient)(x))
    (ours,) = flat.run([x], flat.numbers, BETTER_WITHOUT_KERNELS)
    return ours, gradient(x)


@settings(max_examples=20, deadline=None)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
    st.sampled_from(["VALID", "SAME"]),
    st.integers(0, 2**31),
)
def test_it_is_the_same_gradient(window: Any, overlaps: bool, padding: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    # Few values, so that many are the largest of their window.
    x = jnp.asarray(draw.integers(-2, 3, (2, 7, 6, 3)), jnp.float32)
    y = jnp.asarray(draw.normal(size=x.shape), jnp.float32)
    strides = (1, 1) if overlaps else window
    ours, expected = by_both((1, *window, 1), (1, *strides, 1), padding, x, y)
    np.testing.assert_array_equal(ours, expected)


def test_values_that_are_no_numbers_are_compared_alike() -> None:
    x = np.ones((1, 4, 4, 1), np.float32)
    x[0, 0, 1, 0] = x[0, 2, 2, 0] = np.nan
    ours, expected = by_both((1, 2, 2, 1), (1, 2, 2, 1), "VALID", jnp.asarray(x), jnp.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(ours, expected)
