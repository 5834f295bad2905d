"""On a Keras that nobody has tested a call is tried on a copy first, and nobody can tell that it was."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import keras
import numpy as np
import pytest

import flatout
from flatout.base.report import recorded
from flatout.data.order import row_order
from flatout.training import self_check
from flatout.training.planning import call_facts

X = np.random.default_rng(0).standard_normal((90, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, 90)
pytestmark = pytest.mark.filterwarnings("ignore:Nobody has tested flatout")


@pytest.fixture(autouse=True)
def _untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed Keras is one of the future, and no work is too small."""
    monkeypatch.setattr(keras, "__version__", "3.99.0")
    monkeypatch.setattr(self_check, "_found", {})
    planned = self_check.plan_call

    def plan_any_size(method: str, model: Any, call: Any, wishes: Any, source: Any = None) -> Any:
        return planned(method, model, call, dataclasses.replace(wishes, force=True), source)

    monkeypatch.setattr(self_check, "plan_call", plan_any_size)


def small() -> Any:
    model = keras.Sequential(
        [keras.layers.Input((6,)), keras.layers.Dense(8), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
    )
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return model


def generators() -> list[Any]:
    states: list[Any] = [random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]]
    if keras.config.backend() == "torch":
        import torch

        states.append(torch.get_rng_state().tolist())
    return states


def trained(make: Any = small, **arguments: Any) -> tuple[Any, ...]:
    """The history, the weights, the generators and the next name after a fit."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(3)
    model = make()
    history = flatout.fit(model, X, Y, batch_size=16, epochs=2, verbose=0, **arguments).history
    weights = [keras.ops.convert_to_numpy(weight).tolist() for weight in model.weights]
    drawn = keras.ops.convert_to_numpy(keras.random.uniform((2,))).tolist()
    return history, weights, generators(), drawn, keras.layers.Dense(1).name, keras.optimizers.Adam().name


def close(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert one[0].keys() == other[0].keys()
    for name, values in one[0].items():
        np.testing.assert_allclose(values, other[0][name], rtol=1e-5)
    for mine, theirs in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)
    assert one[2:] == other[2:]


def test_what_agrees_is_accelerated_and_leaves_no_trace() -> None:
    stock = trained(engine="stock", validation_split=0.2)
    before = len(recorded())
    with pytest.warns(UserWarning, match=r"tested flatout with Keras 3\.99\.0 yet.*agrees"):
        ours = trained(validation_split=0.2)
    report = flatout.explain()[-1]
    assert report.accelerated, report
    assert len(recorded()) == before + 1
    close(ours, stock)


def test_a_kind_of_model_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []
    monkeypatch.setattr(self_check, "copied", lambda model, copied=self_check.copied: copies.append(1) or copied(model))
    model = small()
    for _ in range(2):
        flatout.fit(model, X, Y, verbose=0)
    assert len(copies) == 2
    flatout.evaluate(model, X, Y, verbose=0)
    flatout.predict(model, X, verbose=0)
    assert len(copies) == 6
    assert [report.reasons for report in flatout.explain()[-4:] if not report.accelerated] == []


def test_another_order_of_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = trained(engine="stock")
    original = row_order.Order.begin_epoch

    def begin_epoch(order: row_order.Order) -> Any:
        begun = original(order)
        if order.rows_of_pass is not None:
            order.rows_of_pass = order.rows_of_pass[::-1].copy()
        return begun

    monkeypatch.setattr(row_order.Order, "begin_epoch", begin_epoch)
    with pytest.warns(UserWarning, match="differs"):
        ours = trained()
    assert [why.code for why in flatout.explain()[-1].reasons] == ["keras_version"]
    close(ours, stock)


def test_internals_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(backend: str) -> Any:
        raise ImportError("cannot import name 'something' from 'keras.src'")

    monkeypatch.setattr(call_facts, "engine_for", missing)
    close(trained(), trained(engine="stock"))
    (why,) = flatout.explain()[-2].reasons
    assert why.code == "keras_version"
    assert "cannot import name 'something'" in why.message


def test_a_model_that_cannot_be_copied_is_left_to_keras() -> None:
    class Opaque(keras.Model):
        def __init__(self, part: Any):
            super().__init__()
            self.part = part

        def get_config(self) -> Any:
            raise NotImplementedError("no configuration")

        def call(self, inputs: Any) -> Any:
            return self.part(inputs)

    def opaque() -> Any:
        model = Opaque(keras.layers.Dense(3))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    close(trained(opaque), trained(opaque, engine="stock"))
    (why,) = flatout.explain()[-2].reasons
    assert why.code == "keras_version"
    assert "no configuration" in why.message


def test_nothing_is_read_from_a_generator_to_try_it() -> None:
    read = []

    def batches() -> Any:
        while True:
            read.append(1)
            yield X[:16], Y[:16]

    model = small()
    flatout.fit(model, batches(), steps_per_epoch=3, epochs=1, verbose=0)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["keras_version"]
    assert len(read) <= 6


def test_force_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_difference", lambda *_: pytest.fail("was tried"))
    with flatout.options(force=True):
        flatout.fit(small(), X, Y, verbose=0)
    assert flatout.explain()[-1].accelerated
