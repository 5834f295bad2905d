"""The data of a call are described once: Keras' adapter is built once for what is trained on, once for validation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.data.sources import description
from flatout.seam.adapters import array_adapter_class

X = np.random.default_rng(1).standard_normal((64, 6)).astype("float32")
Y = np.random.default_rng(2).standard_normal((64, 1)).astype("float32")


@pytest.fixture
def model() -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _count(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> list[int]:
    """The rows of each array adapter that a call builds over data; those over row numbers are not asked for."""
    built: list[int] = []
    adapter = array_adapter_class()
    original = adapter.__init__

    def counting(self: Any, x: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is adapter:
            built.append(len(x))
        original(self, x, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(adapter, "__init__", counting)
        call()
    assert flatout.explain()[-1].accelerated
    return built


def test_a_fit_describes_its_data_once(model: Any, forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _count(monkeypatch, lambda: flatout.fit(model, X, Y, verbose=0)) == [64]
    again = {"epochs": 2, "verbose": 0}
    assert _count(monkeypatch, lambda: flatout.fit(model, X, Y, validation_split=0.25, **again)) == [48, 16]
    assert _count(monkeypatch, lambda: flatout.evaluate(model, X, Y, verbose=0)) == [64]


def test_so_does_a_strict_one_that_asks_about_its_validation_beforehand(
    model: Any, forced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict() -> None:
        with flatout.options(strict=True):
            flatout.fit(model, X, Y, validation_split=0.25, epochs=2, verbose=0)

    assert _count(monkeypatch, strict) == [48, 16]


def test_and_a_prediction_to_a_file(model: Any, forced: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.build((None, 6))
    calls: list[Any] = []
    describe = description.describe
    monkeypatch.setattr(
        "flatout.training.planning.call_facts.describe",
        lambda *args, **kwargs: (calls.append(1), describe(*args, **kwargs))[1],
    )
    for engine in ("auto", "stock"):
        calls.clear()
        flatout.predict(model, X, out=tmp_path / f"{engine}.npy", engine=engine, verbose=0)
        assert len(calls) == 1
    np.testing.assert_allclose(np.load(tmp_path / "auto.npy"), np.load(tmp_path / "stock.npy"), rtol=1e-5)


def test_a_plan_changes_nothing(forced: None) -> None:
    unbuilt = keras.Sequential([layers.Dense(1)])
    unbuilt.compile("sgd", "mse")
    before = np.random.get_state()[1].copy()
    plan = flatout.plan(unbuilt, X, Y, epochs=3)
    assert (plan.engine, plan.data, plan.facts.steps) == (keras.config.backend(), "resident", 6)
    assert not unbuilt.built
    assert (np.random.get_state()[1] == before).all()


def test_what_the_page_cache_holds_may_be_used(model: Any, forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # As after reading large files: hardly a page is free, and most of the memory available.
    known = os.sysconf
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_AVPHYS_PAGES" else known(name))
    assert flatout.plan(model, X, Y).data == "resident"
