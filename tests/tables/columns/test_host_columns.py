"""What a `Table` is made of: the same columns whichever library holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops

import flatout

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.backend("jax")
LIBRARIES = pytest.mark.parametrize(
    "library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"]
)


@LIBRARIES
def test_lists_of_one_length_are_rows_of_numbers(library: Any) -> None:
    frame = library({"key": [7, 5, 6], "place": [[1, 2], [3, 4], [5, 6]]})
    row = flatout.Table(frame, key="key").at(np.array([5, 7]))
    assert np.asarray(ops.convert_to_numpy(row.place)).tolist() == [[3, 4], [1, 2]]


@LIBRARIES
def test_lists_of_several_lengths_are_refused(library: Any) -> None:
    with pytest.raises(flatout.TableError, match=r"Lists in a column must be of one length. Received: \[1, 2\]"):
        flatout.Table(library({"key": [7, 5], "place": [[1, 2], [3]]}), key="key")


@LIBRARIES
def test_keys_of_too_few_bits_are_refused(library: Any) -> None:
    keys = np.array([2**25, 2**25 + 2], "float32")
    with pytest.raises(flatout.TableError, match="is float32, which cannot tell neighbouring whole numbers"):
        flatout.Table(library({"key": keys, "v": [1.0, 2.0]}), key="key")


def test_categories_of_polars_and_arrow_are_the_values_that_they_stand_for() -> None:
    words = ["dog", "cat", "dog"]
    frames = [
        pl.DataFrame({"word": pl.Series(words, dtype=pl.Enum(["dog", "cat"])), "key": [1, 2, 3]}),
        pa.table({"word": pa.array(words).dictionary_encode(), "key": [1, 2, 3]}),
    ]
    for frame in frames:
        row = flatout.Table(frame, key="key").at(np.array([1, 2]))
        assert np.asarray(ops.convert_to_numpy(row.word)).tolist() == [1, 0]
    numbers = pa.table({"size": pa.array([30, 10, 30]).dictionary_encode(), "key": [1, 2, 3]})
    row = flatout.Table(numbers, key="key").at(np.array([1, 2]))
    assert np.asarray(ops.convert_to_numpy(row.size)).tolist() == [30, 10]
