"""Steps that are taken again, and a Ctrl-C at any moment of that: what is told and kept is what was trained."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.data.stream import chunks
from flatout.native.launch.launch_cpu import CpuLauncher
from flatout.native.run.native_engine import NativeProgram
from flatout.native.run.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.backend("jax", "torch"), pytest.mark.usefixtures("emulated")]

_X = np.random.default_rng(0).standard_normal((160, 12)).astype("float32")
_Y = np.random.default_rng(1).integers(0, 4, 160)


def _model(wild_after: int | None = None, last_rate: float = 0.0) -> Any:
    """One whose weights leave the range of half precision after so many steps."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(4, activation="softmax")])
    model.build((None, 12))
    rate: Any = 0.1
    if wild_after is not None:
        bounds = [wild_after, wild_after + 1]
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(bounds, [0.1, 2e4, last_rate])
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _fit(engine: str, model: Any, rows: int = 128, **arguments: Any) -> Any:
    settings = {"batch_size": 32, "epochs": 6, "verbose": 0, "shuffle": False, **arguments}
    return flatout.fit(model, _X[:rows], _Y[:rows], engine=engine, **settings)


def _assert_told_as_trained(model: Any, stock: Any, **arguments: Any) -> None:
    """What History was told, and the weights, are those of as many epochs of stock Keras."""
    epochs = len(model.history.epoch)
    assert int(model.optimizer.iterations) == 4 * epochs
    expected = _fit("stock", stock, epochs=epochs, **arguments).history
    for name, values in expected.items():
        np.testing.assert_allclose(model.history.history[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
    for one, other in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("steps", [7, 8, 13])
def test_a_shorter_last_chunk_that_is_taken_again_counts_the_others(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 32 * 12 * 4)
    model, stock = _model(steps), _model(steps)
    history = _fit("native", model, 144, epochs=4, data="streamed").history
    expected = _fit("stock", stock, 144, epochs=4).history
    assert any("range of half precision" in why.message for why in flatout.explain()[-2].reasons)
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-3, atol=1e-3, err_msg=name)
    counts = ([float(keras.ops.sum(value)) for value in one.metrics_variables] for one in (model, stock))
    np.testing.assert_allclose(*counts, rtol=1e-3)


def test_an_interrupt_while_what_takes_them_again_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    load, interrupted = CpuLauncher.load, []

    def loads(self: CpuLauncher, program: Any) -> Any:
        if program.form != "fused" and "train" in program.steps and not interrupted:
            interrupted.append(program)
            raise KeyboardInterrupt
        return load(self, program)

    monkeypatch.setattr(CpuLauncher, "load", loads)
    model, validation = _model(9, 0.05), {"validation_data": (_X[100:], _Y[100:])}
    with pytest.raises(KeyboardInterrupt):
        _fit("native", model, **validation)
    assert interrupted
    _assert_told_as_trained(model, _model(9, 0.05), **validation)


def test_an_interrupt_between_steps_that_are_taken_again_and_their_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    settle, run, told = NativeProgram.settle, NativeProgram.run, []

    def settles(self: NativeProgram, logs: Any) -> bool:
        could = settle(self, logs)
        told.append("settled" if could else "taken again")
        return could

    def runs(self: NativeProgram, *arguments: Any) -> Any:
        if self._task == "test" and told[-1:] == ["taken again"] and "interrupted" not in told:
            told.append("interrupted")
            raise KeyboardInterrupt
        return run(self, *arguments)

    monkeypatch.setattr(NativeProgram, "settle", settles)
    monkeypatch.setattr(NativeProgram, "run", runs)
    model, validation = _model(9, 0.05), {"validation_data": (_X[100:], _Y[100:])}
    with pytest.raises(KeyboardInterrupt):
        _fit("native", model, **validation)
    assert "interrupted" in told
    _assert_told_as_trained(model, _model(9, 0.05), **validation)


def test_an_interrupt_while_the_progress_bar_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras takes every error of a value for one that is no number."""
    totals, waited = Session.totals_after, []

    def totals_after(self: Session, launched: Any) -> np.ndarray:
        waited.append(launched)
        if len(waited) == 3:
            raise KeyboardInterrupt
        return totals(self, launched)

    monkeypatch.setattr(Session, "totals_after", totals_after)
    with pytest.raises(KeyboardInterrupt):
        _fit("native", _model(), verbose=1)


def test_an_interrupt_while_the_end_of_an_epoch_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    finish, interrupted = Session.finish, []

    class Looks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.get_weights()

    def finishes(self: Session) -> None:
        if self._unsettled and int(model.optimizer.iterations) == 8 and not interrupted:
            interrupted.append(self)
            raise KeyboardInterrupt
        finish(self)

    monkeypatch.setattr(Session, "finish", finishes)
    model = _model()
    with pytest.raises(KeyboardInterrupt):
        _fit("native", model, callbacks=[Looks()])
    assert interrupted
    assert int(model.optimizer.iterations) == 12
    stock = _model()
    _fit("stock", stock, epochs=3)
    np.testing.assert_allclose(model.get_weights()[0], stock.get_weights()[0], rtol=1e-4, atol=1e-5)
