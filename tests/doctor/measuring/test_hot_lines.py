from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pandas
import pytest

from flatout.doctor.diagnosis_facts import HotLine
from flatout.doctor.measuring.hot_lines import Sampler

_STEPS = 30
_X, _Y = np.ones((_STEPS * 4, 3), "float32"), np.ones((_STEPS * 4, 1), "float32")


def _model(**compiled: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **compiled})
    return model


def _line_of(function: Callable[..., Any], text: str) -> int:
    """The number of the first line of a function that contains a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def _watch(model: keras.Model, *args: Any, **kwargs: Any) -> tuple[HotLine, ...]:
    model.fit(*args, **{"verbose": 0, "steps_per_epoch": 2, **kwargs})
    with Sampler() as sampler:
        model.fit(*args, verbose=0, **kwargs)
    return sampler.hot_lines()


def _assert_hottest(lines: tuple[HotLine, ...], part: str, function: Callable[..., Any], text: str) -> None:
    hottest = lines[0]
    assert (hottest.part, hottest.path, hottest.function) == (part, __file__, function.__name__)
    assert hottest.line == _line_of(function, text)
    assert text in hottest.source
    assert 0 < hottest.share <= 1


def _slow_batches() -> Iterator[tuple[Any, Any]]:
    while True:
        batch = _X[:4], _Y[:4]
        time.sleep(0.01)
        yield batch


def test_a_generator_that_sleeps() -> None:
    lines = _watch(_model(), _slow_batches(), steps_per_epoch=_STEPS)
    _assert_hottest(lines, "input", _slow_batches, "time.sleep(0.01)")
    assert all(line.path == __file__ for line in lines)


class _SlowCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        assert logs is not None
        time.sleep(0.01)


def test_a_callback_that_sleeps() -> None:
    lines = _watch(_model(), _X, _Y, batch_size=4, callbacks=[_SlowCallback()])
    _assert_hottest(lines, "callbacks", _SlowCallback.on_train_batch_end, "time.sleep(0.01)")


def test_a_callback_on_a_thread_of_its_own_is_a_callback() -> None:
    callback = _SlowCallback()
    callback.async_safe = True
    lines = _watch(_model(), _X, _Y, batch_size=4, callbacks=[callback])
    _assert_hottest(lines, "callbacks", _SlowCallback.on_train_batch_end, "time.sleep(0.01)")


class _Evaluating(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.model.evaluate(_slow_batches(), steps=20, verbose=0)


def test_what_a_callback_causes_is_the_callbacks() -> None:
    lines = _watch(_model(), _X, _Y, batch_size=4, callbacks=[_Evaluating()])
    # Tensorflow's generators run on a thread of their own.
    is_beside = keras.backend.backend() == "tensorflow"
    function, text = (_Evaluating.on_epoch_end, "evaluate(") if is_beside else (_slow_batches, "time.sleep(0.01)")
    _assert_hottest(lines, "epoch-callbacks", function, text)


class _SlowDataset(keras.utils.PyDataset):
    def __len__(self) -> int:
        return _STEPS

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        batch = _X[:4], _Y[:4]
        time.sleep(0.02)
        return batch


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dataset_whose_items_are_slow(workers: int) -> None:
    lines = _watch(_model(), _SlowDataset(workers=workers))
    _assert_hottest(lines, "input", _SlowDataset.__getitem__, "time.sleep(0.02)")


def test_a_generator_behind_tf_data() -> None:
    tf = pytest.importorskip("tensorflow")
    kinds = tf.TensorSpec((4, 3)), tf.TensorSpec((4, 1))
    data = tf.data.Dataset.from_generator(_slow_batches, output_signature=kinds).prefetch(1)
    lines = _watch(_model(), data, steps_per_epoch=_STEPS)
    _assert_hottest(lines, "input", _slow_batches, "time.sleep(0.01)")


@pytest.mark.backend("torch")
def test_a_loss_that_looks_up_row_by_row() -> None:
    prices = pandas.Series(np.arange(8.0), index=np.arange(8))

    def loss(y_true: Any, y_pred: Any) -> Any:
        total = 0.0
        for one, other in zip(y_true, y_pred, strict=True):
            total = total + (other - prices.reindex([int(one.item())]).iloc[0]) ** 2
        return total / len(y_true)

    lines = _watch(_model(loss=loss), _X, _Y, batch_size=40, epochs=4)
    _assert_hottest(lines, "loss", loss, "prices.reindex")


@pytest.mark.backend("torch")
def test_metrics_and_steps_are_told_apart() -> None:
    def metric(y_true: Any, y_pred: Any) -> Any:
        time.sleep(0.03)
        return y_true - y_pred

    class Model(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            time.sleep(0.005)
            return super().train_step(data)

    model = Model([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[metric])
    lines = _watch(model, _X, _Y, batch_size=4)
    _assert_hottest(lines, "metrics", metric, "time.sleep(0.03)")
    assert ("step", _line_of(Model.train_step, "time.sleep(0.005)")) in {(line.part, line.line) for line in lines}


def test_the_line_that_calls_fit_is_not_hot() -> None:
    assert _watch(_model(), _X, _Y, batch_size=4) == ()


def test_a_thread_that_waits_is_not_hot() -> None:
    is_over = threading.Event()
    waiting = threading.Thread(target=lambda: is_over.wait())
    waiting.start()
    try:
        lines = _watch(_model(), _X, _Y, batch_size=4)
    finally:
        is_over.set()
        waiting.join()
    assert lines == ()


def test_at_most_so_many_lines_of_a_part() -> None:
    model = _model()
    with Sampler() as sampler:
        model.fit(_slow_batches(), steps_per_epoch=_STEPS, callbacks=[_SlowCallback()], verbose=0)
    assert {line.part for line in sampler.hot_lines(most=1)} == {"input", "callbacks"}
    assert len(sampler.hot_lines(most=1)) == 2
    assert sampler.seconds > 0


def test_nothing_sampled_is_nothing_hot() -> None:
    with Sampler() as sampler:
        pass
    assert sampler.hot_lines() == ()
