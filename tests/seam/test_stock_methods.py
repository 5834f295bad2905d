"""Keras' own methods while ours are in their place, for the process or for one call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import flatout
from flatout.seam import patches
from flatout.seam import stock_methods as stock
from flatout.seam.trainers import trainer_class

DATA = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    patches.undo("stock methods")


def _model() -> Any:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_the_original_is_keras_own_whether_or_not_it_is_replaced() -> None:
    own = {name: vars(trainer_class())[name] for name in stock.METHODS}
    assert {name: stock.original(name) for name in stock.METHODS} == own
    stock.replace_methods(lambda method, model, args, kwargs: method)
    assert {name: stock.original(name) for name in stock.METHODS} == own
    assert _model().fit(*DATA) == "fit"
    assert stock.are_replaced()
    stock.restore_methods()
    assert not stock.are_replaced()
    assert {name: vars(trainer_class())[name] for name in stock.METHODS} == own


def test_in_one_call_other_threads_have_keras_own() -> None:
    elsewhere: list[Any] = []

    def fit_elsewhere() -> None:
        elsewhere.append(_model().fit(*DATA, verbose=0))
        elsewhere.append(stock.are_replaced())

    with stock.replaced_in_this_call(lambda method, model, args, kwargs: "ours"):
        assert _model().fit(*DATA) == "ours"
        assert stock.are_replaced()
        thread = threading.Thread(target=fit_elsewhere)
        thread.start()
        thread.join()
    history, was_replaced = elsewhere
    assert isinstance(history, keras.callbacks.History)
    assert not was_replaced
    assert not stock.are_replaced()
    assert not patches.is_applied("here")


def test_of_two_calls_the_first_to_end_leaves_the_other_its_methods() -> None:
    began, may_end = threading.Event(), threading.Event()
    results: list[Any] = []

    def second() -> None:
        with stock.replaced_in_this_call(lambda method, model, args, kwargs: "ours"):
            began.set()
            may_end.wait()
            results.append(_model().fit(*DATA))

    thread = threading.Thread(target=second)
    with stock.replaced_in_this_call(lambda method, model, args, kwargs: "ours"):
        thread.start()
        began.wait()
    may_end.set()
    thread.join()
    assert results == ["ours"]
    assert not patches.is_applied("here")


def test_an_overridden_method_is_told_apart() -> None:
    class Own(keras.Model):
        def fit(self, *args: Any, **kwargs: Any) -> Any:
            return super().fit(*args, **kwargs)

    assert stock.is_overridden("fit", Own())
    assert not stock.is_overridden("evaluate", Own())
    model = _model()
    flatout.enable()
    assert not stock.is_overridden("fit", model)
    flatout.disable()
    model.fit = lambda: None
    assert stock.is_overridden("fit", model)


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("by_name", [True, False])
def test_what_a_tool_puts_around_fit_stays_around_ours(
    monkeypatch: pytest.MonkeyPatch, comes_first: bool, by_name: bool
) -> None:
    """As mlflow's autolog does, and without the signature of `fit`, as a course's own timer does."""
    theirs, heard = keras.Model.fit, []

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        heard.append("timed")
        method = theirs if by_name else super(keras.Model, self).fit.__func__
        return method(self, *args, **kwargs)

    def wrap() -> None:
        nonlocal theirs
        theirs = keras.Model.fit
        monkeypatch.setattr(keras.Model, "fit", timed)

    if comes_first:
        wrap()
    flatout.enable(force=True)
    try:
        if not comes_first:
            wrap()
        before = len(flatout.explain())
        _model().fit(*DATA, verbose=0)
        flatout.fit(_model(), *DATA, verbose=0)
        accelerated = [run.accelerated for run in flatout.explain()[before:]]
    finally:
        flatout.disable()
    assert heard == ["timed"] * 2
    # A function that was taken from the class before ours was put there is Keras' own.
    assert accelerated == ([] if comes_first and by_name else [True, True])
