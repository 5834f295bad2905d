"""Layers for which there is no kernel are told from those for which there is one, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from flatout.engines.jax import triton_gpu
from flatout.engines.jax.recurrent import recurrent_choice as choice

pytestmark = pytest.mark.backend("jax")


class OwnCell(layers.LSTMCell):
    """A user's own."""


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a GPU of some compute capability."""
    return lambda capability: monkeypatch.setattr(triton_gpu, "capability", lambda: capability)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: layers.LSTM(3), ""),
        (lambda: layers.GRU(64), ""),
        (lambda: layers.SimpleRNN(128), ""),
        (lambda: layers.RNN(layers.GRUCell(3)), ""),
        (lambda: layers.LSTM(128, dtype="mixed_bfloat16"), ""),
        (lambda: layers.RNN(OwnCell(3)), "no kernel for a OwnCell"),
        (lambda: layers.RNN([layers.LSTMCell(3), layers.LSTMCell(3)]), "no kernel for a StackedRNNCells"),
        (lambda: layers.ConvLSTM1D(3, 2), "no kernel for a ConvLSTMCell"),
        (lambda: layers.SimpleRNN(3, activation="relu"), "activation is not tanh"),
        (lambda: layers.LSTM(3, recurrent_activation="hard_sigmoid"), "recurrent activation"),
        (lambda: layers.GRU(3, reset_after=False), "reset_after=False"),
        (lambda: layers.LSTM(3, unroll=True), "unrolled"),
        (lambda: layers.LSTM(3, use_cudnn=True), "cuDNN"),
        (lambda: layers.LSTM(3, dtype="float64"), "it computes in float64"),
        (lambda: layers.LSTM(65), ""),
        (lambda: layers.LSTM(129), "129 units in float32 are too many"),
        (lambda: layers.SimpleRNN(129), "129 units in float32 are too many"),
    ],
)
def test_layers_with_and_without_a_kernel(make: Callable[[], Any], why: str, on_gpu: Callable[[str], None]) -> None:
    on_gpu("9.0")
    found = choice.obstacle_of_layer(make())
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize(
    ("options", "call", "why"),
    [
        ({}, {}, ""),
        ({}, {"mask": np.ones((2, 4), bool)}, ""),
        ({"recurrent_dropout": 0.5}, {"training": False}, ""),
        ({"recurrent_dropout": 0.5}, {"training": True}, "drops parts of its state"),
        ({"dropout": 0.5}, {"training": True}, ""),
        ({"dropout": 0.5, "implementation": 1}, {"training": True}, "gates drop inputs"),
        ({}, {"mask": np.ones((2, 4, 1), bool)}, "mask has more than one value"),
        ({}, {"sequences": np.ones((2, 4, 3), "int32")}, "no sequences of numbers"),
        ({}, {"sequences": np.ones((2, 0, 3), "float32")}, "no sequences of numbers"),
    ],
)
def test_calls_with_and_without_a_kernel(options: dict[str, Any], call: dict[str, Any], why: str) -> None:
    given = {"sequences": np.ones((2, 4, 3), "float32"), "mask": None, "training": False, **call}
    found = choice.obstacle_of_call(layers.LSTM(3, **options), **given)
    assert why in found
    assert bool(why) == bool(found)


def test_outputs_that_cudnn_would_return_in_another_order_are_left_to_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    call = np.ones((2, 4, 3), "float32"), None, False
    backwards = {"go_backwards": True, "return_sequences": True}
    assert choice.obstacle_of_call(layers.LSTM(3, **backwards), *call) == ""
    monkeypatch.setattr(choice.backend, "cudnn_ok", lambda *_, **__: True)
    assert "another order" in choice.obstacle_of_call(layers.LSTM(3, **backwards), *call)
    assert choice.obstacle_of_call(layers.LSTM(3, **backwards), *call, is_half=True) == ""
    assert choice.obstacle_of_call(layers.LSTM(3, go_backwards=True), *call) == ""
    assert choice.obstacle_of_call(layers.GRU(3, **backwards), *call) == ""


def test_there_are_kernels_on_recent_gpus_alone(on_gpu: Callable[[str], None]) -> None:
    model = keras.Sequential([keras.Input((4, 3)), layers.Bidirectional(layers.LSTM(3)), layers.Dense(1)])
    assert not choice.has_kernels_for(model)  # On a CPU.
    for capability, is_fit in (("7.5", False), ("8.0", True), ("9.0", True), ("12.0", True), ("gfx942", False)):
        on_gpu(capability)
        assert choice.has_kernels_for(model) is is_fit
    on_gpu("9.0")
    assert not choice.has_kernels_for(keras.Sequential([keras.Input((3,)), layers.Dense(1)]))


def test_what_a_kernel_holds_fits_into_the_shared_memory_of_the_gpu(on_gpu: Callable[[str], None]) -> None:
    def forms(*cells: Any) -> list[tuple[bool, bool] | None]:
        found = map(choice.form_for, cells)
        return [None if form is None else (form.is_split, form.reloads) for form in found]

    narrow, wide = layers.LSTMCell(64), layers.LSTMCell(100)
    half, other = layers.LSTMCell(128, dtype="mixed_bfloat16"), layers.GRUCell(64)
    on_gpu("9.0")
    assert forms(narrow, wide, half, other) == [(False, False), (True, True), (False, False), (True, False)]
    on_gpu("8.9")
    assert forms(narrow, wide, half, other) == [(False, False), None, (False, True), (True, False)]


def test_few_sequences_are_divided_among_the_multiprocessors(
    on_gpu: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpu("9.0")
    monkeypatch.setattr(triton_gpu, "cores", lambda: 100)

    def rows(cell: Any, sequences: int) -> int:
        form = choice.form_for(cell, sequences)
        assert form is not None
        return form.rows

    assert [rows(layers.LSTMCell(64), sequences) for sequences in (1, 200, 201, 800, 801)] == [1, 1, 4, 4, 16]
    assert [rows(layers.GRUCell(50), 10), rows(layers.SimpleRNNCell(128), 10)] == [1, 1]
    # Their recurrent kernels do not fit into registers.
    assert [rows(layers.GRUCell(65), 10), rows(layers.LSTMCell(128, dtype="mixed_bfloat16"), 10)] == [16, 16]
