"""One column of each library becomes the same arrays; a library is imported only for columns of its own."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from flatout.base.foreign_columns import columns_of, is_series, is_table, read_column

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")
NOON = datetime.datetime(2026, 1, 1, 12)
MAKERS = {
    "pandas": lambda values, kind: pd.Series(values, dtype=kind),
    "polars": lambda values, kind: pl.Series(values, dtype=kind),
    "arrow": lambda values, kind: pa.array(values, kind),
    "arrow in chunks": lambda values, kind: pa.chunked_array(
        [pa.array(part, kind) for part in (values[:1], values[1:])]
    ),
}


def _kinds(pandas: Any, polars: Any, arrow: Any) -> dict[str, Any]:
    return {"pandas": pandas, "polars": polars, "arrow": arrow, "arrow in chunks": arrow}


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize(
    ("values", "kinds", "expected", "missing"),
    [
        ([3, None, 5], _kinds("Int16", pl.Int16, pa.int16()), np.array([3, 0, 5], "int16"), [False, True, False]),
        ([3, 4, 5], _kinds("uint64", pl.UInt64, pa.uint64()), np.array([3, 4, 5], "uint64"), None),
        ([True, None], _kinds("boolean", pl.Boolean, pa.bool_()), np.array([True, False]), [False, True]),
        ([1.5, None], _kinds("Float32", pl.Float32, pa.float32()), np.array([1.5, np.nan], "float32"), None),
        ([[1, 2], [3, 4]], _kinds(object, pl.List(pl.Int64), pa.list_(pa.int64())), np.array([[1, 2], [3, 4]]), None),
        (
            [NOON, None],
            _kinds("datetime64[us]", pl.Datetime("us"), pa.timestamp("us")),
            np.array([NOON, None], "datetime64[ns]"),
            None,
        ),
    ],
    ids=["integers", "large integers", "booleans", "floats", "lists", "moments"],
)
def test_the_same_values_give_the_same_arrays(
    library: str, values: list[Any], kinds: dict[str, Any], expected: np.ndarray, missing: list[bool] | None
) -> None:
    found = read_column(MAKERS[library](values, kinds[library]))
    assert found.values is not None
    assert found.values.dtype == expected.dtype
    np.testing.assert_array_equal(found.values, expected)
    assert (None if found.missing is None else found.missing.tolist()) == missing
    assert (found.numbers is None) == (expected.dtype.kind == "M")


@pytest.mark.parametrize("library", MAKERS)
def test_what_is_no_numbers_comes_with_an_example(library: str) -> None:
    ragged = _kinds(object, pl.List(pl.Int64), pa.list_(pa.int64()))
    for values, kind in ((["a", None], _kinds("str", pl.String, pa.string())), ([[1, 2], [3]], ragged)):
        found = read_column(MAKERS[library](values, kind[library]))
        assert found.values is None
        assert list(found.example) == list(values[0])


def test_moments_of_a_zone_are_those_of_its_clock() -> None:
    twice = pd.to_datetime(["2024-10-27 00:30+00:00", "2024-10-27 01:30+00:00"]).tz_convert("Europe/Paris")
    found = read_column(pd.Series(twice)).values
    assert found is not None
    assert np.diff(found) == np.timedelta64(1, "h")


def test_lists_of_categories_are_no_numbers() -> None:
    words = pa.ListArray.from_arrays([0, 2, 4], pa.array(["a", "b", "a", "b"]).dictionary_encode())
    assert read_column(words).values is None


def test_tables_and_their_columns() -> None:
    frames = [
        pd.DataFrame({"a": [1], "b": [2]}),
        pl.DataFrame({"a": [1], "b": [2]}),
        pl.LazyFrame({"a": [1], "b": [2]}),
        pa.table({"a": [1], "b": [2]}),
        pa.record_batch({"a": [1], "b": [2]}),
    ]
    for frame in frames:
        assert is_table(frame)
        assert not is_series(frame)
        found = [(name, read_column(series).values) for name, series in columns_of(frame)]
        assert [(name, values.tolist()) for name, values in found if values is not None] == [("a", [1]), ("b", [2])]
    assert not any(map(is_table, ({"a": [1]}, np.ones((2, 2)), None)))


def test_a_frame_of_polars_imports_no_other_library() -> None:
    code = (
        "import sys, polars; from flatout.base.foreign_columns import columns_of, is_series, is_table, read_column\n"
        "frame = polars.DataFrame({'a': [1, None], 'b': ['x', 'y']}); assert is_table(frame) and not is_series(frame)\n"
        "for _, series in columns_of(frame): read_column(series)\n"
        "assert not {'pandas', 'pyarrow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
