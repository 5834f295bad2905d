"""An interrupted `predict(out=...)` goes on only if the model still computes the same; else the file is another's."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import layers, ops

import flatout
from flatout.data.output import output_files
from flatout.training import computed_again
from flatout.training.computed_again import _are_close, _spans

ROWS, BATCH = 203, 16
X = np.random.default_rng(1).standard_normal((ROWS, 4)).astype("float32")
ANEW = "is started anew: the model does not give the outputs any more that it gave for the rows"
pytestmark = [pytest.mark.usefixtures("forced"), pytest.mark.turns]


class Interrupted(keras.callbacks.Callback):
    def __init__(self, at: int):
        super().__init__()
        self.at = at

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.at:
            raise KeyboardInterrupt


def predicted(model: keras.Model, out: Path, **arguments: Any) -> np.ndarray:
    return np.array(flatout.predict(model, X, out=out, batch_size=BATCH, verbose=0, **arguments))


def interrupted(model: keras.Model, out: Path, at: int = 7, **arguments: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        flatout.predict(model, X, out=out, batch_size=BATCH, verbose=0, callbacks=[Interrupted(at)], **arguments)


def stock(model: keras.Model) -> np.ndarray:
    return np.asarray(flatout.predict(model, X, engine="stock", batch_size=BATCH, verbose=0))


def dense(**arguments: Any) -> layers.Layer:
    return layers.Dense(2, kernel_initializer="ones", **arguments)


# What the models below read.
_GLOBAL: dict[str, Any] = {}


def fresh(make: Callable[[], keras.Model], **read: Any) -> keras.Model:
    """A model as a new process makes it, with the same names and weights."""
    _GLOBAL.update(read)
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    return make()


class Tempered(keras.Model):
    temperature = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.dense = dense()

    def build(self, shape: Any) -> None:
        self.dense.build(shape)
        self.built = True

    def call(self, x: Any) -> Any:
        return self.dense(x) / self.temperature


class Scale(layers.Layer):
    factor = 1.0
    table: ClassVar[dict[str, float]] = {}

    def call(self, x: Any) -> Any:
        return x * self.factor + self.table.get("offset", 0.0)


def model_attribute() -> keras.Model:
    model = Tempered()
    model.build((None, 4))
    model.temperature = _GLOBAL["value"]
    return model


def layer_attribute() -> keras.Model:
    layer = Scale()
    layer.factor = _GLOBAL["value"]
    return behind(layer)


def class_attribute() -> keras.Model:
    Scale.table["offset"] = _GLOBAL["value"]
    return behind(Scale())


def behind(layer: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,)), layer, dense()])


def scaled(x: Any) -> Any:
    return x * _GLOBAL["value"]


def lambda_reading_a_global() -> keras.Model:
    return behind(layers.Lambda(scaled))


def lambda_with_closure() -> keras.Model:
    value = _GLOBAL["value"]
    return behind(layers.Lambda(lambda x: x * value))


def activation() -> keras.Model:
    value = _GLOBAL["value"]
    return keras.Sequential([keras.Input((4,)), dense(activation=lambda x: x * value)])


def few_rows() -> keras.Model:
    """One row in fifty depends on it."""
    return behind(layers.Lambda(lambda x: ops.where(x[:, :1] > 2.0, x * _GLOBAL["value"], x)))


def hardly() -> keras.Model:
    return behind(layers.Lambda(lambda x: x * (1.0 + 1e-6 * _GLOBAL["value"])))


@pytest.fixture(autouse=True)
def as_it_was() -> Any:
    yield
    Scale.table.clear()


@pytest.mark.turns
@pytest.mark.parametrize("engine", ["auto", "stock"])
@pytest.mark.parametrize(
    "make",
    [
        model_attribute,
        layer_attribute,
        class_attribute,
        lambda_reading_a_global,
        lambda_with_closure,
        activation,
        few_rows,
        hardly,
    ],
)
def test_what_the_models_python_reads_has_changed(tmp_path: Path, make: Callable[[], keras.Model], engine: str) -> None:
    interrupted(fresh(make, value=1.0), tmp_path / "o.npy", engine=engine)
    model = fresh(make, value=5.0)
    with pytest.warns(UserWarning, match="is started anew: "):
        got = predicted(model, tmp_path / "o.npy", engine=engine)
    assert flatout.explain()[-1].steps == 13
    np.testing.assert_allclose(got, stock(model), rtol=1e-6, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["o.npy"]


@pytest.mark.turns
@pytest.mark.parametrize("engine", ["auto", "stock"])
@pytest.mark.parametrize("make", [model_attribute, lambda_reading_a_global])
def test_nothing_has_changed(tmp_path: Path, make: Callable[[], keras.Model], engine: str) -> None:
    expected = predicted(fresh(make, value=3.0), tmp_path / "whole.npy", engine=engine)
    interrupted(fresh(make, value=3.0), tmp_path / "o.npy", engine=engine)
    model = fresh(make, value=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        got = predicted(model, tmp_path / "o.npy", engine=engine)
    assert flatout.explain()[-1].steps == 6
    np.testing.assert_array_equal(got, expected)


def test_a_prediction_that_only_lacks_its_name_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(output_files.OutputFiles, "_finish", killed)
        patched.setattr(output_files, "SECONDS_BETWEEN_SYNCS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            predicted(fresh(lambda_reading_a_global, value=1.0), tmp_path / "o.npy")
    model = fresh(lambda_reading_a_global, value=5.0)
    with pytest.warns(UserWarning, match=ANEW):
        np.testing.assert_allclose(predicted(model, tmp_path / "o.npy"), stock(model), rtol=1e-6)


class Chosen(keras.Model):
    def call(self, x: Any) -> Any:
        return _GLOBAL["outputs"](x)


def chosen() -> keras.Model:
    model = Chosen()
    model(X[:1])
    return model


_OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "float32": lambda x: x,
    "float16": lambda x: ops.cast(x, "float16"),
    "int32": lambda x: ops.cast(x, "int32"),
    "one column": lambda x: x[:, :1],
    "no columns": lambda x: x[:, 0],
    "more columns": lambda x: ops.concatenate([x, x], 1),
}


@pytest.mark.parametrize(
    ("before", "after"), [*itertools.pairwise([*_OUTPUTS, "float32"]), ("int32", "float32"), ("float16", "int32")]
)
def test_outputs_of_another_dtype_or_shape(tmp_path: Path, before: str, after: str) -> None:
    interrupted(fresh(chosen, outputs=_OUTPUTS[before]), tmp_path / "o.npy")
    model = fresh(chosen, outputs=_OUTPUTS[after])
    with pytest.warns(UserWarning, match=ANEW):
        got = predicted(model, tmp_path / "o.npy")
    expected = stock(model)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.backend("tensorflow", "torch")
def test_seeds_that_are_no_variables_of_the_model(tmp_path: Path) -> None:
    """Where stock Keras begins, a prediction that is started anew begins: nothing was drawn for looking."""

    def make() -> keras.Model:
        return behind(layers.Lambda(lambda x: x + keras.random.normal(ops.shape(x))))

    expected = stock(fresh(make))
    interrupted(fresh(make), tmp_path / "o.npy")
    with pytest.warns(UserWarning, match="each step of this model changes its variables"):
        got = predicted(fresh(make), tmp_path / "o.npy")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


class Counting(keras.Model):
    """Its Python runs at every step of stock Keras on torch."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call(self, x: Any) -> Any:
        self.calls += 1
        return x + self.calls + np.random.rand() + random.random()


