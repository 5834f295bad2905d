"""Rows that the GPU fetches from locked host memory are the right ones, and nothing stays locked."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import flatout
from flatout.data.device import copy_stream
from flatout.data.device.copy_stream import LockedRows, Wanted
from flatout.data.device.cuda_driver import cuda_driver
from flatout.data.stream import chunks
from flatout.data.stream.chunks import Chunk
from flatout.data.stream.sender import Sender
from flatout.engines.select import engine_for

pytestmark = [pytest.mark.gpu, pytest.mark.backend("jax", "torch")]
ROWS = 3001


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each fetch was asked for."""
    counts: list[int] = []
    land = Sender._land

    def counted(self: Any, leaf: Any, bus: Any) -> Any:
        if isinstance(leaf, Wanted):
            counts.append(leaf.shape[0])
        return land(self, leaf, bus)

    monkeypatch.setattr(Sender, "_land", counted)
    monkeypatch.setattr(copy_stream, "FEWEST_BYTES", 1)
    # As if every epoch waited for its rows.
    monkeypatch.setattr(chunks, "BUSY", -1.0)
    monkeypatch.setattr(chunks, "FEWEST_CHUNKS", 1)
    return counts


def array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((784,), "float32"),
        ((129,), "float32"),
        ((28, 28), "uint8"),
        ((257,), "int32"),
        ((513,), "float32"),
        ((4112,), "u1"),
        ((40_000,), "u1"),
        ((65_540,), "u1"),
    ],
)
@pytest.mark.parametrize("is_shuffled", [True, False])
@pytest.mark.parametrize("label", ["float32", "float64", "int64"])
def test_rows_are_those_that_were_asked_for(shape: tuple[int, ...], dtype: str, is_shuffled: bool, label: str) -> None:
    y = np.arange(ROWS).astype(label)
    x = array((ROWS, *shape), dtype)
    engine = engine_for(keras.config.backend())
    sender, rows = Sender(engine.send, True, engine.landing), LockedRows(x)
    assert sender.fetches
    try:
        for count in (1, 7, 2000):
            numbers: Any = np.random.default_rng(1).permutation(ROWS)[:count] if is_shuffled else slice(5, 5 + count)
            wanted = Wanted(rows, numbers, (2048, *shape), x.dtype)
            chunk = sender.one(Chunk((wanted, None, y[:count]), 2048, 1, count))
            got, nothing, labels = chunk.data
            assert nothing is None
            assert tuple(got.shape) == (2048, *shape)
            # By way of another array: jax would remember what it once gave to NumPy.
            taken = keras.ops.take(got, np.arange(count), axis=0)
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(taken), x[numbers])
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(labels), y[:count])
            sender.give_back(chunk)
    finally:
        sender.close()
        rows.close()
    # Pages that were still locked could not be locked again.
    cuda_driver().register(x.ctypes.data, x.nbytes)
    cuda_driver().unregister(x.ctypes.data)


def model() -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = [keras.Input((784,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize(
    "arguments", [{}, {"shuffle": False}, {"steps_per_epoch": 20}], ids=["shuffled", "as is", "steps"]
)
def test_a_training_is_the_same_as_with_resident_rows(fetched: list[int], arguments: dict[str, Any]) -> None:
    x, y = array((ROWS, 784), "float32") / 100, array((ROWS,), "int64") % 10
    runs = {}
    for data in ("resident", "streamed"):
        keras.utils.set_random_seed(5)
        trained = model()
        with flatout.options(force=True, strict=True):
            history = flatout.fit(
                trained, x, y, batch_size=32, epochs=3, verbose=0, data=data, engine=keras.config.backend(), **arguments
            )
        runs[data] = (history.history["loss"], trained.get_weights())
        assert bool(fetched) == (data == "streamed")
    np.testing.assert_allclose(runs["streamed"][0], runs["resident"][0], rtol=1e-6)
    for one, other in zip(runs["resident"][1], runs["streamed"][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    cuda_driver().register(x.ctypes.data, x.nbytes)
    cuda_driver().unregister(x.ctypes.data)


def test_an_error_in_a_callback_leaves_nothing_locked(fetched: list[int]) -> None:
    x, y = array((ROWS, 784), "float32"), array((ROWS,), "int64") % 10

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                raise KeyError("mine")

    with flatout.options(force=True), pytest.raises(KeyError, match="mine"):
        flatout.fit(model(), x, y, batch_size=32, epochs=3, verbose=0, data="streamed", callbacks=[Fails()])
    assert fetched
    cuda_driver().register(x.ctypes.data, x.nbytes)
    cuda_driver().unregister(x.ctypes.data)


def test_pages_that_somebody_else_has_locked_go_by_way_of_host_memory(fetched: list[int]) -> None:
    x, y = array((ROWS, 784), "float32"), array((ROWS,), "int64") % 10
    cuda_driver().register(x.ctypes.data, x.nbytes)
    try:
        with flatout.options(force=True, strict=True):
            flatout.fit(model(), x, y, batch_size=32, epochs=2, verbose=0, data="streamed")
    finally:
        cuda_driver().unregister(x.ctypes.data)
    assert not fetched
