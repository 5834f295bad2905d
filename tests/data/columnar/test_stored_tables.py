"""Tables in files: what pyarrow reads of them, and what is said of broken ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from flatout.base.errors import MissingExtra
from flatout.data.columnar.stored_tables import open_tables
from flatout.data.columnar.table_rows import TableFrame

pytest.importorskip("pyarrow")

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


def write(path: Path, table: Any, form: str) -> None:
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    if form == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=2)
    elif form == "feather":
        pyarrow.feather.write_feather(table, str(path))
    else:
        with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("form", ["parquet", "feather", "arrow"])
def test_rows_of_several_files_follow_each_other(form: str, tmp_path: Path) -> None:
    import pyarrow

    paths = [tmp_path / f"{number}.{form}" for number in range(3)]
    for number, path in enumerate(paths):
        numbers = np.arange(5 * number, 5 * number + 5)
        write(path, pyarrow.table({"a": numbers, "b": numbers / 2}), form)
    frame = TableFrame(open_tables(paths, "x"), None)
    assert frame.names == ("a", "b")
    np.testing.assert_array_equal(frame.array("a", "x"), np.arange(15))
    np.testing.assert_array_equal(frame.matrix(["b", "a"], "x"), np.stack([np.arange(15) / 2, np.arange(15)], 1))


def test_categories_are_numbered_by_name_through_all_files(tmp_path: Path) -> None:
    import pyarrow

    model = keras.Sequential([keras.layers.Dense(1)])
    for name, words in (("0", ["eel", "dog"]), ("1", ["cat", "eel"]), ("val", ["eel", "cat"])):
        table = pyarrow.table({"word": pyarrow.array(words).dictionary_encode()})
        write(tmp_path / f"{name}.parquet", table, "parquet")
    train = TableFrame(open_tables([tmp_path / "0.parquet", tmp_path / "1.parquet"], "y"), model)
    assert np.asarray(train.array("word", "y")).tolist() == [2, 1, 0, 2]
    val = TableFrame(open_tables([tmp_path / "val.parquet"], "y"), model)
    assert np.asarray(val.array("word", "y")).tolist() == [2, 0]


def test_folders_named_key_value_are_columns(tmp_path: Path) -> None:
    import pyarrow

    for year in (2024, 2025):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}" / "0.parquet", pyarrow.table({"a": [1, 2]}), "parquet")
    frame = TableFrame(open_tables(sorted(tmp_path.rglob("*.parquet")), "x", tmp_path), None)
    np.testing.assert_array_equal(frame.array("year", "x"), [2024, 2024, 2025, 2025])


@pytest.mark.parametrize("form", ["parquet", "feather", "arrow"])
def test_a_broken_file_is_named(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{form}"
    path.write_bytes(b"hello, this is text")
    with pytest.raises(ValueError, match=re.escape(f"`x` is {str(path)!r}, which pyarrow cannot read")):
        open_tables([path], "x")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pyarrow.dataset"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=re.escape("pip install flatout[data]")):
        open_tables([tmp_path / "x.parquet"], "x")
