"""What only the tensorflow engine does: XLA where Keras uses it, or where the user allows other rounding."""

from __future__ import annotations

import gc
import logging

import keras
import numpy as np
import pytest

import flatout
from flatout.engines.select import engine_for

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the tensorflow engine")


def _model(*, jit_compile: bool | str = "auto", convolution: bool = False) -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Conv2D(4, 3)] if convolution else []
    layers += [keras.layers.Flatten(), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6, 6, 1)), *layers])
    model.compile("adam", "mse", jit_compile=jit_compile)
    return model


def _data() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(100, 6, 6, 1)).astype("float32"), generator.normal(size=(100, 1)).astype("float32")


@pytest.mark.parametrize(
    ("arguments", "precision", "uses_xla"),
    [
        ({}, "exact", False),
        ({}, "fast", True),
        ({"jit_compile": True}, "exact", True),
        ({"convolution": True}, "fast", False),
    ],
)
def test_xla_is_used_where_keras_or_the_user_says_so(arguments: dict, precision: str, uses_xla: bool) -> None:
    model = _model(**arguments)
    engine = engine_for("tensorflow")
    with flatout.options(precision=precision):
        program = engine.prepare(model, "train", engine.place(_data()), 100, 32)
        program.begin_pass(None)
        program.run(0, 3, every_step=False)
    assert program._function("loop" if program._loops else "step", 32)._jit_compile == uses_xla


def test_fast_differs_from_stock_by_rounding_only() -> None:
    x, y = _data()
    histories = []
    for settings in ({"engine": "stock"}, {"precision": "fast"}):
        with flatout.options(force=True, **settings):
            histories.append(flatout.fit(_model(), x, y, epochs=3, verbose=0).history["loss"])
    assert flatout.explain()[-1].accelerated
    np.testing.assert_allclose(*histories, rtol=1e-5)


def test_many_models_are_no_retracing() -> None:
    import tensorflow as tf

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    x, y = _data()
    try:
        with flatout.options(force=True):
            for _ in range(6):
                flatout.fit(_model(), x, y, verbose=0)
    finally:
        tf.get_logger().removeHandler(handler)
    assert flatout.explain()[-1].accelerated
    assert [text for text in told if "retracing" in text] == []


def test_what_is_kept_does_not_keep_the_rows() -> None:
    import tensorflow as tf

    def tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, tf.Tensor) and thing.shape == (77, 6, 6, 1) for thing in gc.get_objects())

    model = _model()
    with flatout.options(force=True):
        flatout.fit(model, np.ones((77, 6, 6, 1), "float32"), np.ones((77, 1), "float32"), verbose=0)
    assert flatout.explain()[-1].accelerated
    assert tensors() == 0


def test_silu_is_rounded_as_in_stock_keras() -> None:
    """Outside of loops oneDNN has an operation of its own for it."""
    x, y = _data()
    weights = []
    for engine in ("stock", "tensorflow"):
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(48, "silu"), keras.layers.Dense(1)]
        )
        model.compile("adam", "mse")
        with flatout.options(force=True):
            flatout.fit(model, x, y, batch_size=20, epochs=20, verbose=0, engine=engine)
        weights.append(model.get_weights())
    for ours, expected in zip(*weights, strict=True):
        np.testing.assert_array_equal(ours, expected)
