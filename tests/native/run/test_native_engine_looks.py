"""State stays on the device, and History is told late, only where nobody can look: who can sees what Keras shows."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import callbacks, layers

import flatout
from flatout.native.run.native_engine import NativeProgram

pytestmark = [pytest.mark.slow, pytest.mark.backend("jax", "torch"), pytest.mark.usefixtures("emulated")]

_X = np.random.default_rng(0).standard_normal((160, 12)).astype("float32")
_Y = np.random.default_rng(1).integers(0, 4, 160)


def _model(**compiled: Any) -> Any:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(4, activation="softmax")])
    model.build((None, 12))
    model.compile(**{"optimizer": "adam", "loss": "sparse_categorical_crossentropy", **compiled})
    return model


def _fit(engine: str, model: Any, **arguments: Any) -> Any:
    settings = {"batch_size": 32, "epochs": 4, "verbose": 0, "validation_data": (_X[128:], _Y[128:]), **arguments}
    return flatout.fit(model, _X[:128], _Y[:128], engine=engine, **settings)


class _Looks:
    """A hook that keeps what it saw, and ends the training after the second epoch."""

    def __init__(self, model: Any):
        self.model, self.seen = model, []

    def __call__(self, epoch: int, logs: Any = None) -> None:
        self.seen.append([epoch, int(self.model.optimizer.iterations), float(np.sum(self.model.get_weights()[0]))])
        self.model.stop_training = epoch == 1


def _put_onto_history(looks: _Looks, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    history = callbacks.History()
    history.on_epoch_end = looks
    return {"callbacks": [history]}


def _put_onto_the_class(looks: _Looks, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    own = callbacks.History.on_epoch_end

    @functools.wraps(own)
    def hook(self: Any, epoch: int, logs: Any = None) -> None:
        own(self, epoch, logs)
        looks(epoch)

    patch.setattr(callbacks.History, "on_epoch_end", hook)
    return {}


def _put_onto_the_list(looks: _Looks, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    listed = callbacks.CallbackList(add_history=True, model=looks.model, epochs=4)
    own = listed.on_epoch_end

    def hook(epoch: int, logs: Any = None) -> None:
        own(epoch, logs)
        looks(epoch)

    listed.on_epoch_end = hook
    return {"callbacks": listed}


def _put_onto_the_list_for_tests(looks: _Looks, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    class Lists(callbacks.CallbackList):
        def on_test_begin(self, logs: Any = None) -> None:
            super().on_test_begin(logs)
            looks(len(looks.seen))

    return {"callbacks": Lists(add_history=True, model=looks.model, epochs=4)}


@pytest.mark.parametrize(
    "put", [_put_onto_history, _put_onto_the_class, _put_onto_the_list, _put_onto_the_list_for_tests]
)
def test_a_hook_that_was_put_somewhere_sees_its_epoch_and_ends_it(
    put: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for engine in ("native", "stock"):
        looks = _Looks(_model())
        with monkeypatch.context() as patch:
            _fit(engine, looks.model, **put(looks, patch))
        found.append((looks.seen, looks.model.history.epoch, int(looks.model.optimizer.iterations)))
    (seen, *ended), (expected, *wanted) = found
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    assert ended == wanted


def test_a_schedule_of_the_users_knows_the_epochs_that_are_over() -> None:
    class Steps(keras.optimizers.schedules.LearningRateSchedule):
        model: Any = None

        def __call__(self, step: Any) -> Any:
            over = len(getattr(self.model.history, "epoch", ())) if hasattr(self.model, "history") else 0
            self.seen.append(over)
            return 0.05 * 0.1**over

    found = []
    for engine in ("native", "stock"):
        schedule = Steps()
        schedule.seen = []
        schedule.model = _model(optimizer=keras.optimizers.SGD(schedule))
        history = _fit(engine, schedule.model)
        found.append((history.history, schedule.seen))
    (history, seen), (expected, _) = found
    # On jax stock Keras calls it once, when it traces the step.
    assert set(seen) >= {0, 1, 2, 3}
    if keras.backend.backend() == "torch":
        for name, values in expected.items():
            np.testing.assert_allclose(history[name], values, rtol=1e-5)


@pytest.mark.backend("torch")
def test_a_generator_that_looks_at_the_model_does_not_see_an_epoch_old() -> None:
    model = _model()
    seen: set[float] = set()

    def hardest() -> Any:
        while True:
            # What is asked for ahead, as stock Keras' DataLoader does, is asked for while the last steps run.
            time.sleep(0.05)
            kernel = keras.ops.convert_to_numpy(model.weights[0])
            seen.add(float(np.sum(np.abs(kernel))))
            rows = np.argsort(_X[:, 0] * kernel[0, 0])[:32]
            yield _X[rows], _Y[rows]

    flatout.fit(model, hardest(), steps_per_epoch=10, epochs=2, verbose=0, engine="native")
    assert flatout.explain()[-1].engine == "native"
    assert len(seen) > 6


def test_a_validation_that_is_done_again_draws_what_it_drew() -> None:
    found = []
    for engine in ("native", "stock"):
        # Its weights leave the range of half precision in the third epoch, and the order of the others counts.
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([9, 10], [0.1, 2e4, 1e-9])
        model = _model(optimizer=keras.optimizers.SGD(rate))
        history = _fit(engine, model, epochs=6)
        drawn = np.random.rand(), float(keras.random.uniform(()))
        if keras.backend.backend() == "torch":
            import torch

            drawn += (float(torch.rand(1)),)
        found.append((history.history, drawn, flatout.explain()[-1]))
    (history, drawn, report), (expected, wanted, _) = found
    assert any("range of half precision" in why.message for why in report.reasons)
    assert drawn == wanted
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)


def test_an_epoch_is_told_of_though_the_device_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    run, end, lost = NativeProgram.run, NativeProgram.end_pass, []

    def runs(self: NativeProgram, start: int, *arguments: Any) -> Any:
        if self._task == "train" and start == 0:
            lost.append(start)
            if len(lost) == 3:
                raise RuntimeError("the device is lost")
        return run(self, start, *arguments)

    def ends(self: NativeProgram) -> None:
        if len(lost) == 3:
            raise RuntimeError("the device is lost, still")
        end(self)

    monkeypatch.setattr(NativeProgram, "run", runs)
    monkeypatch.setattr(NativeProgram, "end_pass", ends)
    model = _model()
    with pytest.raises(RuntimeError, match="the device is lost"):
        _fit("native", model)
    assert model.history.epoch == [0, 1]
