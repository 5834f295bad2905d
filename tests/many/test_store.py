"""Finished models on disk: what is there is not trained again, what is damaged is, and another grid is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout

X = np.random.default_rng(5).normal(size=(32, 3)).astype("float32")
BUILT: list[float] = []


def build(rate: float) -> Any:
    BUILT.append(rate)
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model


def train(folder: Path, rates: list[float], **arguments: Any) -> flatout.Many:
    BUILT.clear()
    points = flatout.grid(rate=rates)
    return flatout.fit_many(build, points, X, X[:, 0], epochs=2, checkpoint=folder, verbose=0, **arguments)


def values(model: Any) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(one.value) for one in (*model.variables, *model.optimizer.variables)]


def test_finished_models_are_not_trained_again_and_a_grid_may_grow(tmp_path: Path) -> None:
    first = train(tmp_path, [0.1, 0.01])
    again = train(tmp_path, [0.1, 0.2, 0.01])
    # One is built to look at the data with, and the new one.
    assert sorted(BUILT) == [0.1, 0.2]
    assert again.ways["from an earlier run"] == 2
    assert first.frame.equals(again.frame.iloc[[0, 2]].reset_index(drop=True))
    for one, other in zip(first.models, [again.models[0], again.models[2]], strict=True):
        assert all(map(np.array_equal, values(one), values(other)))
        assert int(other.optimizer.iterations) == 2


@pytest.mark.backend("jax")
def test_a_damaged_model_is_trained_again(tmp_path: Path) -> None:
    first = train(tmp_path, [0.1, 0.01])
    damaged = sorted(tmp_path.glob("*.npz"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-7])
    again = train(tmp_path, [0.1, 0.01])
    assert again.ways["from an earlier run"] == 1
    assert first.histories == again.histories


@pytest.mark.backend("jax")
@pytest.mark.parametrize("change", [{"batch_size": 8}, {"validation_data": (X, X[:, 0])}])
def test_models_that_were_trained_otherwise_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    train(tmp_path, [0.1])
    with pytest.raises(flatout.InvalidOption, match=r"batch_size|the data"):
        train(tmp_path, [0.1], **change)


SCRIPT = """
import sys, time
import keras, numpy as np, flatout

class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(float(sys.argv[2]))

def build(rate):
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model

x = np.random.default_rng(5).normal(size=(32, 3)).astype("float32")
points = flatout.grid(rate=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
many = flatout.fit_many(
    build, points, x, x[:, 0], epochs=2, callbacks=[Slow()], checkpoint=sys.argv[1], seed=1, verbose=0
)
print(many.ways.get("from an earlier run", 0), many.frame.drop(columns="seconds").to_json())
"""


@pytest.mark.backend("jax")
def test_a_grid_that_was_killed_ends_with_the_same_frame(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def command(folder: str, seconds: float) -> list[str]:
        return [sys.executable, str(script), str(tmp_path / folder), str(seconds)]

    whole = subprocess.run(command("whole", 0), capture_output=True, text=True, check=True).stdout.split(maxsplit=1)
    killed = subprocess.Popen(command("killed", 0.3), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "killed").glob("*.npz"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    again = subprocess.run(command("killed", 0), capture_output=True, text=True, check=True).stdout.split(maxsplit=1)
    assert 1 <= int(again[0]) < 6
    assert again[1] == whole[1]
