"""Kernels of convolutions with few features: the same results and gradients of any shape, and only where chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from keras import layers

import flatout
from flatout.engines.jax import better_operations, engine, joined_step, traced_step, triton_gpu
from flatout.engines.jax.better_operations import BETTER, Instead
from flatout.engines.jax.convolutions.few_features import by_kernel, has_kernel
from flatout.engines.jax.flat_step import FlatStep, flattened

pytestmark = pytest.mark.backend("jax")

HERE = {"conv_general_dilated": Instead(partial(by_kernel, interpret=True), has_kernel)}
NUMBERS = ("NHWC", "HWIO", "NHWC")


@pytest.fixture(autouse=True)
def on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_gpu, "capability", lambda: "9.0")
    monkeypatch.setattr(triton_gpu, "cores", lambda: 2)


def convolved(x: Any, k: Any, numbers: Any = NUMBERS, **options: Any) -> Any:
    options = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, k, dimension_numbers=numbers, **options)


def with_gradients(x: Any, k: Any, y: Any, **options: Any) -> Any:
    """A convolution, and both its gradients where `y` is that of the result."""
    found, pull = jax.vjp(partial(convolved, **options), x, k)
    return found, *pull(y)


def step_of(x: Any, k: Any, **options: Any) -> tuple[FlatStep, list[Any]]:
    shape = jax.eval_shape(partial(convolved, **options), x, k).shape
    y = jnp.asarray(np.random.default_rng(3).normal(size=shape), x.dtype)
    return flattened(jax.make_jaxpr(partial(with_gradients, **options))(x, k, y)), [x, k, y]


def operands(features: int, results: int, window: Any, lengths: Any = (46, 45), images: int = 10) -> Any:
    draw = np.random.default_rng(1)
    shapes = (images, *lengths, features), (*window, features, results)
    return tuple(jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes)


def count(step: FlatStep) -> int:
    return len(step.replaced({"conv_general_dilated": BETTER["conv_general_dilated"]}))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([(1, 9), (3, 16), (17, 5), (16, 32), (32, 32)]),
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.sampled_from([((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 1)), ((2, 2), (1, 1))]),
    # No zeros beyond the window: of their gradients XLA on a CPU reads memory that is not theirs (jaxlib 0.10.2).
    st.sampled_from(["SAME", "VALID"]),
)
def test_it_is_the_same_convolution_with_the_same_gradients(
    channels: Any, window: Any, steps: Any, padding: Any
) -> None:
    strides, spacing = steps
    x, k = operands(*channels, window)
    flat, given_ = step_of(x, k, window_strides=strides, rhs_dilation=spacing, padding=padding)
    assert count(flat) == 3
    for ours, expected in zip(flat.run(given_, flat.numbers, HERE), flat.run(given_, flat.numbers), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-3)


def test_signals_and_volumes_have_kernels_too() -> None:
    for numbers, lengths in ((("NWC", "WIO", "NWC"), (900,)), (("NDHWC", "DHWIO", "NDHWC"), (9, 8, 10))):
        x, k = operands(4, 16, (3,) * len(lengths), lengths)
        ones = (1,) * len(lengths)
        flat, given_ = step_of(x, k, numbers=numbers, window_strides=ones)
        assert count(flat) == 3
        for ours, expected in zip(flat.run(given_, flat.numbers, HERE), flat.run(given_, flat.numbers), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-3)


def test_what_is_spread_by_zeros_is_convolved_and_its_gradient_left() -> None:
    """As layers that transpose a convolution do."""
    x, k = operands(5, 16, (3, 3), (23, 23))
    flat, given_ = step_of(x, k, lhs_dilation=(2, 2), padding=((1, 2), (2, 1)))
    assert count(flat) == 2
    for ours, expected in zip(flat.run(given_, flat.numbers, HERE), flat.run(given_, flat.numbers), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("features", [3, 16])
def test_infinities_stay_what_they_are(features: int) -> None:
    x, k = operands(features, 16, (3, 3))
    x = jnp.abs(x).at[0, 7, 7, 0].set(jnp.inf)
    parameters = jax.make_jaxpr(convolved)(x, jnp.abs(k)).eqns[0].params
    found = by_kernel(x, jnp.abs(k), interpret=True, **parameters)
    np.testing.assert_array_equal(jnp.isinf(found), jnp.isinf(convolved(x, jnp.abs(k))))
    assert not jnp.isnan(found).any()


def test_numbers_of_64_bits_beside_it_change_nothing() -> None:
    with jax.enable_x64(True):
        x, k = operands(16, 16, (3, 3))
        flat, given_ = step_of(x, k)
        assert count(flat) == 3
        for ours, expected in zip(flat.run(given_, flat.numbers, HERE), flat.run(given_, flat.numbers), strict=True):
            assert ours.dtype == jnp.float32
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-3)


# What is the same for a gradient is lowered once.
@pytest.mark.parametrize(("channels", "kernels"), [((1, 32), 3), ((16, 16), 2), ((32, 64), 1), ((64, 64), 1)])
def test_kernels_are_lowered_for_a_gpu(channels: Any, kernels: int) -> None:
    flat, given_ = step_of(*operands(*channels, (3, 3)))
    function = jax.jit(lambda *values: flat.run(values, flat.numbers, BETTER))
    text = function.trace(*given_).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("triton") == kernels


def test_what_has_no_kernel_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    x, k = operands(16, 16, (3, 3))
    assert count(step_of(x, k)[0]) == 3
    assert count(step_of(*operands(64, 64, (3, 3)))[0]) == 1
    assert count(step_of(*operands(65, 16, (3, 3)))[0]) == 0
    assert count(step_of(*operands(16, 16, (3, 3), images=1))[0]) == 0
    assert count(step_of(*operands(0, 16, (3, 3)))[0]) == 0
    assert count(step_of(*operands(16, 16, (8, 8)))[0]) == 0
    assert count(step_of(x, k[:, :, :4], feature_group_count=4)[0]) == 0
    assert count(step_of(x.astype(jnp.bfloat16), k.astype(jnp.bfloat16))[0]) == 0
    for precision in ("highest", "high", lax.DotAlgorithmPreset.F32_F32_F32, lax.DotAlgorithmPreset.BF16_BF16_F32):
        assert count(step_of(x, k, precision=precision)[0]) == 0
    with jax.default_matmul_precision("float32"):
        assert count(step_of(x, k)[0]) == 0
    first = {"numbers": ("NCHW", "HWIO", "NCHW")}
    assert count(step_of(x.transpose(0, 3, 1, 2), k, **first)[0]) == 0
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert count(step_of(x, k)[0]) == 0
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    monkeypatch.setattr(triton_gpu, "capability", lambda: "8.0")
    assert count(step_of(x, k)[0]) == 0


def fit(model: keras.Model, by: str, rows: int = 140) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(rows, 18, 18, 1)).astype("float32"), draw.normal(size=(rows, 1)).astype("float32")
    flatout.fit(model, x, y, engine=by, batch_size=32, epochs=2, verbose=0)


def trained(by: str) -> keras.Model:
    keras.utils.set_random_seed(1)
    parts = [layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(1)]
    model = keras.Sequential([keras.Input((18, 18, 1)), *parts])
    model.compile("sgd", "mse")
    fit(model, by)
    return model


@pytest.fixture
def kernels_taken(forced: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[bool]]:
    """Has fits take kernels as on a GPU, interpreted or for a GPU that is none; returns whenever one is traced."""

    def take(fails: bool) -> list[bool]:
        used: list[bool] = []

        def kernel(*operands: Any, **parameters: Any) -> Any:
            used.append(True)
            return by_kernel(*operands, interpret=not fails, **parameters)

        monkeypatch.setattr(joined_step, "spares_launches", lambda: True)
        monkeypatch.setattr(engine, "loop_pays_on_cpu", lambda cost: True)
        instead = Instead(kernel, has_kernel, is_kernel=True)
        monkeypatch.setitem(better_operations.BETTER, "conv_general_dilated", instead)
        return used

    return take


@pytest.mark.parametrize("fails", [False, True])
def test_a_long_fit_has_them_where_they_can_be_compiled(
    fails: bool, kernels_taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained("stock")
    used = kernels_taken(fails)
    monkeypatch.setattr(traced_step, "_SAVED_BY_A_KERNEL", 1.0)
    model = trained("jax")
    assert used
    codes = [why.code for why in flatout.explain()[-1].reasons]
    assert codes == (["kernels_left"] if fails else [])
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_short_fit_does_not_compile_them_and_has_those_that_are_there(
    kernels_taken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = kernels_taken(False)
    model = trained("jax")
    assert not used
    monkeypatch.setattr(traced_step, "_SAVED_BY_A_KERNEL", 1.0)
    fit(model, "jax")
    count = len(used)
    assert count
    monkeypatch.setattr(traced_step, "_SAVED_BY_A_KERNEL", 0.0)
    fit(model, "jax")
    fit(model, "jax", 180)
    assert len(used) == count
