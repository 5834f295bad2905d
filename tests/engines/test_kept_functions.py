"""The model's Python is read again when stock Keras reads it again, and not at every call."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import keras
import numpy as np
import pytest

import flatout

X, Y = np.ones((64, 4), "float32"), np.ones((64, 1), "float32")


class Scaled(keras.Sequential):
    """Its step reads an attribute of Python's, and counts how often it is read."""

    scale, reads = 1.0, 0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        self.reads += 1
        return self.scale * super().compute_loss(*args, **kwargs)


def _scaled() -> Scaled:
    keras.utils.set_random_seed(0)
    model = Scaled([keras.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _losses_of_several_fits(engine: str) -> list[float]:
    """With an attribute that is changed before each, and a new `compile` before the last."""
    model = _scaled()
    losses = []
    for number, scale in enumerate((1.0, 2.0, 3.0)):
        model.scale = scale
        if number == 2:
            model.compile("sgd", "mse")
        losses += flatout.fit(model, X, Y, verbose=0, engine=engine).history["loss"]
        losses.append(flatout.evaluate(model, X, Y, verbose=0, engine=engine))
    return losses


def test_python_is_read_again_when_stock_keras_reads_it_again() -> None:
    with flatout.options(force=True):
        assert _losses_of_several_fits("auto") == _losses_of_several_fits("stock")


def test_what_stock_keras_has_read_is_what_an_engine_goes_on_with_and_the_other_way_round() -> None:
    """A short fit by stock Keras, then a long one: the engine read the Python of the model anew."""

    def losses(*engines: str) -> list[float]:
        model, found = _scaled(), []
        for scale, engine in zip((1.0, 2.0, 3.0), engines, strict=True):
            model.scale = scale
            found += flatout.fit(model, X, Y, verbose=0, engine=engine, validation_data=(X, Y)).history["loss"]
            found.append(flatout.evaluate(model, X, Y, verbose=0, engine=engine))
        return found

    with flatout.options(force=True):
        expected = losses("stock", "stock", "stock")
        assert losses("stock", "auto", "auto") == pytest.approx(expected, rel=1e-6)
        assert losses("stock", "auto", "stock") == pytest.approx(expected, rel=1e-6)
        assert losses("auto", "stock", "auto") == pytest.approx(expected, rel=1e-6)


@pytest.mark.backend("jax", "tensorflow")
@pytest.mark.parametrize("lengths", [(20, 16), (16, 20), (16, 24)])
def test_batches_of_another_length_are_traced_where_stock_keras_traces_them(lengths: tuple[int, int]) -> None:
    """TensorFlow takes what it has traced for batches of unknown length for those of a known one, too."""

    def losses(*engines: str) -> list[float]:
        model, found = _scaled(), []
        for length, engine in zip((*lengths, lengths[0]), engines, strict=True):
            words = {"batch_size": length, "verbose": 0, "engine": engine}
            found += flatout.fit(model, X[:48], Y[:48], **words).history["loss"]
            found.append(flatout.evaluate(model, X[:48], Y[:48], **words))
            model.scale += 1.0
        return found

    with flatout.options(force=True):
        expected = losses("stock", "stock", "stock")
        assert losses("auto", "auto", "auto") == pytest.approx(expected, rel=1e-6)
        assert losses("stock", "auto", "stock") == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_batch_begin", "on_test_begin", "on_test_batch_begin"])
@pytest.mark.parametrize("has_run", [False, True])
def test_what_a_callback_changes_before_the_first_step_is_seen(hook: str, has_run: bool) -> None:
    """Also where another length was traced before."""

    def losses(engine: str) -> list[float]:
        model = _scaled()
        if has_run:
            flatout.fit(model, X[:30], Y[:30], batch_size=15, verbose=0, engine="stock", validation_data=(X, Y))
        callback = keras.callbacks.Callback()
        setattr(callback, hook, lambda *_, **__: setattr(model, "scale", 2.0))
        words = {"callbacks": [callback], "verbose": 0, "engine": engine, "batch_size": 32}
        history = flatout.fit(model, X, Y, validation_data=(X[:32], Y[:32]), epochs=2, **words).history
        return [*history["loss"], *history["val_loss"]]

    with flatout.options(force=True):
        assert losses("auto") == pytest.approx(losses("stock"), rel=1e-6)


@pytest.mark.backend("jax", "tensorflow")
def test_a_second_call_traces_nothing() -> None:
    model = _scaled()
    with flatout.options(force=True):
        for number in range(3):
            flatout.fit(model, X + number, Y, verbose=0, validation_data=(X, Y))
            model.reads = 0 if number == 0 else model.reads
    assert model.reads == 0


# On jax stock Keras raises an error if the trainable variables change without a new `compile`.
_ELSEWHERE = pytest.mark.backend("tensorflow", "torch")


@pytest.mark.parametrize("change", [pytest.param("trainable", marks=_ELSEWHERE), "learning rate", "rows"])
def test_what_stock_keras_sees_without_tracing_is_seen(change: str) -> None:
    def losses(engine: str) -> list[float]:
        model, x, y = _scaled(), X, Y
        found = flatout.fit(model, x, y, verbose=0, engine=engine, batch_size=16).history["loss"]
        model.scale = 2.0
        if change == "trainable":
            model.layers[0].trainable = False
        elif change == "learning rate":
            model.optimizer.learning_rate = 0.001
        else:
            x, y = np.concatenate([x, x]), np.concatenate([y, y])
        found += flatout.fit(model, x, y, verbose=0, engine=engine, batch_size=16, epochs=2).history["loss"]
        return [*found, *(float(np.sum(weight)) for weight in model.get_weights())]

    with flatout.options(force=True):
        assert losses("auto") == pytest.approx(losses("stock"), rel=1e-6)


@pytest.mark.backend("jax")
def test_what_is_kept_does_not_keep_the_rows() -> None:
    import jax

    model = _scaled()
    with flatout.options(force=True):
        flatout.fit(model, np.ones((77, 4), "float32"), np.ones((77, 1), "float32"), verbose=0)
    assert flatout.explain()[-1].accelerated
    gc.collect()
    assert not [array.shape for array in jax.live_arrays() if array.shape[:1] == (77,)]


@pytest.mark.backend("jax")
def test_programs_for_any_number_of_rows_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.engines.kept_functions._MOST", 4)
    model = _scaled()
    with flatout.options(force=True):
        for rows in (32, 64, 96, 128):
            flatout.fit(model, np.ones((rows, 4), "float32"), np.ones((rows, 1), "float32"), verbose=0)
            model.reads = 0 if rows == 32 else model.reads
    assert model.reads == 0
    assert len(model.train_function._flatout_functions) <= 4


def test_a_model_that_was_fitted_is_let_go() -> None:
    model = _scaled()
    with flatout.options(force=True):
        flatout.fit(model, X, Y, verbose=0)
    assert flatout.explain()[-1].accelerated
    known = weakref.ref(model)
    del model
    keras.utils.clear_session()
    gc.collect()
    assert known() is None
