"""What users pass as data: left alone, turned into arrays, or refused in one sentence before step 0."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest

import flatout
from flatout.data.files.npy_files import Shards
from flatout.data.sources.description import describe
from flatout.data.sources.resolve import resolve

ROWS = 24


def _model(width: int = 3, seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((width,)), keras.layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def _two_inputs() -> Any:
    a, b = keras.Input((1,), name="a"), keras.Input((2,), name="b")
    out = keras.layers.Dense(2, activation="softmax")(keras.layers.Concatenate()([a, b]))
    model = keras.Model({"a": a, "b": b}, out)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(ROWS, 3)).astype("float32"), random.integers(0, 2, ROWS)


@pytest.fixture
def frame(arrays: tuple[np.ndarray, np.ndarray]) -> pd.DataFrame:
    x, y = arrays
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "label": y, "weight": np.arange(ROWS) / ROWS})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _generator() -> Any:
    yield np.zeros((2, 3)), np.zeros(2)


class _Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return np.zeros((2, 3)), np.zeros(2)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((2, 3)),
        [np.zeros((2, 1)), np.zeros((2, 2))],
        {"a": np.zeros((2, 1)), "b": np.zeros((2, 2))},
        keras.ops.zeros((2, 3)),
        pd.DataFrame(np.zeros((2, 3))),
        pd.Series([1.0, 2.0]),
        np.array(["a", "b"], dtype=object),
        _generator(),
        _Batches(),
        None,
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_keras_takes_comes_back_as_it_is(x: Any) -> None:
    y, weight = np.zeros(2), [1.0, 2.0]
    assert [id(part) for part in resolve(_model(), x, y, weight)] == [id(x), id(y), id(weight)]


def test_importing_loads_no_library_of_tables_or_images() -> None:
    absent = ["keras", "pandas", "polars", "pyarrow", "PIL", "jax", "tensorflow", "torch"]
    code = f"import flatout.data.sources.resolve, sys; print([name for name in {absent} if name in sys.modules])"
    source = Path(flatout.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class TestNumpyFiles:
    @pytest.fixture(autouse=True)
    def _files(self, here: Path, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        x, y = arrays
        np.save("x.npy", x)
        np.save("y.npy", y)
        for number, rows in enumerate([slice(0, 10), slice(10, 11), slice(11, None)]):
            np.save(f"x-{number}.npy", x[rows])
        np.savez("one.npz", x=x)
        np.savez("both.npz", x=x, label=y)
        np.savez("named.npz", a=x[:, 0], b=x[:, 1:], label=y)

    @pytest.mark.parametrize(
        ("x", "y"),
        [
            ("x.npy", "y.npy"),
            (Path("x.npy"), Path("y.npy")),
            ("x-*.npy", "y.npy"),
            ("one.npz", "y.npy"),
            ("both.npz", "label"),
        ],
    )
    def test_paths_hold_the_rows(self, x: Any, y: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        got = resolve(_model(), x, y)
        np.testing.assert_array_equal(np.asarray(got[0]), arrays[0])
        np.testing.assert_array_equal(np.asarray(got[1]), arrays[1])
        assert describe(*got).rows == ROWS

    def test_files_are_mapped_not_read(self) -> None:
        assert isinstance(resolve(_model(), "x.npy")[0], np.memmap)
        shards = resolve(_model(), str(Path.cwd() / "x-?.npy"))[0]
        assert isinstance(shards, Shards)
        assert [path.name for path in shards.paths] == ["x-0.npy", "x-1.npy", "x-2.npy"]

    def test_paths_lie_anywhere_in_a_structure(self) -> None:
        x, y, weight = resolve(_model(), {"a": "x.npy", "b": [np.ones(3), "y.npy"]}, ("y.npy", None), ["y.npy"])
        assert x["a"].shape == (ROWS, 3)
        assert isinstance(x["b"][1], np.memmap)
        assert isinstance(y, tuple)
        assert y[1] is None
        assert isinstance(weight[0], np.memmap)

    def test_archives_fill_named_inputs(self, arrays: tuple[np.ndarray, np.ndarray]) -> None:
        x, y, _ = resolve(_two_inputs(), "named.npz", "label")
        assert list(x) == ["a", "b"]
        np.testing.assert_array_equal(x["b"], arrays[0][:, 1:])
        np.testing.assert_array_equal(y, arrays[1])

    @pytest.mark.parametrize("x", ["x.npy", "x-*.npy"])
    def test_files_train_as_arrays_do(self, x: str, arrays: tuple[np.ndarray, np.ndarray], forced: None) -> None:
        one, other = _model(), _model()
        flatout.fit(one, *arrays, epochs=2, batch_size=5, shuffle=False, verbose=0)
        flatout.fit(other, *resolve(other, x, "y.npy")[:2], epochs=2, batch_size=5, shuffle=False, verbose=0)
        for expected, got in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(got, expected)

    @pytest.mark.parametrize(
        ("x", "y", "kind", "words"),
        [
            ("absent.npy", None, FileNotFoundError, r"`x` is 'absent\.npy', which does not exist\. Expected a file"),
            ("z-*.npy", None, FileNotFoundError, r"`x` is 'z-\*\.npy', and no file matches it"),
            ("x.npy", "absent.npy", FileNotFoundError, r"`y` is 'absent\.npy', which does not exist"),
            ({"a": "absent.npy"}, None, FileNotFoundError, r"`x\['a'\]` is 'absent\.npy'"),
            ("x.npy", "label", ValueError, r"`y='label'` names a column, but `x` is of type memmap, which has none"),
            ("both.npz", "lable", ValueError, r"`y='lable'` is no column of `x`.*\['x', 'label'\]"),
            ("both.npz", None, ValueError, r"`x` is 'both\.npz', which leaves 2 arrays to choose from"),
            ("text.csv", None, ValueError, r"`x` is 'text\.csv', 1 file\(s\) ending in \['\.csv'\]\. Expected a file"),
            (["*.npy", "hollow/../y.npy", "q"], None, ValueError, "must hold rows of one shape"),
            ("*.np?", None, ValueError, r"`x` is '\*\.np\?', .* ending in \['\.npy', '\.npz'\]"),
            (".", None, ValueError, r"`x` is '\.', a folder of \.npy files\. Say which of them: '\*\.npy'"),
            ("hollow", None, ValueError, r"`x` is 'hollow', a folder without images or tables"),
            (["hollow"], None, ValueError, r"`x\[0\]` is 'hollow', a folder without"),
            (["a text " * 900], None, FileNotFoundError, r"`x\[0\]` is 'a text .{,200}\.\.\.', which does not exist"),
        ],
    )
    def test_what_is_wrong_is_said(self, x: Any, y: Any, kind: type[Exception], words: str) -> None:
        Path("text.csv").write_text("a,b\n1,2\n")
        Path("hollow").mkdir()
        with pytest.raises(kind, match=words):
            resolve(_model(), x, y)

    def test_a_truncated_file_is_said(self) -> None:
        with Path("x.npy").open("r+b") as file:
            file.truncate(200)
        with pytest.raises(ValueError, match=r"`x` is 'x\.npy' \(200 bytes\), which is cut short"):
            resolve(_model(), "x.npy")


def _forms(frame: pd.DataFrame, form: str) -> Any:
    """The same table in another form."""
    if form == "pandas":
        return frame
    if form == "nullable":
        return frame.convert_dtypes(dtype_backend="numpy_nullable")
    if form == "polars":
        return pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in frame})
    pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.Table.from_pandas(frame)
    if form == "arrow":
        return table
    if form == "feather":
        pyarrow.feather.write_feather(table, "table.feather")
        return "table.feather"
    Path("folder").mkdir()
    for number, rows in enumerate([table.slice(0, 7), table.slice(7)]):
        pyarrow.parquet.write_table(rows, f"folder/{number}.parquet")
    Path("folder/_SUCCESS.parquet").touch()
    return {"folder": "folder", "glob": "folder/*[0-9].parquet"}[form]


@pytest.mark.parametrize("form", ["pandas", "nullable", "polars", "arrow", "feather", "folder", "glob"])
class TestTables:
    def test_columns_are_taken_by_name(
        self, form: str, frame: pd.DataFrame, arrays: tuple[np.ndarray, np.ndarray], here: Path
    ) -> None:
        x, y, weight = resolve(_model(), _forms(frame, form), "label", "weight")
        np.testing.assert_array_equal(x, arrays[0])
        np.testing.assert_array_equal(y, arrays[1])
        np.testing.assert_array_equal(weight, frame["weight"])
        assert (x.dtype, y.dtype, y.shape) == (np.float32, np.int64, (ROWS,))

    @pytest.mark.parametrize("as_dict", [True, False])
    def test_named_inputs_take_their_columns(self, form: str, as_dict: bool, frame: pd.DataFrame, here: Path) -> None:
        inputs = {name: keras.Input((1,), name=name) for name in ("c", "a")}
        out = keras.layers.Add()(list(inputs.values()))
        model = keras.Model(inputs if as_dict else list(inputs.values()), out)
        x, _, _ = resolve(model, _forms(frame, form), "label")
        assert set(x) == {"a", "c"}
        np.testing.assert_allclose(model.predict(x, verbose=0)[:, 0], frame["a"] + frame["c"], rtol=1e-6)

    def test_columns_that_do_not_fit_are_said(self, form: str, frame: pd.DataFrame, here: Path) -> None:
        table = _forms(frame, form)
        with pytest.raises(
            ValueError, match=r"columns \['a', 'b', 'c', 'weight'\], together 4 number\(s\) a row.*\(3,\)"
        ):
            resolve(_model(), table, "label")
        inputs = {name: keras.Input((1,), name=name) for name in ("a", "q")}
        other = keras.Model(inputs, keras.layers.Add()(list(inputs.values())))
        with pytest.raises(ValueError, match=r"inputs named \['a', 'q'\], and `x` has no column \['q'\]"):
            resolve(other, table, "label")
        with pytest.raises(ValueError, match=r"`sample_weight='wait'` is no column of `x`"):
            resolve(_model(), table, "label", "wait")


@pytest.mark.parametrize("form", ["nullable", "folder"])
def test_tables_train_as_arrays_do(
    form: str, frame: pd.DataFrame, arrays: tuple[np.ndarray, np.ndarray], here: Path
) -> None:
    one, other = _model(), _model()
    one.fit(*arrays, sample_weight=frame["weight"].to_numpy(), batch_size=8, shuffle=False, verbose=0)
    x, y, weight = resolve(other, _forms(frame, form), "label", "weight")
    other.fit(x, y, sample_weight=weight, batch_size=8, shuffle=False, verbose=0)
    for expected, got in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_several_labels_are_a_matrix_or_one_for_each_output(frame: pd.DataFrame) -> None:
    names = ["label", "weight"]
    _, y, _ = resolve(_model(), frame, names)
    np.testing.assert_array_equal(y, frame[names].astype("float32"))
    inputs = keras.Input((3,))
    model = keras.Model(inputs, [keras.layers.Dense(1)(inputs), keras.layers.Dense(1)(inputs)])
    _, y, _ = resolve(model, frame, names)
    assert [part.shape for part in y] == [(ROWS,), (ROWS,)]
    _, y, _ = resolve(model, frame, {"one": "label", "two": "weight"})
    assert list(y) == ["one", "two"]


def test_labels_may_be_frames_beside_a_plain_x(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    words = pd.Series(np.where(arrays[1] == 1, "yes", "no")).astype("category")
    x, y, _ = resolve(_model(), arrays[0], words)
    assert x is arrays[0]
    np.testing.assert_array_equal(y, arrays[1][:, None])


def test_an_input_named_after_a_column_takes_it() -> None:
    frame = pd.DataFrame({"id": [7, 8], "pixels": [np.zeros(4, "uint8"), np.ones(4, "uint8")], "label": [0, 1]})
    inputs = keras.Input((4,), name="pixels")
    x, _, _ = resolve(keras.Model(inputs, keras.layers.Dense(1)(inputs)), frame, "label")
    assert (x.shape, x.dtype) == ((2, 4), np.uint8)
    x, _, _ = resolve(keras.Model({"pixels": inputs}, keras.layers.Dense(1)(inputs)), frame, "label")
    assert list(x) == ["pixels"]


def test_integers_may_be_missing_only_where_floats_are_taken() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64"), "label": pd.array([1, None], "Int64")})
    x, _, _ = resolve(_model(1), frame[["a"]])
    np.testing.assert_array_equal(x, np.array([[1], [np.nan]], "float32"))
    with pytest.raises(ValueError, match=r"`y` takes column 'label' \(Int64\) as integers, and 1 of its 2"):
        resolve(_model(1), frame, "label")
    embedding = keras.Sequential([keras.layers.Input((1,), dtype="int32"), keras.layers.Embedding(3, 1)])
    with pytest.raises(ValueError, match=r"`x` takes column 'a' \(Int64\) as integers"):
        resolve(embedding, frame[["a"]])


def test_texts_are_refused_with_their_columns() -> None:
    frame = pd.DataFrame({"city": ["Rome", "Oslo"], "label": [0, 1]})
    with pytest.raises(TypeError, match=r"`x` has columns that are no numbers: 'city' .* such as 'Rome'"):
        resolve(_model(1), frame, "label")
    with pytest.raises(TypeError, match=r"`y` has columns that are no numbers: 'city'"):
        resolve(_model(1), frame, "city")


@pytest.mark.parametrize("x", [np.zeros((2, 3)), pd.Series([1.0, 2.0]), [np.zeros((2, 3))]])
def test_a_name_needs_a_table(x: Any) -> None:
    with pytest.raises(
        ValueError, match=r"`y='label'` names a column, but `x` is of type .* Expected `x` to be a frame"
    ):
        resolve(_model(), x, "label")


def test_a_model_that_is_not_built_takes_every_column(frame: pd.DataFrame) -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    x, _, _ = resolve(model, frame.astype({"label": "category"}), "label")
    assert x.shape == (ROWS, 4)


class TestImageFolders:
    @pytest.fixture(autouse=True)
    def _images(self, here: Path) -> None:
        image = pytest.importorskip("PIL.Image")
        for number, name in enumerate(["train/cat/0.png", "train/dog/0.png", "train/dog/1.png", "val/dog/0.png"]):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(np.full((6, 5, 3), 10 * number, np.uint8)).save(name)
        Path("val/dog/readme.txt").write_text("no image")

    def _convnet(self, shape: tuple[int | None, ...] = (6, 5, 3)) -> Any:
        return keras.Sequential([keras.layers.Input(shape), keras.layers.GlobalAveragePooling2D()])

    def test_images_and_labels_come_from_the_folders(self) -> None:
        model = self._convnet()
        x, y, weight = resolve(model, "train")
        assert (x.shape, x.dtype, y.dtype) == ((3, 6, 5, 3), np.uint8, np.int32)
        assert (x[:, 0, 0, 0].tolist(), y.tolist(), weight) == ([0, 10, 20], [0, 1, 1], None)

    def test_a_class_has_the_same_number_in_every_folder(self) -> None:
        model = self._convnet()
        resolve(model, "train")
        assert resolve(model, "val")[1].tolist() == [1]

    def test_labels_of_the_user_are_kept_and_plain_folders_have_none(self) -> None:
        labels = np.array([5, 6, 7])
        assert resolve(self._convnet(), Path("train"), labels)[1] is labels
        assert resolve(self._convnet(), "train/dog")[1] is None

    def test_channels_come_first_where_keras_wants_them(self) -> None:
        keras.config.set_image_data_format("channels_first")
        try:
            inputs = keras.Input((1, 4, 4))
            assert resolve(keras.Model(inputs, keras.layers.Flatten()(inputs)), "train")[0].shape == (3, 1, 4, 4)
        finally:
            keras.config.set_image_data_format("channels_last")

    @pytest.mark.parametrize("shape", [(None, None, 3), (6, 5, 2)])
    def test_the_size_must_be_known(self, shape: tuple[int | None, ...]) -> None:
        with pytest.raises(ValueError, match=re.escape(f"a model with the input shape {shape}. Expected one input")):
            resolve(self._convnet(shape), "train")
        with pytest.raises(ValueError, match=r"a model that is not built\. Expected one input"):
            resolve(keras.Sequential([keras.layers.Flatten()]), "train")

    def test_images_are_x_itself_and_have_no_columns(self) -> None:
        with pytest.raises(ValueError, match=r"`x\[0\]` is the folder 'train' of images"):
            resolve(self._convnet(), ["train"])
        with pytest.raises(ValueError, match=r"`y='label'` names a column, but `x` is an image folder"):
            resolve(self._convnet(), "train", "label")
