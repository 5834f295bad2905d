"""Keras' random layers run inside the step, on the device, with the results of stock Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(4)
# Of batches of one size: jax compiles each of these layers for seconds. A last batch that is smaller, with random
# numbers in it, is one of test_parity's combinations.
ROWS, BATCH = 32, 16
X = RANDOM.integers(0, 256, (ROWS, 12, 12, 3), np.uint8)
Y = RANDOM.integers(0, 3, ROWS)


def train(augmentation: list[Any], **options: Any) -> list[np.ndarray]:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            *[layer.__class__.from_config(layer.get_config()) for layer in augmentation],
            layers.Rescaling(1 / 255),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    with flatout.options(force=True, **options):
        flatout.fit(model, X, Y, batch_size=BATCH, epochs=2, verbose=0)
    return model.get_weights()


def largest_difference(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def test_random_layers_run_inside_the_step() -> None:
    augmentation = [layers.RandomFlip(seed=1), layers.RandomContrast(0.3, seed=2), layers.RandomErasing(seed=3)]
    expected = train(augmentation, engine="stock")
    assert largest_difference(train(augmentation), expected) <= (1e-6 if keras.config.backend() == "torch" else 0)
    assert flatout.explain()[-1].accelerated
    assert largest_difference(train([]), expected) > 1e-4


def test_layers_that_keras_does_not_compile_on_jax_run_inside_the_step_where_rounding_is_allowed() -> None:
    augmentation = [layers.RandomTranslation(0.3, 0.3, seed=1)]
    expected = train(augmentation, engine="stock")
    exact = train(augmentation)
    report = flatout.explain()[-1]
    assert report.accelerated == (keras.config.backend() != "jax")
    assert report.accelerated or [why.code for why in report.reasons] == ["jit_compile_off"]
    assert largest_difference(exact, expected) <= (1e-6 if keras.config.backend() == "torch" else 0)
    fast = train(augmentation, precision="fast")
    assert flatout.explain()[-1].accelerated
    assert largest_difference(fast, expected) <= 1e-5
