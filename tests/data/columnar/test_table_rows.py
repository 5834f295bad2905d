"""Tables in files give the same arrays as tables read whole, whichever rows are asked for."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.columnar.frame_columns import open_frame
from flatout.data.columnar.stored_tables import open_tables
from flatout.data.columnar.table_rows import TableFrame, TableRows
from flatout.data.files.npy_files import Shards, SideBySide, extents

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

_NUMBERS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def model() -> keras.Model:
    """Something to remember categories for."""
    return keras.Sequential([keras.layers.Dense(1)])


@st.composite
def columns(draw: st.DrawFn, rows: int) -> dict[str, Any]:
    """Columns of all kinds that become numbers."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    made: dict[str, Any] = {}
    kinds = ["number", "number", "nullable", "bool", "category", "ordered", "list", "fixed", "tensor", "nested"]
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5))):
        dtype = draw(st.sampled_from(_NUMBERS))
        values = generator.integers(0, 100, rows).astype(dtype)
        missing = generator.random(rows) < draw(st.sampled_from([0.0, 0.02, 0.5]))
        words = np.array(["eel", "ant", "dog", "cat", "bee"])[generator.integers(0, 5, rows)]
        if kind == "number":
            made[f"c{number}"] = pa.array(values)
        elif kind == "nullable":
            made[f"c{number}"] = pa.array(values, mask=missing)
        elif kind == "bool":
            made[f"c{number}"] = pa.array(values > 50, mask=missing)
        elif kind == "category":
            coded = pa.array(words, pa.string(), mask=missing).dictionary_encode()
            # polars writes unsigned ones.
            indices = coded.indices.cast(draw(st.sampled_from(["int32", "uint32", "int8"])))
            made[f"c{number}"] = pa.DictionaryArray.from_arrays(indices, coded.dictionary)
        elif kind == "ordered":
            names = pa.array(["bee", "dog", "ant", "eel", "cat"])
            codes = pa.array(generator.integers(0, 5, rows).astype("i1"), mask=missing)
            made[f"c{number}"] = pa.DictionaryArray.from_arrays(codes, names, ordered=True)
        elif kind == "list":
            made[f"c{number}"] = pa.array([[int(value), 1, 2] for value in values], pa.list_(pa.int32()))
        elif kind == "tensor":
            images = generator.integers(0, 255, (rows, 2, 3)).astype(dtype)
            made[f"c{number}"] = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
        else:
            flat = pa.array(generator.integers(0, 9, 4 * rows).astype(dtype))
            lists = pa.FixedSizeListArray.from_arrays(flat, 2 if kind == "nested" else 4)
            made[f"c{number}"] = pa.FixedSizeListArray.from_arrays(lists, 2) if kind == "nested" else lists
    return made


def write(path: Path, table: Any, group: int, compression: str | None, form: str) -> Path:
    path = path.with_suffix({"parquet": ".parquet", "feather": ".feather", "stream": ".arrow"}[form])
    if form == "parquet":
        parquet.write_table(table, path, row_group_size=group, compression=compression or "none")
    elif form == "feather":
        feather.write_feather(table, str(path), chunksize=group, compression=compression or "uncompressed")
    else:
        options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=group)
    return path


def whole(paths: list[Path], form: str, folder: Path | None = None) -> Any:
    """All of it in memory, as pyarrow reads it."""
    if form == "parquet":
        partitioning = {"partitioning": "hive", "partition_base_dir": str(folder)} if folder else {}
        return dataset.dataset([str(path) for path in paths], format="parquet", **partitioning).to_table()
    opened = pa.ipc.open_file if form == "feather" else pa.ipc.open_stream
    return pa.concat_tables([opened(pa.OSFile(str(path))).read_all() for path in paths])


def assert_equal(got: Any, expected: np.ndarray) -> None:
    assert (tuple(got.shape), got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(np.asarray(got), expected)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    rows=st.integers(1, 90),
    group=st.integers(1, 100),
    cuts=st.lists(st.floats(0, 1), max_size=2),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    form=st.sampled_from(["parquet", "feather", "stream"]),
)
def test_arrays_equal_those_of_the_table_read_whole(
    data: st.DataObject, rows: int, group: int, cuts: list[float], compression: str | None, form: str
) -> None:
    table = pa.table(data.draw(columns(rows)))
    bounds = [0, *sorted(round(cut * rows) for cut in cuts), rows]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    with tempfile.TemporaryDirectory() as name:
        paths = [write(Path(name, f"{n}"), part, group, compression, form) for n, part in enumerate(parts)]
        ours, theirs = model(), model()
        frame = TableFrame(open_tables(paths, "x"), ours)
        expected = open_frame(whole(paths, form), theirs)
        assert frame.names == expected.names
        for column in frame.names:
            assert_equal(frame.array(column, "x"), expected.array(column, "x"))
        got, matrix = frame.matrix(frame.names, "x"), expected.matrix(expected.names, "x")
        assert_equal(got, matrix)
        start, stop = sorted(data.draw(st.tuples(st.integers(0, rows), st.integers(0, rows))))
        np.testing.assert_array_equal(got[start:stop], matrix[start:stop])
        numbers = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=8)), "int64")
        np.testing.assert_array_equal(got[numbers], matrix[numbers])
        np.testing.assert_array_equal(got[rows - 1], matrix[rows - 1])
        np.testing.assert_array_equal(np.asarray(got.part(start, stop)), matrix[start:stop])
        if isinstance(got, TableRows):
            read_in_turn(got, matrix, data.draw(st.lists(st.integers(1, rows), min_size=1, max_size=6)))


