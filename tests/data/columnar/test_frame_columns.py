"""Tables as arrays: the values that pandas, polars and Arrow themselves would give, and what cannot become numbers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.columnar.frame_columns import as_array, codes_of_model, is_plain, open_frame

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

_DTYPES = {
    "int8": "int8",
    "int64": "int64",
    "uint8": "uint8",
    "float32": "float32",
    "float64": "float64",
    "bool": "uint8",
    "Int64": "int64",
    "Int16": "int16",
    "Float32": "float32",
    "boolean": "uint8",
}


def _model() -> Any:
    return keras.Sequential([keras.layers.Dense(1)])


@st.composite
def _pandas_frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(1, 8))
    columns = {}
    for number in range(draw(st.integers(1, 5))):
        dtype = draw(st.sampled_from(sorted(_DTYPES)))
        values = draw(st.lists(st.integers(0, 1 if "bool" in dtype else 100), min_size=rows, max_size=rows))
        columns[f"c{number}"] = pd.Series(values).astype(dtype)
    return pd.DataFrame(columns)


@settings(max_examples=150, deadline=None)
@given(frame=_pandas_frames(), data=st.data())
def test_pandas_frames_become_what_pandas_makes_of_them(frame: pd.DataFrame, data: st.DataObject) -> None:
    for name in frame:
        if frame[name].dtype.name in ("Int64", "Int16", "Float32", "boolean"):
            frame.loc[sorted(data.draw(st.sets(st.integers(0, len(frame) - 1)))), name] = pd.NA
    matrix = as_array(frame, "x", _model())
    np.testing.assert_array_equal(matrix, frame.to_numpy(dtype="float64", na_value=np.nan))
    dtypes = [
        np.dtype(
            "float32" if frame[name].isna().any() and not str(dtype).startswith(("F", "f")) else _DTYPES[dtype.name]
        )
        for name, dtype in frame.dtypes.items()
    ]
    is_mixed = len({dtype.kind == "f" for dtype in dtypes}) == 2
    assert matrix.dtype == (np.dtype("float32") if is_mixed else np.result_type(*dtypes))


def test_categories_become_codes_and_missing_ones_minus_one() -> None:
    frame = pd.DataFrame({"a": pd.Categorical(["x", None, "y"], categories=["y", "x"]), "b": [1.5, 2.5, 3.5]})
    column = open_frame(frame, _model()).array("a", "x")
    assert (column.tolist(), column.dtype) == ([1, -1, 0], np.int32)
    assert as_array(frame, "x", _model()).tolist() == [[1, 1.5], [-1, 2.5], [0, 3.5]]


def test_codes_mean_the_same_in_all_data_of_a_model() -> None:
    model = _model()
    train = pd.Series(["cat", "dog", "eel"], name="label").astype("category")
    test = pd.Series(["eel", None, "dog"], name="label").astype("category")
    assert as_array(train, "y", model).ravel().tolist() == [0, 1, 2]
    assert as_array(test, "y", model).ravel().tolist() == [2, -1, 1]
    assert as_array(test, "y", _model()).ravel().tolist() == [1, -1, 0]
    unused = pd.Series(["dog"], name="label").astype(pd.CategoricalDtype(["ant", "dog"]))
    assert as_array(unused, "y", model).ravel().tolist() == [1]
    unseen = pd.Series(["dog", "ant"], name="label").astype("category")
    with pytest.raises(ValueError, match=r"`y` has the value 'ant' in the categories 'label'.*\['cat', 'dog', 'eel'\]"):
        as_array(unseen, "y", model)


def test_models_are_not_kept_alive_by_their_categories() -> None:
    import gc
    import weakref

    model = _model()
    codes_of_model(model, ("y", "label"), ("a",), np.zeros(1, "int8"))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_missing_integers_are_nan_where_floats_will_do_and_an_error_where_not() -> None:
    frame = open_frame(pd.DataFrame({"a": pd.array([1, None, 3], "Int64")}), _model())
    np.testing.assert_array_equal(frame.array("a", "x"), np.array([1, np.nan, 3], "float32"))
    with pytest.raises(ValueError, match=r"`y` takes column 'a' \(Int64\) as integers, and 1 of its 3 values"):
        frame.array("a", "y", integers=True)


def test_mixed_dtypes_follow_floatx() -> None:
    frame = pd.DataFrame({"a": [1.5], "b": pd.array([1], "Int64")})
    keras.config.set_floatx("float64")
    try:
        assert as_array(frame, "x", _model()).dtype == np.float64
    finally:
        keras.config.set_floatx("float32")
    assert as_array(frame, "x", _model()).dtype == np.float32


def test_columns_without_numbers_are_named_with_an_example() -> None:
    frame = pd.DataFrame({"city": ["Rome", "Oslo"], "n": [1, 2], "when": pd.to_datetime(["2026-01-01", "2026-01-02"])})
    with pytest.raises(TypeError, match=r"`x` has columns that are no numbers: 'city' \(.*, such as 'Rome'\), 'when'"):
        as_array(frame, "x", _model())
    with pytest.raises(TypeError, match=r"astype\('category'\).*drop them or select"):
        as_array(frame, "x", _model())


def test_lists_of_one_length_become_rows() -> None:
    frame = pd.DataFrame({"a": [[1, 2], [3, 4]], "b": [0.5, 1.5]})
    assert open_frame(frame, None).array("a", "x").shape == (2, 2)
    assert as_array(frame, "x", None).tolist() == [[1, 2, 0.5], [3, 4, 1.5]]
    ragged = pd.DataFrame({"a": [[1, 2], [3]]})
    with pytest.raises(TypeError, match=r"'a' \(object, such as \[1, 2\]\)"):
        as_array(ragged, "x", None)


def test_names_must_differ_and_some_must_be_left() -> None:
    with pytest.raises(ValueError, match=r"Received twice: \['a'\]"):
        open_frame(pd.DataFrame([[1, True]], columns=["a", "a"]), None)
    with pytest.raises(ValueError, match=r"`x` has no columns left"):
        open_frame(pd.DataFrame({"a": [1]}), None).matrix([], "x")


@pytest.mark.parametrize(
    ("dtypes", "plain"),
    [
        (["int64", "float32"], True),
        (["bool", "bool"], True),
        (["bool", "int64"], False),
        (["Int64", "int64"], False),
        (["category", "int64"], False),
        (["object", "int64"], False),
        (["Sparse[float]", "float64"], False),
    ],
)
def test_plain_frames_are_those_that_keras_takes(dtypes: list[str], plain: bool) -> None:
    frame = pd.DataFrame({f"c{n}": pd.Series([1, 0]).astype(dtype) for n, dtype in enumerate(dtypes)})
    assert is_plain(frame) is plain
    if not plain and dtypes[0] not in ("object",):
        np.testing.assert_array_equal(as_array(frame, "x", _model())[:, 1], [1, 0])


class TestPolars:
    @pytest.fixture(autouse=True)
    def _needs_polars(self) -> None:
        pytest.importorskip("polars")

    @settings(max_examples=60, deadline=None)
    @given(
        dtypes=st.lists(st.sampled_from(["Int8", "Int64", "UInt16", "Float32", "Float64", "Boolean"]), min_size=1),
        values=st.lists(st.one_of(st.none(), st.integers(0, 1)), min_size=1, max_size=6),
    )
    def test_frames_become_what_polars_makes_of_them(self, dtypes: list[str], values: list[int | None]) -> None:
        import polars as pl

        frame = pl.DataFrame(
            {f"c{n}": pl.Series(values).cast(pl.Int8).cast(getattr(pl, name)) for n, name in enumerate(dtypes)}
        )
        expected = np.stack([column.cast(pl.Float64).to_numpy() for column in frame], 1)
        np.testing.assert_array_equal(as_array(frame, "x", _model()), expected)
        np.testing.assert_array_equal(as_array(frame.lazy(), "x", _model()), expected)

    def test_categories_lists_and_texts(self) -> None:
        import polars as pl

        frame = pl.DataFrame(
            {
                "free": pl.Series(["dog", None, "cat"], dtype=pl.Categorical),
                "fixed": pl.Series(["dog", None, "cat"], dtype=pl.Enum(["dog", "cat"])),
                "list": [[1, 2], [3, 4], [5, 6]],
                "array": pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.UInt8, 2)),
                "text": ["a", "b", "c"],
                "ragged": [[1], [1, 2], []],
            }
        )
        columns = open_frame(frame, _model())
        assert columns.array("free", "x").tolist() == [1, -1, 0]
        assert columns.array("fixed", "x").tolist() == [0, -1, 1]
        assert columns.array("list", "x").tolist() == [[1, 2], [3, 4], [5, 6]]
        assert columns.array("array", "x").dtype == np.uint8
        with pytest.raises(TypeError, match=r"'text' \(String, such as 'a'\), 'ragged' \(List\(Int64\)"):
            columns.matrix(["list", "text", "ragged"], "x")

    def test_series_have_the_shape_that_keras_gives_them(self) -> None:
        import polars as pl

        assert as_array(pl.Series([1, 2]), "y", _model()).shape == (2,)
        assert as_array(pd.Series([1, 2], dtype="Int64"), "y", _model()).shape == (2, 1)


class TestArrow:
    @pytest.fixture(autouse=True)
    def _needs_pyarrow(self) -> None:
        pytest.importorskip("pyarrow")

    @settings(max_examples=60, deadline=None)
    @given(
        dtypes=st.lists(
            st.sampled_from(["int8", "int64", "uint16", "float16", "float32", "float64", "bool_"]), min_size=1
        ),
        values=st.lists(st.one_of(st.none(), st.integers(0, 1)), min_size=1, max_size=6),
    )
    def test_tables_become_what_pandas_makes_of_them(self, dtypes: list[str], values: list[int | None]) -> None:
        import pyarrow as pa

        numbers = pa.array(values, pa.int8())
        columns = {
            f"c{n}": numbers.cast(pa.float32()).cast(pa.float16())
            if name == "float16"
            else numbers.cast(getattr(pa, name)())
            for n, name in enumerate(dtypes)
        }
        table = pa.concat_tables([pa.table(columns).slice(0, 2), pa.table(columns).slice(2)])
        expected = np.stack(
            [column.to_pandas().to_numpy(dtype="float64", na_value=np.nan) for column in table.columns], 1
        )
        np.testing.assert_array_equal(as_array(table, "x", _model()), expected)

    def test_categories_of_several_chunks_lists_and_texts(self) -> None:
        import pyarrow as pa

        words = pa.chunked_array([pa.array(part).dictionary_encode() for part in (["dog", None], ["cat", "dog"])])
        table = pa.table(
            {
                "word": words,
                "list": [[1, 2], [3, 4], [5, 6], [7, 8]],
                "fixed": pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.uint8(), 2)),
                "images": [[[1.0, 2.0], [3.0, 4.0]]] * 4,
                "text": ["a", "b", "c", "d"],
                "ragged": [[1], [1, 2], [], [1]],
                "holes": [[1], None, [2], [3]],
            }
        )
        columns = open_frame(table, _model())
        assert columns.array("word", "x").tolist() == [1, -1, 0, 1]
        assert columns.array("list", "x").tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
        assert columns.array("fixed", "x").dtype == np.uint8
        assert columns.array("images", "x").shape == (4, 2, 2)
        with pytest.raises(TypeError, match=r"'text' \(string, such as 'a'\), 'ragged' .*'holes'"):
            columns.matrix(["list", "text", "ragged", "holes"], "x")

    def test_an_ordered_dictionary_keeps_its_order(self) -> None:
        import pyarrow as pa

        sizes = pd.Series(["small", "large"]).astype(pd.CategoricalDtype(["small", "large"], ordered=True))
        table = pa.Table.from_pandas(pd.DataFrame({"size": sizes}))
        assert open_frame(table, _model()).array("size", "x").tolist() == [0, 1]

    def test_pandas_columns_backed_by_arrow(self) -> None:
        frame = pd.DataFrame(
            {"a": pd.array([1, None], "int64[pyarrow]"), "b": pd.array([True, False], "bool[pyarrow]")}
        )
        np.testing.assert_array_equal(as_array(frame, "x", _model()), [[1, 1], [np.nan, 0]])