@pytest.mark.backend("torch")
def test_python_that_counts_and_draws_is_put_back(tmp_path: Path) -> None:
    def make() -> keras.Model:
        model = Counting()
        model(X[:1])
        keras.utils.set_random_seed(3)
        return model

    expected = stock(fresh(make))
    interrupted(fresh(make), tmp_path / "o.npy")
    with pytest.warns(UserWarning, match=ANEW):
        got = predicted(fresh(make), tmp_path / "o.npy")
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_several_outputs_and_groups_of_steps(tmp_path: Path) -> None:
    def make() -> keras.Model:
        inputs = keras.Input((4,))
        model = keras.Model(inputs, [dense()(inputs), layers.Lambda(scaled)(inputs)])
        model.compile(steps_per_execution=1 if keras.config.backend() == "torch" else 3)
        return model

    interrupted(fresh(make, value=1.0), tmp_path / "both", at=8)
    model = fresh(make, value=2.0)
    with pytest.warns(UserWarning, match=ANEW):
        flatout.predict(model, X, out=tmp_path / "both", batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(np.load(tmp_path / "both" / "1.npy"), X * 2)


def test_in_no_time_the_last_steps_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_again, "SECONDS", 0.0)
    interrupted(fresh(lambda_reading_a_global, value=1.0), tmp_path / "o.npy")
    model = fresh(lambda_reading_a_global, value=5.0)
    with pytest.warns(UserWarning, match=ANEW):
        predicted(model, tmp_path / "o.npy")


@settings(max_examples=200, deadline=None)
@given(steps=st.integers(1, 3000), group=st.integers(1, 9), anywhere=st.booleans())
def test_spans_are_whole_groups_and_end_with_all(steps: int, group: int, anywhere: bool) -> None:
    spans = list(_spans(steps, group, anywhere))
    assert spans[0][1] == steps
    assert spans[-1] == (0, steps)
    for first, stop in spans:
        assert 0 <= first < stop <= steps
        assert first % group == 0
        assert stop % group == 0 or stop == steps


def test_what_a_device_does_not_give_twice_may_be_as_far_off() -> None:
    one = np.linspace(1, 2, 100, dtype="float32")
    other = one + np.float32(1e-6)
    assert _are_close(one - np.float32(1e-6), one, other)
    assert not _are_close(one + np.float32(1e-4), one, other)
    # It gives the same twice, so it should have given it before.
    assert not _are_close(one + np.float32(1e-6), one, one)
    # Two runs of something random.
    assert not _are_close(one, one * 2, one * 3)
    assert not _are_close(np.arange(3), np.arange(3) + 1, np.arange(3) + 2)
    assert not _are_close(one, np.full(100, np.nan, "float32"), one + 1)