def read_in_turn(got: TableRows, matrix: np.ndarray, lengths: list[int]) -> None:
    """Sequential reads of any length, with jumps back to the beginning."""
    start = 0
    for length in lengths:
        length = min(length, len(got) - start)
        out = np.empty((length, *got.shape[1:]), "float32")
        got.read_into(start, out)
        np.testing.assert_array_equal(out, matrix[start : start + length].astype("float32"))
        start = (start + length) % len(got)
    got.close()


@pytest.mark.parametrize("form", ["feather", "stream"])
def test_columns_that_are_stored_plainly_are_places_in_the_file(tmp_path: Path, form: str) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 255, (50, 6)).astype("u1")
    content = {
        "a": generator.random(50, "f4"),
        "image": pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 6),
        "flag": pa.array([True] * 50),
        "gap": pa.array([None, *range(49)]),
    }
    path = write(tmp_path / "x", pa.table(content), 20, None, form)
    frame = TableFrame(open_tables([path], "x"), model())
    image = frame.array("image", "x")
    assert isinstance(image, Shards)
    assert [part.shape[0] for part in extents(image)] == [20, 20, 10]
    raw = path.read_bytes()
    stored = b"".join(raw[part.offset : part.offset + part.shape[0] * 6] for part in extents(image))
    assert stored == images.tobytes()
    assert isinstance(frame.matrix(["a", "image"], "x"), SideBySide)
    for name in ("flag", "gap"):
        assert isinstance(frame.array(name, "x"), TableRows)
    squeezed = write(tmp_path / "y", pa.table(content), 20, "zstd", form)
    assert isinstance(TableFrame(open_tables([squeezed], "x"), model()).array("a", "x"), TableRows)


@pytest.mark.parametrize("statistics", [True, False])
def test_files_that_differ_are_read_in_the_types_of_the_first(tmp_path: Path, statistics: bool) -> None:
    first = {
        "a": pa.array([1, 2, 3], pa.int64()),
        "f": pa.array([1.5, 2, 3], pa.float64()),
        "c": pa.array(["x", "y", "x"]).dictionary_encode(),
        "b": pa.array([True, False, True]),
        "only": pa.array([1, 2, 3], pa.int8()),
    }
    second = {
        "f": pa.array([0.1, None], pa.float32()),
        "a": pa.array([7, 8], pa.int32()),
        "c": pa.array(["q", "y"]),
        "b": pa.array([None, True]),
        "more": pa.array([1, 1]),
    }
    paths = []
    for year, content in ((2024, first), (2025, second)):
        (tmp_path / f"year={year}").mkdir()
        paths.append(tmp_path / f"year={year}" / "x.parquet")
        parquet.write_table(pa.table(content), paths[-1], row_group_size=2, write_statistics=statistics)
    frame = TableFrame(open_tables(paths, "x", tmp_path), model())
    expected = open_frame(whole(paths, "parquet", tmp_path), model())
    assert frame.names == expected.names == ("a", "f", "c", "b", "only", "year")
    for name in frame.names:
        assert_equal(frame.array(name, "x"), expected.array(name, "x"))
    assert_equal(frame.matrix(frame.names, "x"), expected.matrix(expected.names, "x"))


@pytest.mark.parametrize("form", ["parquet", "feather", "stream"])
def test_what_is_wrong_is_said_in_the_same_words(tmp_path: Path, form: str) -> None:
    content = pa.table(
        {
            "gap": pa.array([1, None, 3]),
            "text": pa.array([None, "b", "c"]),
            "ragged": pa.array([[1.0], [1.0], [2.0, 3.0]]),
            "lost": pa.array([[1], None, [2]], pa.list_(pa.int32(), 1)),
        }
    )
    path = write(tmp_path / "x", content, 1, None, form)
    frame, expected = TableFrame(open_tables([path], "x"), model()), open_frame(whole([path], form), model())
    for take in (
        lambda f: f.array("gap", "y", integers=True),
        lambda f: f.matrix(["gap", "text"], "x"),
        lambda f: f.array("ragged", "x"),
        lambda f: f.array("lost", "x"),
        lambda f: f.matrix([], "x"),
    ):
        with pytest.raises((TypeError, ValueError)) as theirs:
            take(expected)
        with pytest.raises(type(theirs.value)) as ours:
            take(frame)
        assert str(ours.value) == str(theirs.value)


def test_categories_of_a_model_are_kept_and_others_are_refused_before_rows_are_read(tmp_path: Path) -> None:
    names = model()
    for name, words in (("train", ["eel", "cat", "dog"]), ("less", ["eel", "cat"]), ("more", ["cat", "yak"])):
        table = pa.table({"word": pa.array(words).dictionary_encode()})
        write(tmp_path / name, table, 1, None, "parquet")

    def word(name: str) -> Any:
        return TableFrame(open_tables([tmp_path / f"{name}.parquet"], "x"), names).array("word", "x")

    assert np.asarray(word("train")).tolist() == [2, 0, 1]
    assert np.asarray(word("less")).tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"has the value 'yak' in the categories 'word'"):
        word("more")


def test_a_file_that_is_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x", pa.table({"a": np.arange(10)}), 5, None, "parquet")
    rows = TableFrame(open_tables([path], "x"), model()).array("a", "x")
    write(tmp_path / "x", pa.table({"a": np.arange(11)}), 5, None, "parquet")
    with pytest.raises(ValueError, match="has been changed since it was opened"):
        rows[:]
