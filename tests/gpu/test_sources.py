"""Data on a GPU: arrays that are there already, streams, files. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import flatout
from flatout.data.stream import chunks

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(keras.config.backend() == "tensorflow", reason="jax and torch"),
]
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1003, 12)).astype("float32")
Y = RANDOM.normal(size=(1003, 1)).astype("float32")


def losses(x: Any, y: Any = None, **arguments: Any) -> list[float]:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    with flatout.options(force=True, strict=True):
        return flatout.fit(model, x, y, epochs=2, verbose=0, **arguments).history["loss"]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return losses(X, Y, batch_size=32)


def test_tensors_of_torch_stay_on_the_gpu(expected: list[float]) -> None:
    x, y = torch.from_numpy(X).cuda(), torch.from_numpy(Y).cuda()
    assert losses(x, y, batch_size=32) == pytest.approx(expected, rel=1e-5)


def test_arrays_of_cupy_stay_on_the_gpu(expected: list[float]) -> None:
    cupy = pytest.importorskip("cupy")
    assert losses(cupy.asarray(X), cupy.asarray(Y), batch_size=32) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("chunk_bytes", [1, 10_000, 2**20])
def test_streamed_rows(expected: list[float], monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    assert losses(X, Y, batch_size=32, data="streamed") == pytest.approx(expected, rel=1e-5)
    assert flatout.explain()[-1].data == "streamed"


def test_files_go_straight_into_device_memory(expected: list[float], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    assert losses(tmp_path / "x.npy", tmp_path / "y.npy", batch_size=32) == pytest.approx(expected, rel=1e-5)
    report = flatout.explain()[-1]
    assert report.data == "direct"
    assert len(report.loads) == 2


def test_generators() -> None:
    def batches(is_reusing: bool) -> Iterator[Any]:
        x, y = np.empty((32, 12), "float32"), np.empty((32, 1), "float32")
        # Keras looks at two batches beforehand, so that a first one whose arrays are used again is then the second.
        for number in range(1000) if is_reusing else (1, *range(1, 1000)):
            rows = (np.arange(32) + number * 32) % len(X)
            if is_reusing:
                x[:], y[:] = X[rows], Y[rows]
                yield x, y
            else:
                yield X[rows], Y[rows]

    expected = losses(batches(False), steps_per_epoch=50)
    assert losses(batches(True), steps_per_epoch=50) == pytest.approx(expected, rel=1e-5)
