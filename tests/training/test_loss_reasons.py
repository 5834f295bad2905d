"""No fit waits for the checker: reports remember losses by their code alone, and `explain()` asks about them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

import flatout
from flatout.base.report import recorded

X = np.random.default_rng(1).standard_normal((32, 4)).astype("float32")
Y = np.random.default_rng(2).standard_normal((32, 2)).astype("float32")


class Data:
    """What a loss closes over."""

    weight = 2.0


def _loss(data: Data) -> Any:
    def loop(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            total = total + data.weight * ops.mean(ops.square(y_true[i] - y_pred[i]))
        return total / y_true.shape[0]

    return loop


def _fit(data: Data) -> None:
    model = keras.Sequential([layers.Input((4,)), layers.Dense(2)])
    model.compile("sgd", _loss(data), metrics=["mae", _loss(data)])
    flatout.fit(model, X, Y, batch_size=8, verbose=0)


@pytest.mark.backend("torch")
def test_the_checker_is_asked_by_explain_alone(forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    from flatout.check.examining import examine

    monkeypatch.setattr("flatout.runner.explain._known", {})
    monkeypatch.setattr(examine, "findings_of", lambda *args: asked.append(args) or ())
    _fit(Data())
    assert not asked
    assert recorded()[-1].reasons == ()
    flatout.explain()
    assert asked


@pytest.mark.backend("torch")
def test_what_a_loss_closes_over_goes_although_its_loops_can_still_be_named(forced: None) -> None:
    data = Data()
    gone = weakref.ref(data)
    _fit(data)
    del data
    gc.collect()
    assert gone() is None
    said = [why for why in flatout.explain()[-1].reasons if why.code == "loss_loop"]
    # The loss and the metric are the same lines.
    assert len(said) == 1
    assert "`loop` (" in said[0].message
    assert "FO101 in line" in said[0].message


@pytest.mark.backend("torch")
def test_the_seconds_of_a_report_hold_what_looking_at_losses_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from flatout.training import running

    hours = [0.0]

    def slow(model: Any, reasons: Any) -> Any:
        hours[0] += 3600
        return reasons, ()

    monkeypatch.setattr(running, "with_losses", slow)
    monkeypatch.setattr("time.perf_counter", lambda: hours[0])
    with flatout.options(engine="stock"):
        _fit(Data())
    assert recorded()[-1].seconds == 3600
