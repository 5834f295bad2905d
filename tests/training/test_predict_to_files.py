"""`flatout.predict(..., out=...)`: the file holds what `model.predict` returns, whatever the input and the engine."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import layers

import flatout
from flatout.data.output import output_files as output

ROWS, BATCH = 203, 16
X = np.random.default_rng(1).standard_normal((ROWS, 6)).astype("float32")
pytestmark = [pytest.mark.usefixtures("forced"), pytest.mark.turns]


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(3)])


def to_file(model: keras.Model, x: Any, out: Any, **arguments: Any) -> Any:
    return flatout.predict(model, x, out=out, **{"batch_size": BATCH, "verbose": 0, **arguments})


def stock(model: keras.Model, x: Any, **arguments: Any) -> Any:
    return flatout.predict(model, x, engine="stock", **{"batch_size": BATCH, "verbose": 0, **arguments})


def assert_same(got: Any, expected: Any) -> None:
    keras.tree.assert_same_structure(got, expected)
    for one, other in zip(keras.tree.flatten(got), keras.tree.flatten(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def saved(folder: Path, array: np.ndarray, shards: int = 1) -> str:
    for number, part in enumerate(np.array_split(array, shards)):
        np.save(folder / f"x-{number}.npy", part)
    return str(folder / ("x-*.npy" if shards > 1 else "x-0.npy"))


@pytest.mark.parametrize("engine", ["auto", "stock"])
@pytest.mark.parametrize("kind", ["array", "float64", "memory map", "slice of a map", "file", "shards", "tensor"])
def test_the_file_holds_what_predict_returns(model: keras.Model, tmp_path: Path, kind: str, engine: str) -> None:
    x: Any = X
    if kind == "float64":
        x = X.astype("float64")
    elif kind == "tensor":
        x = keras.ops.convert_to_tensor(X)
    elif kind != "array":
        x = saved(tmp_path, X, 3 if kind == "shards" else 1)
    expected = stock(model, X)
    if "map" in kind:
        x = np.load(x, mmap_mode="r")
        if kind == "slice of a map":
            x, expected = x[5:150], stock(model, X[5:150])
    out = tmp_path / "out.npy"
    got = to_file(model, x, out, engine=engine)
    assert isinstance(got, np.memmap)
    assert not got.flags.writeable
    assert_same(np.load(out), expected)
    report = flatout.explain()[-1]
    assert (report.method, report.accelerated, report.steps) == (
        "predict",
        engine == "auto",
        -(-len(expected) // BATCH),
    )
    assert report.data == ("streamed" if engine == "auto" else "host")
    assert not list(tmp_path.glob("*partial*"))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 80), batch_size=st.integers(1, 90), engine=st.sampled_from(["auto", "stock"]), data=st.data()
)
def test_any_number_of_rows_in_batches_of_any_size(
    model: keras.Model, tmp_path: Path, rows: int, batch_size: int, engine: str, data: st.DataObject
) -> None:
    steps = data.draw(st.one_of(st.none(), st.integers(1, -(-rows // batch_size))))
    np.save(tmp_path / "x.npy", X[:rows])
    arguments = {"batch_size": batch_size, "steps": steps}
    got = to_file(model, tmp_path / "x.npy", tmp_path / "out.npy", engine=engine, **arguments)
    assert_same(np.asarray(got), stock(model, X[:rows], **arguments))


@pytest.fixture(scope="module")
def two_by_two() -> keras.Model:
    """Two named inputs and two named outputs of different shapes and dtypes."""
    keras.utils.set_random_seed(4)
    a, b = keras.Input((6,), name="a"), keras.Input((2,), name="b")
    joined = layers.Concatenate()([layers.Dense(4)(a), b])
    return keras.Model({"a": a, "b": b}, {"scores": layers.Dense(2)(joined), "map": layers.Reshape((2, 3))(joined)})


@pytest.mark.parametrize("engine", ["auto", "stock"])
def test_dicts_of_paths_and_several_outputs(two_by_two: keras.Model, tmp_path: Path, engine: str) -> None:
    arrays = {"a": X, "b": X[:, :2]}
    paths = {name: tmp_path / f"{name}.npy" for name in arrays}
    for name, array in arrays.items():
        np.save(paths[name], array)
    expected = stock(two_by_two, arrays)
    got = to_file(two_by_two, paths, tmp_path / "predictions", engine=engine)
    assert_same(got, expected)
    assert sorted(path.name for path in (tmp_path / "predictions").iterdir()) == ["map.npy", "scores.npy"]
    named = {"scores": tmp_path / "s.npy", "map": str(tmp_path / "m.npy")}
    assert_same(to_file(two_by_two, paths, named, engine=engine), expected)
    assert_same(np.load(tmp_path / "m.npy"), expected["map"])


@pytest.mark.slow
def test_lists_of_outputs(tmp_path: Path) -> None:
    inputs = keras.Input((6,))
    model = keras.Model(inputs, [layers.Dense(2)(inputs), layers.Dense(3)(inputs)])
    got = to_file(model, X, tmp_path / "both")
    assert_same(got, stock(model, X))
    assert_same(np.load(tmp_path / "both" / "1.npy"), got[1])
    assert_same(to_file(model, X, [tmp_path / "0.npy", tmp_path / "1.npy"]), stock(model, X))


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return -(-ROWS // BATCH)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rows = X[index * BATCH : (index + 1) * BATCH]
        return rows, np.zeros(len(rows))


def batches() -> Iterator[tuple[np.ndarray]]:
    for start in range(0, ROWS, BATCH):
        yield (X[start : start + BATCH],)


@pytest.mark.parametrize("engine", ["auto", "stock"])
@pytest.mark.parametrize("make", [batches, Batches])
def test_sources_that_are_read_batch_by_batch(model: keras.Model, tmp_path: Path, make: Any, engine: str) -> None:
    expected = stock(model, X)
    with warnings.catch_warnings():
        # Keras' own, where a generator ends.
        warnings.filterwarnings("ignore", "Your input ran out of data")
        assert_same(np.asarray(to_file(model, make(), tmp_path / "o.npy", engine=engine, batch_size=None)), expected)


@pytest.mark.backend("tensorflow")
def test_a_data_set_of_unknown_length(model: keras.Model, tmp_path: Path) -> None:
    import tensorflow as tf

    source = tf.data.Dataset.from_tensor_slices(X).filter(lambda row: row[0] > 0).batch(BATCH)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        got = to_file(model, source, tmp_path / "o.npy", batch_size=None)
    assert_same(np.asarray(got), stock(model, X[X[:, 0] > 0]))


class LooksAtValues(keras.Model):
    """Its Python looks at values, which neither jax nor a graph of tensorflow allows; torch runs it as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, x: Any) -> Any:
        outputs = self.dense(x)
        return outputs * 2 if float(keras.ops.sum(outputs)) > 0 else outputs


