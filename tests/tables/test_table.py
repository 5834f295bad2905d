"""Tables: what they are made of, how keys find their rows, what is refused, and that nothing differs from pandas."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import flatout


def _numpy(tensor: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(tensor))


def _compiled(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """A function of tensors, run as a compiled one."""
    tensors = [ops.convert_to_tensor(array) for array in arrays]
    if keras.config.backend() == "jax":
        import jax

        return _numpy(jax.jit(function)(*tensors))
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return _numpy(tf.function(function, jit_compile=True, autograph=False)(*tensors))
    return _numpy(function(*tensors))


def test_columns_have_types_and_rows_have_the_shape_of_the_keys() -> None:
    frame = pd.DataFrame(
        {"label": [2, 0, 1], "weight": [2.0, 0.0, 1.0], "house": [12, 10, 11], "big": [True, False, True]}
    )
    row = flatout.Table(frame, key="label").at(ops.convert_to_tensor(np.array([[0, 1], [2, 0]])))
    assert _numpy(row.weight).tolist() == [[0.0, 1.0], [2.0, 0.0]]
    assert _numpy(row["house"]).tolist() == [[10, 11], [12, 10]]
    assert _numpy(row.big).tolist() == [[False, True], [True, False]]
    assert _numpy(row.found).all()
    assert [keras.backend.standardize_dtype(c.dtype) for c in (row.weight, row.house, row.big)] == [
        "float32",
        "int32",
        "bool",
    ]
    with pytest.raises(AttributeError, match="has no column 'height'"):
        row.height  # noqa: B018


def _sources(tmp_path: Path) -> dict[str, Any]:
    import polars
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    frame = pd.DataFrame({"store": [3, 7, 9], "mean": [1.0, -2.0, 0.5]})
    arrow = pyarrow.Table.from_pandas(frame)
    frame.to_csv(tmp_path / "stores.csv", index=False)
    pyarrow.parquet.write_table(arrow, tmp_path / "stores.parquet")
    pyarrow.feather.write_feather(arrow, tmp_path / "stores.feather")
    np.savez(tmp_path / "stores.npz", **{name: frame[name].to_numpy() for name in frame})
    return {
        "pandas": frame,
        "pandas index": frame.set_index("store"),
        "polars": polars.from_pandas(frame),
        "lazy polars": polars.from_pandas(frame).lazy(),
        "arrow": arrow,
        "dict": {"store": [3, 7, 9], "mean": np.array([1.0, -2.0, 0.5])},
        "csv": tmp_path / "stores.csv",
        "parquet": str(tmp_path / "stores.parquet"),
        "feather": tmp_path / "stores.feather",
        "npz": tmp_path / "stores.npz",
    }


@pytest.mark.backend("jax")
def test_every_source_gives_the_same_table(tmp_path: Path) -> None:
    for name, source in _sources(tmp_path).items():
        table = flatout.Table(source, key="store")
        assert _numpy(table.at(np.array([9, 3, 7])).mean).tolist() == [0.5, 1.0, -2.0], name


@pytest.mark.backend("jax")
def test_without_a_key_the_index_or_the_row_number_is_the_key(tmp_path: Path) -> None:
    series = pd.Series([0.1, 0.2], index=[7, 5], name="w")
    assert _numpy(flatout.Table(series).at(np.array([5, 7])).w).tolist() == pytest.approx([0.2, 0.1])
    (tmp_path / "w.csv").write_text("w\n1.0\n2.0\n0.5\n")
    assert _numpy(flatout.Table(tmp_path / "w.csv").at(np.array([2, 0])).w).tolist() == [0.5, 1.0]


_KEYS = {
    "dense": st.integers(-50, 50),
    "searchsorted": st.integers(-(2**31), 2**31 - 1),
    "codes": st.integers(-(2**63) + 1, 2**63 - 1),
    "text": st.text(max_size=4),
    "date": st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1)),
}


@pytest.mark.backend("torch")
@settings(deadline=None)
@given(data=st.data(), kind=st.sampled_from(sorted(_KEYS)))
def test_a_join_is_what_pandas_finds(data: st.DataObject, kind: str) -> None:
    keys = data.draw(st.lists(_KEYS[kind], min_size=1, max_size=12, unique=True))
    asked = data.draw(st.lists(st.one_of(st.sampled_from(keys), _KEYS[kind]), min_size=1, max_size=9))
    values = np.arange(1, len(keys) + 1, dtype="float32")
    frame = pd.DataFrame({"key": pd.Series(keys, dtype=object if kind in ("text", "date") else None), "value": values})
    table = flatout.Table(frame, key="key", missing={"value": -1.0})
    row = table.at(ops.convert_to_tensor(table.codes(asked)))
    found = {key: float(value) for key, value in zip(keys, values, strict=True)}
    assert _numpy(row.value).tolist() == [found.get(key, -1.0) for key in asked]
    assert _numpy(row.found).tolist() == [key in found for key in asked]
    slots = np.where(_numpy(row.found), _numpy(row.numbers) - 1, -1)
    assert table.index.found([asked], False)[1].tolist() == slots.tolist()


def _random_keys(rng: np.random.Generator) -> dict[str, np.ndarray]:
    numbers = rng.choice(10**6, 600, replace=False)
    return {
        "dense": rng.permutation(600) - 300,
        "searchsorted": rng.choice(2**31, 600, replace=False) - 2**30,
        "codes": numbers.astype("int64") * 2**33,
        "text": np.array([f"id-{number}" for number in numbers]),
        "date": np.datetime64("1990-01-01T00:00:07", "ns") + numbers.astype("timedelta64[m]"),
    }


@pytest.mark.parametrize("kind", sorted(_KEYS))
def test_a_compiled_join_is_a_merge(kind: str) -> None:
    rng = np.random.default_rng(0)
    keys = _random_keys(rng)[kind]
    frame = pd.DataFrame({"key": keys, "value": rng.normal(size=600).astype("float32")})
    table = flatout.Table(frame.iloc[:400], key="key", missing={"value": 0.25})
    assert table.join == (kind if kind in ("dense", "searchsorted") else "codes")
    asked = rng.choice(keys, 1000)
    merged = pd.DataFrame({"key": asked}).merge(frame.iloc[:400], on="key", how="left")
    got = _compiled(lambda codes: table.at(codes).value, table.codes(asked))
    np.testing.assert_array_equal(got, merged.value.fillna(0.25).to_numpy("float32"))
    assert 0 < int(merged.value.isna().sum()) < 1000


@pytest.mark.backend("torch")
@settings(deadline=None)
@given(data=st.data(), kinds=st.tuples(st.sampled_from(sorted(_KEYS)), st.sampled_from(sorted(_KEYS))))
def test_two_keys_find_what_pandas_finds(data: st.DataObject, kinds: tuple[str, str]) -> None:
    pair = st.tuples(_KEYS[kinds[0]], _KEYS[kinds[1]])
    keys = data.draw(st.lists(pair, min_size=1, max_size=8, unique=True))
    asked = data.draw(st.lists(st.one_of(st.sampled_from(keys), pair), min_size=1, max_size=8))
    frame = {"a": [k[0] for k in keys], "b": [k[1] for k in keys], "value": np.arange(1.0, len(keys) + 1)}
    frame = {name: np.array(column, dtype=object) if name != "value" else column for name, column in frame.items()}
    table = flatout.Table(frame, key=["a", "b"], missing=0)
    found = {key: number + 1.0 for number, key in enumerate(keys)}
    expected = [found.get(key, 0.0) for key in asked]
    together = table.codes([k[0] for k in asked], [k[1] for k in asked])
    assert _numpy(table.at(ops.convert_to_tensor(together)).value).tolist() == expected
    apart = [table.codes(a=[k[0] for k in asked]), table.codes(b=[k[1] for k in asked])]
    assert _numpy(table.at(*map(ops.convert_to_tensor, apart)).value).tolist() == expected


@pytest.mark.backend("torch")
@settings(deadline=None)
@given(
    edges=st.lists(st.integers(-40, 40), min_size=2, max_size=7, unique=True),
    values=st.lists(
        st.one_of(st.integers(-90, 90).map(lambda n: n / 2), st.just(float("nan"))), min_size=1, max_size=9
    ),
    right=st.booleans(),
)
def test_intervals_are_those_of_pandas_cut(edges: list[int], values: list[float], right: bool) -> None:
    edges = sorted(edges)
    cut = pd.cut(np.array(values), edges, right=right)
    frame = pd.DataFrame({"range": cut.categories, "w": np.arange(1.0, len(edges))})
    table = flatout.Table(frame.sample(frac=1.0, random_state=0), key="range", missing={"w": 0.0})
    assert table.join == "intervals"
    row = table.at(ops.convert_to_tensor(np.array(values, "float32")))
    assert _numpy(row.w).tolist() == [float(code + 1) for code in cut.codes]
    assert (table.index.found([values], False)[1] >= 0).tolist() == [code >= 0 for code in cut.codes]


def test_the_lower_ends_of_ranges_are_enough() -> None:
    rain = np.array([0.0, 0.3, 1.0, 4.9, 5.0, 19.0, 20.0, 55.0], "float32")
    table = flatout.Table({"rain": [0, 1, 5, 20], "w": [0.1, 1.0, 4.0, 10.0]}, key="rain", intervals="left")
    expected = np.array([0.1, 1.0, 4.0, 10.0], "float32")[
        pd.cut(rain, [0, 1, 5, 20, np.inf], right=False, labels=False)
    ]
    np.testing.assert_array_equal(_compiled(lambda v: table.at(v).w, rain), expected)
    upper = flatout.Table({"rain": [1, 5, 20], "w": [1.0, 2.0, 3.0]}, key="rain", intervals="right", missing="nan")
    got = _compiled(lambda v: upper.at(v).w, np.array([-9.0, 1.0, 1.5, 20.0, 20.5], "float32"))
    np.testing.assert_array_equal(got, [1.0, 1.0, 2.0, 3.0, np.nan])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8", "bool", "float32"])
def test_no_key_reads_outside_the_table(dtype: str) -> None:
    """An out-of-range gather raises, clamps, or gives NaN or 0, by backend; a table has a row for it."""
    keys = np.array([-1, 0, 1, 2, 100, 127]).astype(dtype)
    if dtype == "float32":
        keys = np.array([-1, 0, 0.5, 1, np.nan, np.inf, -np.inf, 3e9], dtype)
    table = flatout.Table({"key": [0, 1], "w": [5.0, 7.0]}, key="key", missing={"w": -3.0})
    expected = [{0.0: 5.0, 1.0: 7.0}.get(float(key), -3.0) for key in keys]
    assert _compiled(lambda k: table.at(k).w, keys).tolist() == expected


def test_a_gap_in_dense_keys_is_missing() -> None:
    table = flatout.Table({"key": [10, 12], "w": [1.0, 2.0], "n": [3, 4]}, key="key", missing={"w": 9.0, "n": -1})
    assert table.join == "dense"
    row = table.at(ops.convert_to_tensor(np.array([10, 11, 12])))
    assert _numpy(row.w).tolist() == [1.0, 9.0, 2.0]
    assert _numpy(row.n).tolist() == [3, -1, 4]
    assert _numpy(row.found).tolist() == [True, False, True]


def test_missing_as_nan_makes_integers_floats() -> None:
    table = flatout.Table({"key": [1, 2], "n": [3, 4]}, key="key", missing="nan")
    np.testing.assert_array_equal(_numpy(table.at(ops.convert_to_tensor(np.array([1, 5]))).n), [3.0, np.nan])


@pytest.mark.backend("jax")
def test_missing_keys_on_the_host_are_refused_with_examples() -> None:
    table = flatout.Table({"city": ["Bonn", "Ulm"], "w": [1.0, 2.0]}, key="city", name="cities")
    with pytest.raises(flatout.TableError, match=r"2 of 3 keys are not in cities. Received: 'Rome', 'Oslo'"):
        table.codes(["Rome", "Bonn", "Oslo"])
    with pytest.raises(flatout.TableError, match="1 of 2 keys are not in cities"):
        table.at(np.array(["Rome", "Bonn"]))
    pairs = flatout.Table({"a": [1, 2], "b": ["x", "y"], "w": [1.0, 2.0]}, key=["a", "b"])
    with pytest.raises(flatout.TableError, match=r"Received: \(1, 'y'\)"):
        pairs.codes([1, 1], ["x", "y"])


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            {"k": [1, 2, 1, 3, 2], "w": np.ones(5)},
            r"'k' occurs more than once.*2 repeated rows, such as 1, 2 \(rows \[0, 2\]",
        ),
        ({"k": [1.0, np.nan, 2.0], "w": np.ones(3)}, r"'k' is missing .*in 1 of 3 rows. Received: rows \[1\]"),
        ({"k": ["a", None], "w": np.ones(2)}, r"'k' is missing .*rows \[1\]"),
        ({"k": [0.5, 1.0], "w": np.ones(2)}, "numbers that are not whole. Received: 0.5.*intervals="),
        (
            {"k": np.array([2.0**24 + 2], "float32"), "w": np.ones(1)},
            "float32, which cannot tell.*Read the column as int64",
        ),
        ({"k": [1, 2], "w": [1.0, np.nan]}, r"'w' is missing .*rows \[1\].*allow_nan=True"),
        ({"k": [1, 2], "w": [1, 2**40]}, "more than 32 bits"),
        ({"k": [1, 2], "w": np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")}, "'w' holds dates"),
        ({"k": [1, 2], "w": [1.0]}, r"same length. Received: \{'k': 2, 'w': 1\}"),
        ({"k": [], "w": []}, "at least one row"),
        ({"k": [1]}, "a column beside its key"),
        ({"q": [1], "w": [1.0]}, r"Unknown column 'k' in argument `key`. Expected one of \['q', 'w'\]"),
    ],
)
def test_unfit_frames_are_refused_in_words(frame: Any, words: str) -> None:
    with pytest.raises(flatout.TableError, match=words):
        flatout.Table(frame, key="k")


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"missing": "skip"}, "argument `missing`.*'skip'.*Expected 'raise', 'nan'"),
        ({"missing": {"w": 1.0}}, r"no default for the columns \['v'\]"),
        ({"missing": {"z": 1.0}}, r"unknown columns. Received: \['z'\]"),
        ({"columns": ["z"]}, r"Unknown column 'z' in argument `columns`"),
        ({"mutable": ["z"]}, "Unknown columns in argument `mutable`"),
        ({"aggregate": "median"}, "argument `aggregate`.*'median'"),
        ({"join": "hash"}, "argument `join`.*'hash'"),
    ],
)
def test_unfit_arguments_are_refused_in_words(options: Any, words: str) -> None:
    with pytest.raises(flatout.TableError, match=words):
        flatout.Table({"k": [1, 2], "w": [1.0, 2.0], "v": [1.0, 2.0]}, key="k", **options)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("how", ["mean", "sum", "min", "max", "first", "last"])
def test_repeated_keys_are_aggregated_as_pandas_does(how: str) -> None:
    frame = pd.DataFrame({"k": [3, 1, 3, 1, 3, 2], "w": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0], "n": [5, 6, 1, 2, 9, 4]})
    table = flatout.Table(frame, key="k", aggregate=how)
    expected = frame.groupby("k").agg(how)
    row = table.at(np.array([1, 2, 3]))
    np.testing.assert_allclose(_numpy(row.w), expected.w.to_numpy("float32"))
    np.testing.assert_allclose(_numpy(row.n), expected.n.to_numpy("float32"))
    assert table.duplicates == 3


def test_large_ids_as_float32_are_refused() -> None:
    table = flatout.Table({"id": 2**24 + np.arange(4), "w": np.ones(4)}, key="id")
    with pytest.raises(
        flatout.TableError, match=r"float32, which cannot tell whole numbers above 16777216 apart.*in x"
    ):
        table.at(ops.convert_to_tensor(np.array([2**24], "float32")))
    sparse = flatout.Table({"id": [1, 2**30], "w": [1.0, 2.0]}, key="id", join="searchsorted")
    with pytest.raises(flatout.TableError, match="float32, which cannot tell"):
        sparse.at(ops.convert_to_tensor(np.array([1.0], "float32")))


def test_raw_keys_of_64_bits_are_refused_in_a_step(backend: str) -> None:
    if backend == "jax":
        pytest.skip("jax has cut them off before anybody can look; arrays in x are checked on the host")
    table = flatout.Table({"id": [2**40, 2**41], "w": [1.0, 2.0]}, key="id")
    with pytest.raises(flatout.TableError, match=r"table\.codes\(values\)"):
        table.at(ops.convert_to_tensor(np.array([2**40])))


def test_vectors_in_a_column() -> None:
    table = flatout.Table(pd.DataFrame({"k": [0, 1], "v": [[1.0, 2.0], [3.0, 4.0]]}), key="k", missing=0.0)
    got = _compiled(lambda keys: table.at(keys).v, np.array([1, 0, 7]))
    assert got.tolist() == [[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]


@pytest.mark.backend("jax")
def test_text_columns_become_numbers_with_names() -> None:
    table = flatout.Table({"k": [0, 1, 2], "home": ["north", "south", "north"]}, key="k")
    assert table.columns["home"].categories == ("north", "south")
    assert _numpy(table.at(np.array([0, 1, 2])).home).tolist() == [0, 1, 0]
    frame = pd.DataFrame({"k": pd.Categorical(["b", "a"]), "g": pd.Categorical(["y", "x"], categories=["y", "x"])})
    table = flatout.Table(frame, key="k")
    assert _numpy(table.at(np.array(["a", "b"])).g).tolist() == [1, 0]


@pytest.mark.backend("jax")
def test_codes_stay_right_after_an_update_in_another_order() -> None:
    table = flatout.Table({"k": ["a", "b"], "w": [1.0, 2.0]}, key="k", missing={"w": 0.0}, capacity=3)
    codes = table.codes(["b", "a"])
    table.update({"k": ["c", "b"], "w": [30.0, 20.0]})
    assert _numpy(table.at(codes).w).tolist() == [20.0, 0.0]
    assert _numpy(table.at(table.codes(["c"])).w).tolist() == [30.0]
    with pytest.raises(flatout.TableError, match=r"room for 3 keys.*such as .'d'.*capacity"):
        table.update({"k": ["d", "b"], "w": [1.0, 2.0]})
    assert table.to_dict()["w"].tolist() == [30.0, 20.0]


@pytest.mark.backend("jax")
def test_a_refused_update_changes_nothing() -> None:
    table = flatout.Table({"k": [1, 10**6], "w": [1.0, 2.0]}, key="k", missing={"w": 0.0}, join="searchsorted")
    for frame in ({"k": [1, 1], "w": [5.0, 6.0]}, {"k": [1, 2, 3], "w": np.ones(3)}, {"k": [1, 2]}):
        with pytest.raises(flatout.TableError):
            table.update(frame)
    assert _numpy(table.at(np.array([1, 10**6, 2])).w).tolist() == [1.0, 2.0, 0.0]


@pytest.mark.backend("jax")
@pytest.mark.parametrize("keys", [[1, 2], [1, 10**6], ["a", "b"]])
def test_an_update_with_keys_of_another_kind_is_refused_as_such(keys: list[Any]) -> None:
    table = flatout.Table({"k": keys, "w": [1.0, 2.0]}, key="k", capacity=10)
    other: list[Any] = [1, 2] if isinstance(keys[0], str) else ["a", "b"]
    with pytest.raises(flatout.TableError, match=r"'k' is of kind (\w+). Received: values of kind (?!\1)\w+\."):
        table.update({"k": other, "w": [3.0, 4.0]})


def test_explain_tells_coverage_bytes_join_and_cost(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is measured holds no copy to the host.
    monkeypatch.setattr(keras.ops, "convert_to_numpy", None)
    frame = pd.DataFrame({"id": np.arange(1000), "w": np.ones(1000)})
    report = flatout.Table(frame, key="id", missing={"w": 1.0}).explain([1, 2, 5000, 5000, 7], batch_size=64)
    assert (report.rows, report.join, report.checked, report.missing, report.examples) == (1000, "dense", 5, 2, (5000,))
    assert report.coverage == pytest.approx(0.6)
    assert report.nbytes == 1003 * 4 + 1003 + 4
    assert report.microseconds > 0
    if backend == "jax":
        import jax

        assert report.device == jax.devices()[0].device_kind
    assert "60.00% of 5 keys; 2 missing, such as 5000" in str(report)
    sparse = flatout.Table({"id": [1, 2**30], "w": [1.0, 2.0]}, key="id").explain()
    assert sparse.join == "searchsorted"
    assert "join='codes'" in str(sparse)
    for table in (
        flatout.Table({"a": ["x", "y"], "b": [1, 2], "w": [1.0, 2.0]}, key=["a", "b"]),
        flatout.Table({"r": [0.0, 1.0], "w": [1.0, 2.0]}, key="r", intervals="left"),
    ):
        assert table.explain().microseconds > 0
