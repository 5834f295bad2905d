"""Finished models on disk: what is there is not trained again, what is damaged is, and another grid is refused."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas
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


@pytest.mark.backend("jax")
def test_a_model_that_another_ones_error_has_ended_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)

    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            time.sleep(0.2)

    def fails(rate: float) -> Any:
        if rate == 0.3:
            raise RuntimeError("no model today")
        return build(rate)

    points = flatout.grid(rate=[0.1, 0.2, 0.3])
    settings = {"epochs": 10, "checkpoint": tmp_path, "seed": 1, "verbose": 0}
    with flatout.options(force=True):
        with pytest.raises(RuntimeError, match="no model today"):
            flatout.fit_many(fails, points, X, X[:, 0], callbacks=[Slow()], **settings)
        many = flatout.fit_many(build, points, X, X[:, 0], callbacks=lambda: [Slow()][:0], **settings)
    assert many.frame["epochs"].tolist() == [10, 10, 10]


@pytest.mark.backend("jax")
def test_other_rows_held_out_and_functions_of_one_name_are_no_model_of_before(tmp_path: Path) -> None:
    rows = np.arange(32)
    first = train(tmp_path, [0.1], folds=[(rows[:16], rows[16:24])], seed=1)
    other = train(tmp_path, [0.1], folds=[(rows[:16], rows[24:])], seed=1)
    assert first.histories[0]["val_loss"] != other.histories[0]["val_loss"]
    points = [{"rate": 0.1, "scaled": lambda rate: rate}, {"rate": 0.1, "scaled": lambda rate: 2 * rate}]

    def scaled_build(rate: float, scaled: Any) -> Any:
        return build(scaled(rate))

    with pytest.raises(flatout.InvalidOption, match="same names"):
        flatout.fit_many(scaled_build, points, X, X[:, 0], checkpoint=tmp_path / "other", verbose=0)


@pytest.mark.backend("jax")
def test_another_precision_or_dtype_policy_is_refused(tmp_path: Path) -> None:
    train(tmp_path, [0.1])
    with pytest.raises(flatout.InvalidOption, match="precision"):
        train(tmp_path, [0.1], precision="fast")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with pytest.raises(flatout.InvalidOption, match="the dtype policy"):
            train(tmp_path, [0.1])
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.backend("jax")
def test_a_call_that_was_refused_leaves_nothing_to_be_compared_with(tmp_path: Path) -> None:
    with pytest.raises(flatout.InvalidOption):
        train(tmp_path, [0.1], folds=99)
    with pytest.raises(flatout.InvalidOption, match="whole number"):
        train(tmp_path, [0.1], seed="x")
    assert len(train(tmp_path, [0.1], batch_size=8, seed=np.int64(3))) == 1


@pytest.mark.backend("jax")
def test_metrics_of_several_values_and_words_of_callbacks_are_kept(tmp_path: Path) -> None:
    class Telling(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["phase"] = "early" if epoch == 0 else "late"
            logs["rate"] = 7.0

    def classes(rate: float) -> Any:
        model = keras.Sequential([layers.Input((3,)), layers.Dense(3, activation="softmax")])
        model.compile(keras.optimizers.Adam(rate), "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
        return model

    y = np.eye(3, dtype="float32")[np.arange(32) % 3]
    settings = {"epochs": 2, "checkpoint": tmp_path, "seed": 1, "verbose": 0}
    frames = []
    for _ in range(2):
        many = flatout.fit_many(classes, flatout.grid(rate=[0.1, 0.2]), X, y, callbacks=lambda: [Telling()], **settings)
        frames.append(many.frame)
        assert np.shape(many.histories[0]["f1_score"][-1]) == (3,)
    assert many.ways == {"from an earlier run": 2}
    assert frames[0].rate.tolist() == frames[1].rate.tolist() == [0.1, 0.2], "a point is not overwritten"
    assert frames[0].last_rate.tolist() == [7.0, 7.0]
    assert frames[1].phase.tolist() == ["late", "late"]
    assert many.best("loss") in (0, 1)
    with pytest.raises(flatout.InvalidOption, match="number"):
        many.best("f1_score")


@pytest.mark.backend("jax")
def test_a_model_of_an_earlier_run_knows_the_words_of_its_columns(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    words = pandas.DataFrame({"c": pandas.Categorical(["b", "c", "a", "b"] * 8)})

    def embedding() -> Any:
        c = keras.Input((1,), name="c", dtype="int32")
        model = keras.Model({"c": c}, layers.Dense(1)(layers.Flatten()(layers.Embedding(4, 2)(c))))
        model.compile("adam", "mse")
        return model

    settings = {"epochs": 2, "checkpoint": tmp_path, "seed": 1, "verbose": 0}
    asked = pandas.DataFrame({"c": pandas.Categorical(["b", "c"])})
    predictions = [
        flatout.predict(flatout.fit_many(embedding, [{}], words, X[:, 0], **settings).models[0], asked, verbose=0)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*predictions)


class Kind(enum.Enum):
    BUILDS, TRAINS = functools.partial(build), functools.partial(train)


@dataclasses.dataclass
class Facts:
    function: Any


def _point_with(value: Any, folder: Path) -> flatout.Many:
    def build(given: Any) -> Any:
        model = keras.Sequential([layers.Input((3,)), layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    points = [{"given": one} for one in value]
    return flatout.fit_many(build, points, X, X[:, 0], epochs=1, checkpoint=folder, verbose=0)


@pytest.mark.backend("jax")
def test_points_are_known_by_all_that_is_in_them(tmp_path: Path) -> None:
    # NumPy prints the ends of long arrays alone.
    long = np.zeros(2000), np.arange(2000) % 1999 * (np.arange(2000) > 5)
    near = np.array(0.123456789012), np.array(0.123456789)
    partials = functools.partial(build, 1), functools.partial(build, 2)
    frames = pandas.DataFrame({"a": [1]}), pandas.DataFrame({"b": [1]})
    pairs = [long, ({"a": [long[0]]}, {"a": [long[1]]}), (build, train), ((1,), [1]), near, partials, frames]
    for number, values in enumerate([*pairs, (Kind.BUILDS, Kind.TRAINS), (Facts(build), Facts(train))]):
        folder = tmp_path / str(number)
        _point_with(values, folder)
        assert len(list(folder.glob("*.npz"))) == 2
        assert _point_with(values, folder).ways == {"from an earlier run": 2}


@pytest.mark.backend("jax")
def test_functions_of_one_name_are_told_apart_wherever_they_are(tmp_path: Path) -> None:
    functions = [lambda value, by=by: by * value for by in (1, 2)]
    with pytest.raises(flatout.InvalidOption, match="by their names"):
        _point_with([{"a": [functions[0]]}, {"a": [functions[1]]}], tmp_path)


class Pair(NamedTuple):
    sizes: tuple[int, ...]
    name: str


@pytest.mark.backend("jax")
def test_a_point_may_hold_what_is_no_array(tmp_path: Path) -> None:
    _point_with([Pair((3, 2), "a")], tmp_path)
    assert _point_with([Pair((3, 2), "a")], tmp_path).ways == {"from an earlier run": 1}


@pytest.mark.backend("jax")
def test_points_are_known_in_another_process(tmp_path: Path) -> None:
    _point_with([keras.regularizers.L2(0.1)], tmp_path)
    assert _point_with([keras.regularizers.L2(0.1)], tmp_path).ways == {"from an earlier run": 1}
    assert "from an earlier run" not in _point_with([keras.regularizers.L2(0.2)], tmp_path).ways
    with pytest.raises(flatout.InvalidOption, match="of numbers and words"):
        _point_with([[object()]], tmp_path)


@pytest.mark.backend("jax")
def test_words_do_not_depend_on_the_process() -> None:
    code = "from flatout.many.point_words import in_words; print(in_words({'a': {'b', 'c', 'd', 'e'}}, []))"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }
    assert said == {b"{'a': {'b', 'c', 'd', 'e'}}\n"}


@pytest.mark.backend("jax")
@pytest.mark.parametrize("folder", [5, "file"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, folder: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(flatout.InvalidOption, match="`checkpoint` is a folder"):
        train(tmp_path / folder if isinstance(folder, str) else folder, [0.1])


@pytest.mark.backend("jax")
def test_a_model_with_scaled_losses_is_restored(tmp_path: Path) -> None:
    def build(units: int) -> Any:
        model = keras.Sequential([layers.Input((3,)), layers.Dense(wide.get(units, units)), layers.Dense(1)])
        model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)), "mse")
        return model

    wide: dict[int, int] = {}
    given: dict[str, Any] = {"epochs": 1, "checkpoint": tmp_path, "verbose": 0}
    first = flatout.fit_many(build, [{"units": 2}], X, X[:, 0], **given)
    again = flatout.fit_many(build, [{"units": 2}], X, X[:, 0], **given)
    assert again.ways == {"from an earlier run": 1}
    assert all(map(np.array_equal, values(first.models[0]), values(again.models[0])))
    wide[2] = 5
    with pytest.raises(flatout.InvalidOption, match="has other variables"):
        _ = flatout.fit_many(build, [{"units": 2}], X, X[:, 0], **given).models