def test_a_step_that_cannot_be_compiled_runs_with_keras(tmp_path: Path) -> None:
    model = LooksAtValues()
    model.compile(run_eagerly=True)
    model(X[:1])
    assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy")), stock(model, X))
    report = flatout.explain()[-2]
    assert (report.engine, report.accelerated, report.steps) == ("stock", False, 13)
    assert [why.code for why in report.reasons] == ["run_eagerly"]


class GivesLabelsToo(keras.Model):
    """A step of the user's that looks at the whole batch."""

    def call(self, x: Any) -> Any:
        return x * 2

    def predict_step(self, *arguments: Any) -> Any:
        inputs, labels = arguments[-1]
        outputs = self(inputs), labels
        return (outputs, arguments[0][1]) if keras.config.backend() == "jax" else outputs


@pytest.mark.parametrize("engine", ["auto", "stock"])
def test_a_step_of_the_users_gets_the_whole_batch(tmp_path: Path, engine: str) -> None:
    model = GivesLabelsToo()
    model(X[:1])
    paths = (tmp_path / "x.npy", tmp_path / "y.npy")
    got = to_file(model, Batches(), paths, engine=engine, batch_size=None)
    assert_same(got, stock(model, Batches(), batch_size=None))


def test_a_model_without_weights_is_built_as_keras_builds_it(tmp_path: Path) -> None:
    keras.utils.set_random_seed(5)
    expected = stock(keras.Sequential([layers.Dense(2)]), X)
    keras.utils.set_random_seed(5)
    assert_same(np.asarray(to_file(keras.Sequential([layers.Dense(2)]), X, tmp_path / "o.npy")), expected)


@pytest.mark.backend("jax", "tensorflow")
def test_groups_of_steps(tmp_path: Path) -> None:
    keras.utils.set_random_seed(5)
    model = keras.Sequential([layers.Input((6,)), layers.Dense(2)])
    model.compile(steps_per_execution=3)
    for engine in ("auto", "stock"):
        assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy", engine=engine)), stock(model, X))


@pytest.mark.slow
@pytest.mark.backend("jax", "torch")
def test_bfloat16_is_stored_as_float32(tmp_path: Path) -> None:
    model = keras.Sequential([layers.Input((6,)), layers.Dense(2, dtype="mixed_bfloat16")])
    got = to_file(model, X, tmp_path / "o.npy")
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.asarray(stock(model, X), "float32"), rtol=1e-2, atol=1e-2)


