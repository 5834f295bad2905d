"""A convolution as a product is the same convolution, whatever its strides, padding and dilation, and its gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from flatout.engines.jax.better_operations import Instead
from flatout.engines.jax.convolutions.convolution_products import convolution
from flatout.engines.jax.flat_step import flattened

pytestmark = pytest.mark.backend("jax")

NUMBERS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NCHW")]


def parameters_of(function: Any, *arguments: Any) -> list[dict[str, Any]]:
    jaxpr = jax.make_jaxpr(function)(*arguments)
    return [equation.params for equation in jaxpr.eqns if equation.primitive is lax.conv_general_dilated_p]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(NUMBERS),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from(["SAME", "VALID", ((2, 0), (0, 1))]),
)
def test_it_is_the_same_convolution(numbers: Any, window: Any, strides: Any, spacing: Any, padding: Any) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 9, 8, 3)), jnp.float32)
    k = jnp.asarray(np.random.default_rng(2).normal(size=(*window, 3, 4)), jnp.float32)
    x = x if numbers[0] == "NHWC" else x.transpose(0, 3, 1, 2)
    k = k if numbers[1] == "HWIO" else k.transpose(3, 2, 0, 1)

    def reference(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, strides, padding, rhs_dilation=spacing, dimension_numbers=numbers)

    def ours(x: Any, k: Any) -> Any:
        return convolution(x, k, **parameters_of(reference, x, k)[0])

    np.testing.assert_allclose(ours(x, k), reference(x, k), rtol=1e-4, atol=1e-5)


def test_half_precision_is_rounded_once() -> None:
    """Sixteen features of the operand's to two of the result's: multiplied first, and then added up."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 9, 8, 16)), jnp.bfloat16)
    k = jnp.asarray(np.random.default_rng(2).normal(size=(3, 3, 16, 2)), jnp.bfloat16)

    def reference(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NUMBERS[0])

    ours = convolution(x, k, **parameters_of(reference, x, k)[0])
    exact = reference(x.astype(jnp.float32), k.astype(jnp.float32))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(jnp.float32), exact, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_gradients_are_convolutions_too(strides: Any) -> None:
    """With operands whose batch is summed over, spread by zeros, or cut by negative padding."""
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 13, 12, 3)), jnp.float32)
    k = jnp.asarray(np.random.default_rng(2).normal(size=(3, 3, 3, 4)), jnp.float32)

    def gradients(x: Any, k: Any) -> Any:
        def loss(x: Any, k: Any) -> Any:
            return (lax.conv_general_dilated(x, k, strides, "SAME", dimension_numbers=NUMBERS[0]) ** 2).sum()

        return jax.grad(loss, (0, 1))(x, k)

    flat = flattened(jax.make_jaxpr(gradients)(x, k))
    replaced = flat.run([x, k], flat.numbers, {"conv_general_dilated": Instead(convolution)})
    for got, expected in zip(replaced, gradients(x, k), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


def test_what_has_groups_or_a_large_window_stays_a_convolution() -> None:
    x, k = jnp.ones((1, 40, 40, 4)), jnp.ones((12, 12, 4, 4))

    def large(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=NUMBERS[0])

    def grouped(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x, k[:3, :3, :1], (1, 1), "SAME", dimension_numbers=NUMBERS[0], feature_group_count=4
        )

    for function in (large, grouped):
        used = k if function is large else k[:3, :3, :1]
        (found,) = parameters_of(function, x, k)
        np.testing.assert_allclose(convolution(x, used, **found), function(x, k), rtol=1e-5)
