"""What a fit needs is compiled side by side before its first step, and nothing of the user's is read too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.engines.jax import executables
from flatout.engines.jax.engine import JaxProgram

pytestmark = pytest.mark.backend("jax")
RANDOM = np.random.default_rng(5)
X, Y = RANDOM.random((72, 6), np.float32), RANDOM.random((72, 1), np.float32)
HELD_OUT = X[:40] + 1, Y[:40]


class Scaled(keras.Sequential):
    """Its steps read an attribute when they are traced, and note for which batch."""

    scale = 1.0

    def compute_loss(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        self.read.append((int(y.shape[0]), kwargs.get("training", True)))
        return self.scale * super().compute_loss(x, y, *args, **kwargs)


def _model(*more: Any) -> Scaled:
    keras.utils.set_random_seed(3)
    model = Scaled(
        [layers.Input((6,)), *(kind() for kind in more), layers.Dense(4, "relu"), layers.Dropout(0.2), layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"])
    model.read = []
    return model


def _fits(call: Callable[[Any], Any], *more: Any) -> list[Any]:
    """What a call makes of a model with flatout and with stock Keras: its result or error, and all variables."""
    results = []
    for engine in ("jax", "stock"):
        model, error, history = _model(*more), "", {}
        with flatout.options(engine=engine, force=True):
            try:
                history = call(model).history
            except Exception as raised:
                error = type(raised).__name__
        # After an error stock Keras leaves the variables of a model on jax without values.
        variables = () if error else (*model.variables, *model.optimizer.variables)
        weights = [np.asarray(value) for value in variables]
        results.append((history, error, weights, model.read))
    return results


def _assert_same(ours: Any, stocks: Any) -> None:
    assert ours[:2] == stocks[:2]
    for one, other in zip(ours[2], stocks[2], strict=True):
        np.testing.assert_array_equal(one, other)


def _fit(model: Any, **arguments: Any) -> Any:
    return flatout.fit(
        model, X, Y, batch_size=16, **{"epochs": 2, "validation_data": HELD_OUT, "verbose": 0, **arguments}
    )


def test_training_and_validation_are_compiled_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    compiled, run = JaxProgram._compiled, JaxProgram.run

    def compiles(self: Any, form: Any, *arguments: Any) -> Any:
        events.append((self._task, form[0]))
        return compiled(self, form, *arguments)

    def runs(self: Any, *arguments: Any) -> Any:
        events.append((self._task, "runs"))
        return run(self, *arguments)

    monkeypatch.setattr(JaxProgram, "_compiled", compiles)
    monkeypatch.setattr(JaxProgram, "run", runs)
    _assert_same(*_fits(_fit))
    before = events[: events.index(("train", "runs"))]
    assert before == [("train", "loop"), ("train", "rest"), ("test", "loop"), ("test", "rest")]


@pytest.mark.parametrize("freq", [2, [2]])
def test_a_validation_that_comes_later_is_prepared_later(freq: Any) -> None:
    ours, stocks = _fits(lambda model: _fit(model, validation_freq=freq))
    _assert_same(ours, stocks)


class ScalesAt(keras.callbacks.Callback):
    """Changes what the steps read, at one point of the first epoch."""

    def __init__(self, hook: str):
        super().__init__()
        setattr(self, hook, self._change)

    def _change(self, *_: Any) -> None:
        self.model.scale = 3.0


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_train_batch_end"])
def test_what_a_callback_changes_is_seen_where_stock_keras_sees_it(hook: str) -> None:
    def call(model: Any) -> Any:
        return _fit(model, callbacks=[ScalesAt(hook)])

    _assert_same(*_fits(call))


class NeverEight(layers.Layer):
    def call(self, x: Any) -> Any:
        if x.shape[0] == 8:
            raise ValueError("not 8 rows, please")
        return x * 2


def test_a_last_batch_that_the_model_cannot_take_fails_when_it_is_its_turn() -> None:
    ours, stocks = _fits(lambda model: _fit(model, validation_data=None), NeverEight)
    assert ours[1]
    _assert_same(ours, stocks)


def test_validation_data_that_the_model_cannot_take_fail_after_the_first_epoch() -> None:
    wrong = X[:, :3], Y
    ours, stocks = _fits(lambda model: _fit(model, validation_data=wrong))
    assert ours[1]
    _assert_same(ours, stocks)


def test_a_program_that_cannot_be_compiled_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executables, "_executables", type(executables._executables)())
    begun = executables._begun
    with monkeypatch.context() as patched:
        patched.setattr(executables, "_begun", lambda compile_it: begun(_fails))
        wait = executables.compile_shared(lambda x: x + 1, (np.ones(3),))
        with pytest.raises(MemoryError):
            wait()
    wait = executables.compile_shared(lambda x: x + 1, (np.ones(3),))
    np.testing.assert_array_equal(wait()(np.ones(3)), 2 * np.ones(3))


def _fails() -> None:
    raise MemoryError


def test_without_threads_it_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", none)
    assert executables._begun(lambda: 5).result() == 5