class Diary(keras.callbacks.Callback):
    def __init__(self, stop_at: int | None = None, raise_at: int | None = None):
        super().__init__()
        self.pages: list[Any] = []
        self.stop_at, self.raise_at = stop_at, raise_at

    def on_predict_begin(self, logs: Any = None) -> None:
        self.pages.append("begin")

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.raise_at:
            raise KeyboardInterrupt
        self.pages.append((batch, {name: np.shape(value) for name, value in logs.items()}))
        self.model.stop_predicting = batch == self.stop_at

    def on_predict_end(self, logs: Any = None) -> None:
        self.pages.append("end")


@pytest.mark.parametrize("engine", ["auto", "stock"])
@pytest.mark.parametrize("stop_at", [None, 4])
def test_callbacks_hear_what_keras_tells_them(
    model: keras.Model, tmp_path: Path, stop_at: int | None, engine: str
) -> None:
    theirs, ours = Diary(stop_at), Diary(stop_at)
    expected = stock(model, X, callbacks=[theirs])
    got = to_file(model, X, tmp_path / "o.npy", callbacks=[ours], engine=engine)
    assert_same(np.asarray(got), expected)
    assert ours.pages == theirs.pages


def test_the_progress_bar_is_keras_own(model: keras.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to_file(model, X, tmp_path / "o.npy", verbose=1)
    assert "13/13" in capsys.readouterr().out


def interrupted(model: keras.Model, x: Any, out: Any, at: int = 7, **arguments: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        to_file(model, x, out, callbacks=[Diary(raise_at=at)], **arguments)


@pytest.mark.parametrize("engine", ["auto", "stock"])
def test_after_ctrl_c_the_rest_is_done_and_the_bytes_are_the_same(
    model: keras.Model, tmp_path: Path, engine: str
) -> None:
    to_file(model, X, tmp_path / "whole.npy", engine=engine)
    interrupted(model, X, tmp_path / "o.npy", engine=engine)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.npy.partial", "o.npy.partial.json", "whole.npy"]
    assert json.loads((tmp_path / "o.npy.partial.json").read_text())["steps"] == 7
    diary = Diary()
    to_file(model, X, tmp_path / "o.npy", engine=engine, callbacks=[diary])
    assert flatout.explain()[-1].steps == 6
    assert [page[0] for page in diary.pages[1:-1]] == list(range(7, 13))
    assert (tmp_path / "o.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.npy", "whole.npy"]


def test_several_outputs_go_on_together(two_by_two: keras.Model, tmp_path: Path) -> None:
    arrays = {"a": X, "b": X[:, :2]}
    interrupted(two_by_two, arrays, tmp_path / "both")
    got = to_file(two_by_two, arrays, tmp_path / "both")
    assert flatout.explain()[-1].steps == 6
    assert_same(got, stock(two_by_two, arrays))
    assert not list((tmp_path / "both").glob("*partial*"))


def test_what_lies_behind_the_last_safe_row_is_overwritten(model: keras.Model, tmp_path: Path) -> None:
    interrupted(model, X, tmp_path / "o.npy")
    with (tmp_path / "o.npy.partial").open("ab") as file:
        file.write(b"half a row")
    assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy")), stock(model, X))
    assert flatout.explain()[-2].steps == 6


def _weights(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    model.set_weights([weight + 1 for weight in model.get_weights()])


def _input_file(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    np.save(tmp_path / "x-0.npy", X + 1)


def _array(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    arguments["x"] = np.load(tmp_path / "x-0.npy")


def _batch_size(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    arguments["batch_size"] = 8


def _engine(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    arguments["engine"] = "stock"


def _cut_short(model: keras.Model, tmp_path: Path, arguments: dict[str, Any]) -> None:
    os.truncate(tmp_path / "o.npy.partial", 200)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_weights, "weights"),
        (_input_file, "input"),
        (_array, "input"),
        (_batch_size, "batch size"),
        (_engine, "engine"),
        (_cut_short, "is gone or cut short"),
    ],
)
def test_with_anything_else_it_starts_anew_and_says_why(
    model: keras.Model, tmp_path: Path, change: Any, message: str
) -> None:
    model = keras.models.clone_model(model)
    arguments = {"x": saved(tmp_path, X), "out": tmp_path / "o.npy"}
    interrupted(model, **arguments)
    change(model, tmp_path, arguments)
    with pytest.warns(UserWarning, match=f"is started anew: .*{message}") as caught:
        got = to_file(model, **arguments)
    assert [warning.filename for warning in caught if "started anew" in str(warning.message)] == [__file__]
    assert flatout.explain()[-1].steps == -(-ROWS // arguments.get("batch_size", BATCH))
    assert_same(np.asarray(got), stock(model, np.load(tmp_path / "x-0.npy")))


def test_a_generator_starts_anew_and_says_so(model: keras.Model, tmp_path: Path) -> None:
    interrupted(model, batches(), tmp_path / "o.npy", batch_size=None)
    with pytest.warns(UserWarning, match="x is a PyDataset, which is only read from its beginning"):
        to_file(model, Batches(), tmp_path / "o.npy", batch_size=None)


@pytest.mark.slow
def test_a_model_that_draws_random_numbers_starts_anew(tmp_path: Path) -> None:
    class Noise(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.generator = keras.random.SeedGenerator(1)

        def call(self, x: Any) -> Any:
            return x + keras.random.normal(keras.ops.shape(x), seed=self.generator)

    def make() -> keras.Model:
        return keras.Sequential([layers.Input((6,)), Noise()])

    expected = stock(make(), X)
    interrupted(make(), X, tmp_path / "o.npy")
    with pytest.warns(UserWarning, match="each step of this model changes its variables"):
        got = to_file(make(), X, tmp_path / "o.npy")
    assert_same(np.asarray(got), expected)


def test_nothing_left_to_do_finishes_the_file(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(output, "SECONDS_BETWEEN_SYNCS", 0.0)
        patched.setattr(output.OutputFiles, "_finish", killed)
        with pytest.raises(KeyboardInterrupt):
            to_file(model, X, tmp_path / "o.npy")
    assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy")), stock(model, X))
    assert flatout.explain()[-2].steps == 0


def test_a_finished_file_is_overwritten(model: keras.Model, tmp_path: Path) -> None:
    before = to_file(model, X + 1, tmp_path / "o.npy")
    kept = np.array(before)
    assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy")), stock(model, X))
    # Who still has the old one open keeps it.
    np.testing.assert_array_equal(before, kept)


def test_two_predictions_do_not_write_to_one_file(model: keras.Model, tmp_path: Path) -> None:
    class Second(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                to_file(keras.models.clone_model(self.model), X, tmp_path / "o.npy")

    with pytest.raises(BlockingIOError, match="Another prediction is being written to"):
        to_file(model, X, tmp_path / "o.npy", callbacks=[Second()])


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        ("o.csv", ValueError, "does not end in .npy"),
        ("folder", ValueError, "the model has a single output"),
        ("missing/o.npy", FileNotFoundError, "there is no folder"),
        ("x-0.npy", ValueError, "which is read as `x`"),
        ("folder.npy", ValueError, "which is a folder"),
        (["o.npy", "o.npy"], ValueError, "must name different files"),
        (["o.npy", "p.npy"], ValueError, "the outputs of the model are"),
        (7, ValueError, "Invalid value for argument `out`"),
    ],
)
def test_what_is_wrong_with_out_is_said_before_the_first_step(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: Any, error: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npy").mkdir()
    diary = Diary()
    with pytest.raises(error, match=message):
        to_file(model, saved(tmp_path, X), out, callbacks=[diary])
    assert diary.pages == []


def test_a_folder_that_cannot_be_written(model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tempfile.TemporaryFile", lambda dir: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(PermissionError, match=r"Nothing can be written to .*, where `out` shall go"):
        to_file(model, X, tmp_path / "o.npy")


def test_a_disk_that_is_too_small(model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10_000, 9_000, 1_000))
    diary = Diary()
    with pytest.raises(OSError, match=r"The predictions take 2\.6 kB, and the disk of .* has 1\.0 kB left"):
        to_file(model, X, tmp_path / "o.npy", callbacks=[diary])
    assert diary.pages == []


def test_a_disk_that_runs_full_keeps_what_was_written(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pwrite, []

    def write(file: int, data: Any, position: int) -> int:
        calls.append(position)
        if len(calls) > 4:
            raise OSError(28, "No space left on device")
        return real(file, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", write)
        with pytest.raises(OSError, match=r"is full\. Free some space and predict again"):
            to_file(model, X, tmp_path / "o.npy", callbacks=[Diary()])
    assert_same(np.asarray(to_file(model, X, tmp_path / "o.npy")), stock(model, X))
    assert flatout.explain()[-2].steps == 9


def test_a_model_with_a_predict_of_its_own_is_refused(tmp_path: Path) -> None:
    class Own(keras.Sequential):
        def predict(self, x: Any, **_: Any) -> Any:
            return super().predict(x) + 1

    with pytest.raises(ValueError, match="which has a `predict` of its own"):
        to_file(Own([layers.Input((6,)), layers.Dense(1)]), X, tmp_path / "o.npy")


def test_strict_mode_refuses_stock_keras(tmp_path: Path) -> None:
    # Nothing is small to a model whose step is compiled.
    model = keras.Sequential([layers.Input((6,)), layers.Dense(3)])
    with flatout.options(strict=True, force=False), pytest.raises(flatout.FallbackRefused, match="small"):
        to_file(model, X, tmp_path / "o.npy")
