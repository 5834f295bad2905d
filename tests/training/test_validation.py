"""The validation of a fit belongs to that fit: whoever else fits or evaluates meanwhile has one of its own."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.seam.epoch_iterators import kept_validation
from flatout.training import validation
from flatout.training.validation import running_validation

pytestmark = pytest.mark.turns

ROWS = 96
X = np.random.default_rng(1).standard_normal((ROWS, 6)).astype("float32")
Y = np.random.default_rng(2).standard_normal((ROWS, 1)).astype("float32")
HELD_OUT = (X[:40] + 1, Y[:40])


class Shifted(keras.Sequential):
    """Validates by an `evaluate` of its own, which must reach the data of its own fit."""

    shift = 100.0
    found: bool = False

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        self.found = running_validation(self) is not None
        return {name: value + self.shift for name, value in super().evaluate(*args, **kwargs).items()}


def make_model(seed: int, kind: type = keras.Sequential) -> Any:
    keras.utils.set_random_seed(seed)
    model = kind([layers.Input((6,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def fit(model: Any, scale: float = 1.0, **arguments: Any) -> dict[str, list[float]]:
    held_out = (HELD_OUT[0] * scale, HELD_OUT[1])
    settings = {"batch_size": 16, "epochs": 3, "shuffle": False, "validation_data": held_out, "verbose": 0}
    return model.fit(X * scale, Y, **{**settings, **arguments}).history  # type: ignore[no-any-return]


def assert_same(got: dict[str, list[float]], expected: dict[str, list[float]]) -> None:
    assert list(got) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-5)


def test_two_fits_in_two_threads_each_validate_by_their_own_evaluate(forced: None) -> None:
    scales = (1.0, 0.25)
    expected = [fit(make_model(seed, Shifted), scale) for seed, scale in enumerate(scales)]
    flatout.enable()
    # What is compiled is compiled one after the other: the backends' tracing is their own affair.
    models = [make_model(seed, Shifted) for seed in range(2)]
    weights = [model.get_weights() for model in models]
    for model, scale in zip(models, scales, strict=True):
        fit(model, scale, epochs=1)
    for model, start in zip(models, weights, strict=True):
        model.set_weights(start)
        model.optimizer.iterations.assign(0)
    got: list[Any] = [None, None]
    together = threading.Barrier(2, timeout=120)

    def train(number: int) -> None:
        meets = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: together.wait())
        got[number] = fit(models[number], scales[number], callbacks=[meets])

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.accelerated for report in flatout.explain()[-2:]] == [True, True]
    assert all(model.found for model in models)
    for one, other in zip(got, expected, strict=True):
        assert one["val_loss"][0] > 100
        assert_same(one, other)
    assert not any(running_validation(model) or kept_validation(model) for model in models)


@pytest.mark.parametrize("kind", [keras.Sequential, Shifted])
@pytest.mark.parametrize("same", [True, False])
def test_a_fit_inside_a_callback_of_another_fit(forced: None, kind: type, same: bool) -> None:
    """Of the same model or of another one; both validate, and the outer one goes on with its own data."""

    class Inner(keras.callbacks.Callback):
        def __init__(self, other: Any) -> None:
            super().__init__()
            self.other = other
            self.seen: list[dict[str, list[float]]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                model = self.model if self.other is None else self.other
                self.seen.append(fit(model, 0.5, epochs=2))

    def run() -> Any:
        other = None if same else make_model(8, kind)
        inner = Inner(other)
        model = make_model(7, kind)
        history = fit(model, callbacks=[inner])
        return history, inner.seen

    expected, seen = run()
    flatout.enable()
    got, also_seen = run()
    assert [report.accelerated for report in flatout.explain()[-2:]] == [True, True]
    assert_same(got, expected)
    for one, other in zip(also_seen, seen, strict=True):
        assert_same(one, other)


def test_the_data_of_a_validation_are_gone_with_the_fit(forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []
    prepare = validation.prepare

    def watched(*arguments: Any, **named: Any) -> Any:
        prepared = prepare(*arguments, **named)
        close = prepared.feed.close
        monkeypatch.setattr(prepared.feed, "close", lambda: (closed.append(prepared), close()))
        return prepared

    monkeypatch.setattr(validation, "prepare", watched)
    model = make_model(3)

    def fails(epoch: int, logs: Any) -> None:
        raise RuntimeError("in a callback")

    with pytest.raises(RuntimeError, match="in a callback"):
        flatout.fit(
            model,
            X,
            Y,
            validation_data=HELD_OUT,
            callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=fails)],
            verbose=0,
        )
    assert len(closed) == 1
    assert kept_validation(model) is None


@pytest.mark.backend("jax", "torch")
@pytest.mark.parametrize(("batches", "steps"), [(None, 3), (None, 1), (5, None), (6, 4)])
def test_a_generator_gives_each_validation_what_it_gives_stock_keras(batches: int | None, steps: int | None) -> None:
    """Which begins with its first two batches every time."""

    def held_out() -> Iterator[Any]:
        for number in itertools.count() if batches is None else range(batches):
            yield np.full((4, 3), number, "float32"), np.full((4, 1), 2.0**number, "float32")

    histories = []
    for engine in ("stock", keras.config.backend()):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mae")
        x, y = np.ones((32, 3), "float32"), np.zeros((32, 1), "float32")
        arguments = {"validation_data": held_out(), "validation_steps": steps, "epochs": 4, "verbose": 0}
        with flatout.options(force=True), warnings.catch_warnings(action="ignore"):
            histories.append(flatout.fit(model, x, y, engine=engine, **arguments).history)
    assert histories[0].keys() == histories[1].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-6, err_msg=name)
    assert flatout.explain()[-1].reasons[-1].code == "read_anew"
