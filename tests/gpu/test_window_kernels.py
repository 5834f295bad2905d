"""Kernels of convolutions with few features on a GPU: as accurate as those of cuDNN, and a fit has them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout

pytestmark = pytest.mark.backend("jax")

if keras.config.backend() == "jax":
    import jax
    import jax.numpy as jnp
    from jax import lax

    from flatout.engines.jax import traced_step, triton_gpu
    from flatout.engines.jax.better_operations import BETTER
    from flatout.engines.jax.flat_step import flattened


@pytest.fixture(autouse=True)
def on_the_gpu_they_are_for() -> None:
    if triton_gpu.capability() != "9.0":
        pytest.skip("kernels are for GPUs of compute capability 9.0")


def convolved(x: Any, k: Any, strides: Any, padding: str, precision: Any = None) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=numbers, precision=precision)


def with_gradients(x: Any, k: Any, y: Any, **options: Any) -> Any:
    found, pull = jax.vjp(partial(convolved, **options), x, k)
    return found, *pull(y)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    "shape", [(1, 32, 3), (3, 16, 5), (16, 16, 3), (17, 31, 1), (32, 32, 3), (32, 64, 3), (64, 64, 3)]
)
def test_they_are_as_accurate_as_those_of_cudnn(shape: Any, padding: str, strides: Any) -> None:
    features, results, window = shape
    draw = np.random.default_rng(0)
    x = jnp.asarray(draw.normal(size=(37, 27, 25, features)), jnp.float32)
    k = jnp.asarray(draw.normal(size=(window, window, features, results)), jnp.float32)
    y = jnp.asarray(draw.normal(size=jax.eval_shape(partial(convolved, strides=strides, padding=padding), x, k).shape))
    given = x, k, y.astype(jnp.float32)
    function = partial(with_gradients, strides=strides, padding=padding)
    flat = flattened(jax.make_jaxpr(function)(*given))
    assert any(other.is_kernel for other in flat.replaced(BETTER))
    ours = jax.jit(lambda *values: flat.run(values, flat.numbers, BETTER))(*given)
    exact = jax.jit(partial(function, precision="highest"))(*given)
    for found, expected, of in zip(ours, exact, (features, results, features), strict=True):
        # Operands of tensor cores have 11 bits; with few features they are multiplied in two parts.
        tolerance = 1e-5 if of < 16 else 1e-3
        assert jnp.linalg.norm(found - expected) < tolerance * jnp.linalg.norm(expected)


def test_a_fit_comes_out_as_with_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_step, "_SAVED_BY_A_KERNEL", 1.0)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(700, 30, 30, 3)).astype("float32"), draw.integers(0, 10, 700)

    def trained(by: str) -> Any:
        keras.utils.set_random_seed(1)
        blocks = [
            *(layers.Conv2D(16, 3, padding="same", activation="tanh"), layers.BatchNormalization()),
            *(layers.Conv2D(32, 3, strides=2, padding="same", activation="tanh"), layers.AveragePooling2D(2)),
        ]
        model = keras.Sequential([keras.Input(x.shape[1:]), *blocks, layers.Flatten(), layers.Dense(10, "softmax")])
        model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
        with flatout.options(engine=by, force=True):
            flatout.fit(model, x, y, batch_size=64, epochs=2, verbose=0)
        return model

    taken: list[bool] = []
    kernels = BETTER["conv_general_dilated"]

    def noted(*operands: Any, **parameters: Any) -> Any:
        taken.append(True)
        return kernels.function(*operands, **parameters)

    monkeypatch.setitem(BETTER, "conv_general_dilated", replace(kernels, function=noted))
    ours = trained("jax")
    assert taken
    assert [why.code for why in flatout.explain()[-1].reasons] == []
    expected = trained("stock")
    np.testing.assert_allclose(ours.history.history["loss"], expected.history.history["loss"], rtol=2e-3)
    for one, other in zip(ours.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-3)
