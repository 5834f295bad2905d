"""The order of samples is the installed Keras', and so is what it leaves in the random generators."""

from __future__ import annotations

import random
import threading
from importlib import import_module
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.order.row_order import Order
from flatout.seam.epoch_iterators import iterator_class
from flatout.seam.trainers import trainer_module

BACKEND = keras.config.backend()
EXTRA: dict[str, Any] = {}
if BACKEND == "tensorflow":
    import tensorflow as tf

    EXTRA = {"distribute_strategy": tf.distribute.get_strategy()}


def generators() -> list[Any]:
    states: list[Any] = [random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]]
    if BACKEND == "torch":
        import torch

        states.append(torch.get_rng_state().tolist())
    if BACKEND == "tensorflow":
        states.append(float(tf.random.uniform(())))
    return states


def draw(times: int) -> None:
    """What a callback of the user's may do between epochs."""
    for _ in range(times):
        np.random.rand()
        if BACKEND == "torch":
            import torch

            torch.rand(1)


def keras_epochs(
    rows: int, batch_size: int, shuffle: Any, steps_per_epoch: int | None, epochs: int, draws: list[int]
) -> Any:
    """The batches of row numbers that stock Keras' own iterator gives, epoch by epoch."""
    iterator = iterator_class(trainer_module(BACKEND))(
        x=np.arange(rows), batch_size=batch_size, shuffle=shuffle, steps_per_epoch=steps_per_epoch, **EXTRA
    )
    iterator.reset()
    seen = []
    for number in range(epochs):
        epoch = []
        for _, _, data in iterator:
            batch = data[0] if BACKEND == "torch" else next(data)
            (numbers,) = batch if isinstance(batch, (tuple, list)) else (batch,)
            epoch.append(np.asarray(numbers).tolist())
        seen.append(epoch)
        draw(draws[number])
    return seen


def our_epochs(
    rows: int,
    batch_size: int,
    shuffle: Any,
    steps_per_epoch: int | None,
    epochs: int,
    draws: list[int],
    draws_ahead: int = 0,
) -> Any:
    strategy = EXTRA.get("distribute_strategy")
    order = Order(rows, batch_size, shuffle, steps_per_epoch, 1, trainer_module(BACKEND), strategy)
    order.reset()
    seen = []
    for number in range(epochs):
        first, count, _ = order.begin_epoch()
        numbers = order.rows_of_pass if order.rows_of_pass is not None else np.arange(rows)
        epoch = [numbers[i * batch_size : (i + 1) * batch_size].tolist() for i in range(first, first + count)]
        for _ in range(draws_ahead):
            order.draw_ahead()
        order.end_epoch(count, finished=True)
        seen.append(epoch)
        draw(draws[number])
    order.close()
    return seen


@settings(max_examples=12 if BACKEND == "tensorflow" else 40, deadline=None)
@given(
    rows=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    shuffle=st.sampled_from([True, False, "batch"]),
    steps_per_epoch=st.none() | st.integers(1, 6),
    epochs=st.integers(1, 4),
    seed=st.integers(0, 5),
    draws=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    draws_ahead=st.integers(0, 2),
)
def test_order_and_generators_equal_those_of_keras(
    rows: int,
    batch_size: int,
    shuffle: Any,
    steps_per_epoch: int | None,
    epochs: int,
    seed: int,
    draws: list[int],
    draws_ahead: int,
) -> None:
    arguments = (rows, batch_size, shuffle, steps_per_epoch, epochs, draws)
    keras.utils.set_random_seed(seed)
    expected, state = keras_epochs(*arguments), generators()
    keras.utils.set_random_seed(seed)
    assert our_epochs(*arguments, draws_ahead) == expected
    assert generators() == state


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_tensorflow_does_not_tune_the_drawing_of_row_numbers(shuffle: Any) -> None:
    """Ending the thread that does took a second now and then, between two epochs."""
    order = Order(40, 8, shuffle, None, 1, trainer_module(BACKEND), EXTRA["distribute_strategy"])
    assert not order.iterator.data_adapter.get_tf_dataset().options().autotune.enabled


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize(("shuffle", "passes"), [(True, 3), (False, 0)])
def test_tensorflow_begins_only_passes_that_are_asked_for(
    shuffle: bool, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    begin = tf.data.Dataset.__iter__
    monkeypatch.setattr(tf.data.Dataset, "__iter__", lambda dataset: begun.append(dataset) or begin(dataset))
    our_epochs(40, 8, shuffle, None, epochs=3, draws=[0] * 3)
    assert len(begun) == passes


@pytest.mark.backend("jax", "torch")
def test_what_was_foreseen_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (50, 8, True, None)
    keras.utils.set_random_seed(1)
    expected = our_epochs(*arguments, epochs=4, draws=[0] * 4)
    keras.utils.set_random_seed(1)
    order = Order(*arguments[:4], 1, trainer_module(BACKEND))
    order.reset()
    # Foreseeing draws by torch's own way, and by another one than `np.random.permutation`.
    place, expected_draws = (np.random, 1) if BACKEND == "jax" else (import_module("flatout.data.order.torch_order"), 4)
    name = "permutation" if BACKEND == "jax" else "_shuffled"
    draw, draws = getattr(place, name), []
    monkeypatch.setattr(place, name, lambda *arguments: draws.append(arguments) or draw(*arguments))
    for number in range(4):
        order.begin_epoch()
        assert order.rows_of_pass is not None
        assert order.rows_of_pass[:8].tolist() == expected[number][0]
        if number < 3:
            order.draw_ahead()
            order.draw_ahead()
        order.end_epoch(7, finished=True)
    order.close()
    assert len(draws) == expected_draws


@pytest.mark.backend("jax", "torch")
def test_no_thread_is_left_of_what_was_foreseen() -> None:
    others = set(threading.enumerate())

    def drawing() -> list[str]:
        threads = set(threading.enumerate()) - others
        return [thread.name for thread in threads if thread.name.startswith("flatout-draw-ahead")]

    order = Order(50, 8, True, None, 1, trainer_module(BACKEND))
    order.reset()
    order.begin_epoch()
    order.draw_ahead()
    assert drawing()
    order.close()
    assert not drawing()
