"""Models that come back from another process are those that went: what was built and learned there is theirs."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from flatout.seam.processes.sent_objects import Received, Sent

pytestmark = pytest.mark.turns

X = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")


class Nested(keras.Model):
    """Unbuilt, with layers in containers, and without a configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = [layers.Dense(3), {"last": layers.Dense(1)}]
        self.calls = 0

    def call(self, inputs: Any) -> Any:
        return self.parts[1]["last"](self.parts[0](inputs))


def sequential() -> Any:
    scale = layers.Lambda(lambda inputs: inputs * 2.0)
    return keras.Sequential([layers.Input((4,)), layers.Dense(4), layers.BatchNormalization(), scale, layers.Dense(1)])


def functional() -> Any:
    shared, inputs = layers.Dense(4, activation="relu"), layers.Input((4,))
    return keras.Model(inputs, layers.Dense(1)(shared(shared(inputs)) + inputs))


def by_way(model: Any, *more: Any) -> tuple[Sent, Received]:
    """There in this process, as the bytes are all that goes."""
    sent = Sent((model, *more), lambda array: None)
    return sent, Received(sent.data, lambda key: np.empty(0))


@pytest.mark.parametrize("build", [sequential, functional, Nested])
@pytest.mark.parametrize("is_trained", [False, True])
def test_a_model_that_was_trained_elsewhere_goes_on_here(build: Any, is_trained: bool) -> None:
    model, callback = build(), keras.callbacks.EarlyStopping(monitor="loss")
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    callback.set_model(model)
    if is_trained:
        model.fit(X, X[:, :1], verbose=0)
    sent, received = by_way(model, callback)
    there, callback_there = received.things
    assert there is not model
    assert callback_there.model is there
    history = there.fit(X, X[:, :1], epochs=2, verbose=0, callbacks=[callback_there])
    there.noted = [1, 2]
    expected, state = there.get_weights(), [keras.ops.convert_to_numpy(v.value) for v in there.optimizer.variables]
    (came_back,) = sent.take_back(received.answer((history,)))
    assert came_back.model is model
    assert came_back.history == history.history
    assert callback.model is model
    assert callback.best == callback_there.best
    assert model.noted == [1, 2]
    for ours, theirs in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for variable, theirs in zip(model.optimizer.variables, state, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable.value), theirs)
    seeds = np.random.get_state()
    for one in (model, there):  # And both go on alike.
        np.random.set_state(seeds)
        one.fit(X, X[:, :1], verbose=0, shuffle=False)
    for ours, theirs in zip(model.get_weights(), there.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    if build is not Nested:
        assert model.get_config()["name"] == there.get_config()["name"]
        assert len(model.get_config()["layers"]) == len(there.get_config()["layers"])


def test_a_model_may_be_deep() -> None:
    inputs = outputs = layers.Input((4,))
    for _ in range(150):
        outputs = layers.Dense(4)(outputs)
    model = keras.Model(inputs, outputs)
    _, received = by_way(model)
    for ours, theirs in zip(model.get_weights(), received.things[0].get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(received.things[0].get_config()["layers"]) == 151


def test_what_cannot_come_back_leaves_the_rest(tmp_path: Any) -> None:
    model = sequential()
    model.compile("sgd", "mse")
    callback = keras.callbacks.Callback()
    sent, received = by_way(model, callback)
    there, callback_there = received.things
    callback_there.file, callback_there.count = (tmp_path / "open").open("w"), 3
    there.layers[0].kernel.assign(np.ones((4, 4)))
    assert sent.take_back(received.answer("done")) == "done"
    assert callback.count == 3
    assert not hasattr(callback, "file")
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], np.ones((4, 4)))


def test_large_arrays_can_be_kept_apart() -> None:
    kept: dict[str, np.ndarray] = {}

    def keep(array: np.ndarray) -> str:
        kept["it"] = array
        return "it"

    sent = Sent({"x": X}, keep)
    assert len(sent.data) < 200
    assert Received(sent.data, kept.__getitem__).things["x"] is X
