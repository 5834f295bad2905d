"""On a GPU: each of many models that train at once comes out as it does alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.bench import fashion_mnist
from flatout.many.splits import KFold
from flatout.many.waves import run_candidates as waves

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]

BACKEND = keras.config.backend()
ROWS, BATCH, EPOCHS = 1280, 32, 5
WAYS = {"native": waves.INTERLEAVED, "jax": waves.MAPPED, "torch": waves.INTERLEAVED}


def rows() -> tuple[np.ndarray, np.ndarray]:
    images = fashion_mnist.load()
    return images.x_train[:ROWS], images.y_train[:ROWS]


def dense(learning_rate: float = 1e-3) -> Any:
    model = keras.Sequential(
        [keras.Input((28, 28)), layers.Flatten(), layers.Dense(128, "relu"), layers.Dense(10, "softmax")]
    )
    model.compile(keras.optimizers.Adam(learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def convnet(learning_rate: float = 1e-3, dropout: float = 0.0) -> Any:
    """Smooth: a maximum or a ReLU near its kink makes a jump of a difference in rounding."""
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(8, 3, activation="tanh"),
            layers.AveragePooling2D(2),
            layers.Conv2D(16, 3, padding="same", activation="tanh"),
            layers.BatchNormalization(),
            layers.Flatten(),
            *([layers.Dropout(dropout)] if dropout else []),
            layers.Dense(10, "softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(10 * learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def stopping(**_: Any) -> list[Any]:
    return [keras.callbacks.EarlyStopping("val_loss", min_delta=0.12, patience=1, restore_best_weights=True)]


def alone(
    make: Any,
    point: dict[str, Any],
    engine: str,
    train: Any,
    held_out: Any,
    callbacks: list[Any],
    epochs: int = EPOCHS,
) -> Any:
    x, y = rows()
    keras.utils.set_random_seed(point["seed"])
    model = make(learning_rate=point["learning_rate"])
    arguments = {"epochs": epochs, "batch_size": BATCH, "callbacks": callbacks, "verbose": 0, "engine": engine}
    with flatout.options(force=True):
        flatout.fit(model, x[train], y[train], validation_data=(x[held_out], y[held_out]), **arguments)
    return model


def assert_same(many: flatout.Many, number: int, model: Any, tolerance: float) -> None:
    history = model.history.history
    assert len(many.histories[number]["loss"]) == len(history["loss"])
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(many.histories[number][name], history[name], rtol=0, atol=tolerance)
    for ours, expected in zip(many.models[number].get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("engine", ["native", "jax"] if BACKEND == "jax" else ["native", "torch"])
def test_sixteen_dense_models_of_seeds_rates_and_folds(engine: str, launcher: Any) -> None:
    x, y = rows()
    points = flatout.grid(seed=range(4), learning_rate=[1e-3, 3e-4])
    arguments = {"epochs": EPOCHS, "batch_size": BATCH, "callbacks": stopping, "verbose": 0}
    many = flatout.fit_many(dense, points, x, y, folds=2, engine=engine, **arguments)
    assert many.ways == {WAYS[engine]: 16}
    splits = [*KFold(2).split(x)]
    lengths = set()
    for number, point in enumerate(many.points):
        model = alone(dense, point, engine, *splits[point["fold"]], stopping())
        assert_same(many, number, model, 1e-5)
        lengths.add(len(model.history.history["loss"]))
    # Some of them were stopped early.
    assert min(lengths) < EPOCHS


def test_more_models_than_have_a_place_at_once(launcher: Any) -> None:
    x, y = rows()
    points = flatout.grid(seed=range(40), learning_rate=[1e-3])
    many = flatout.fit_many(dense, points, x, y, epochs=2, batch_size=BATCH, verbose=0, engine="native")
    assert many.ways == {waves.INTERLEAVED: 40}
    for number in (0, 39):
        keras.utils.set_random_seed(number)
        model = dense()
        with flatout.options(force=True):
            flatout.fit(model, x, y, epochs=2, batch_size=BATCH, verbose=0, engine="native")
        np.testing.assert_allclose(many.histories[number]["loss"], model.history.history["loss"], rtol=1e-5)


@pytest.mark.backend("jax", "torch")
def test_convnets_come_out_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Gradients of cuDNN differ from run to run, and a convnet makes much of it after some epochs. torch can do without.
    epochs, tolerance = 1, 1e-5
    if BACKEND == "torch":
        import torch

        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
        epochs, tolerance = EPOCHS, 0.0
    x, y = rows()
    points = flatout.grid(seed=range(3), learning_rate=[1e-3, 3e-4])
    arguments = {"epochs": epochs, "batch_size": BATCH, "verbose": 0}
    many = flatout.fit_many(convnet, points, x[:640], y[:640], validation_data=(x[640:], y[640:]), **arguments)
    assert many.ways == {WAYS[BACKEND]: 6}
    for number, point in enumerate(points):
        model = alone(convnet, point, BACKEND, slice(640), slice(640, None), [], epochs)
        assert_same(many, number, model, tolerance)


@pytest.mark.backend("jax")
def test_the_gradient_of_a_maximum_is_mapped() -> None:
    """For a few steps: a maximum that rounding decides makes a difference that grows."""

    def pooled(learning_rate: float = 1e-3) -> Any:
        parts = [layers.Reshape((28, 28, 1)), layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D()]
        model = keras.Sequential([keras.Input((28, 28)), *parts, layers.Flatten(), layers.Dense(10, "softmax")])
        model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy")
        return model

    x, y = rows()
    points = flatout.grid(seed=range(2), learning_rate=[1e-2, 1e-3])
    held_out = slice(640, None)
    arguments = {"epochs": 1, "batch_size": BATCH, "verbose": 0, "validation_data": (x[held_out], y[held_out])}
    many = flatout.fit_many(pooled, points, x[: 3 * BATCH], y[: 3 * BATCH], **arguments)
    assert many.ways == {WAYS["jax"]: 4}
    for number, point in enumerate(points):
        assert_same(many, number, alone(pooled, point, "jax", slice(3 * BATCH), held_out, [], 1), 1e-4)


@pytest.mark.backend("torch")
def test_models_that_draw_on_the_device_take_their_turns() -> None:
    x, y = rows()

    def make(learning_rate: float) -> Any:
        return convnet(learning_rate, dropout=0.5)

    points = [{"seed": number, "learning_rate": 1e-3} for number in range(2)]
    many = flatout.fit_many(make, points, x, y, epochs=2, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.IN_TURNS: 2}
