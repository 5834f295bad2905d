"""Columns of Parquet and Arrow files arrive as pyarrow reads them, piece by piece."""

from __future__ import annotations

import builtins
import importlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.direct import load
from flatout.errors import MissingExtra, UnreadableFile

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")


def table(rows: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 255, (rows, 6), dtype="u1")
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(images.reshape(rows, 2, 3)) if rows else None
    columns = {
        "a": generator.normal(size=rows).astype("f4"),
        "b": generator.integers(-9, 9, rows).astype("i2"),
        "flag": generator.integers(0, 2, rows).astype(bool),
        "wide": generator.normal(size=rows),
        "list": pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 6),
        "text": pa.array(["x"] * rows),
    }
    return pa.table({**columns, "tensor": tensors} if rows else columns)


def write(path: Path, content: Any, group: int, compression: str | None) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(content, path, row_group_size=group, compression=compression or "none")
    else:
        feather.write_feather(content, str(path), chunksize=group, compression=compression or "uncompressed")
    return path


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 300),
    shards=st.integers(1, 3),
    group=st.integers(7, 200),
    suffix=st.sampled_from([".parquet", ".arrow", ".feather"]),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    slot_bytes=st.integers(1, 3000),
    threads=st.integers(1, 5),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_columns_equal_what_pyarrow_reads(
    rows, shards, group, suffix, compression, slot_bytes, threads, bounds
) -> None:
    tables = [table(rows, seed) for seed in range(shards)]
    whole = pa.concat_tables(tables)
    start, stop = sorted(round(share * len(whole)) for share in bounds)
    more: dict[str, Any] = {"start": start, "stop": stop, "slot_bytes": slot_bytes, "threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write(Path(folder, f"{number}{suffix}"), content, group, compression)
            for number, content in enumerate(tables)
        ]
        matrix, report = load(paths, columns=["b", "a", "flag"], **more)
        single, _ = load(paths, columns="wide", **more)
        lists, _ = load(paths, columns="list", **more)
        tensors, _ = load(paths, columns="tensor", **more)
    expected = np.stack([whole[name].to_numpy() for name in ("b", "a", "flag")], axis=1)[start:stop]
    np.testing.assert_array_equal(matrix, expected)
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(single, whole["wide"].to_numpy()[start:stop])
    images = np.array(whole["list"].to_pylist(), "u1").reshape(-1, 6)[start:stop]
    np.testing.assert_array_equal(lists, images)
    np.testing.assert_array_equal(tensors, images.reshape(-1, 2, 3))
    assert report.engine == "arrow"
    assert sum(report.paths.values()) == report.nbytes == matrix.nbytes


def test_all_columns_make_a_tensor_of_the_backend(tmp_path: Path, backend: str) -> None:
    content = table(500).select(["a", "b"])
    write(tmp_path / "x.parquet", content, 100, None)
    name = {"jax": "JaxSink", "torch": "TorchSink", "tensorflow": "TensorFlowSink"}[backend]
    sink = getattr(importlib.import_module(f"flatout.engines.{backend}_sink"), name)
    tensor, _ = load(tmp_path / "x.parquet", sink, slot_bytes=999)
    np.testing.assert_array_equal(np.asarray(tensor), np.stack([content["a"], content["b"]], axis=1).astype("f4"))


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_columns_that_cannot_be_read_are_named(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x{suffix}", table(20), 7, None)
    with pytest.raises(UnreadableFile, match=r"has no column 'nope'. Its columns are a, b,"):
        load(path, columns=["a", "nope"])
    with pytest.raises(UnreadableFile, match=r"Column 'text' .* holds no numbers .* Received: type string"):
        load(path, columns="text")
    with pytest.raises(UnreadableFile, match="Columns of lists make no matrix"):
        load(path, columns=["a", "list"])


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize("column", ["x", "list"])
def test_missing_values_are_refused(tmp_path: Path, suffix: str, column: str) -> None:
    lists = pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int32(), 2))
    content = pa.table({"x": pa.array([1, None, 3]), "list": lists})
    path = write(tmp_path / f"x{suffix}", content, 100, None)
    with pytest.raises(UnreadableFile, match=f"Column '{column}' of .* has missing values"):
        load(path, columns=column)


def test_tables_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", pa.table({"x": np.zeros(3, "f4")}), 9, None)
    write(tmp_path / "2.parquet", pa.table({"x": np.zeros(3, "f8")}), 9, None)
    with pytest.raises(UnreadableFile, match=r"Received: columns float64 in .*2.parquet. Expected: float32"):
        load([tmp_path / "1.parquet", tmp_path / "2.parquet"])


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_damaged_tables_are_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"nothing of the kind" * 10)
    with pytest.raises(UnreadableFile, match="cannot be read as a table"):
        load(path)
    whole = write(tmp_path / f"y{suffix}", table(2000), 100, None)
    damaged = bytearray(whole.read_bytes())
    damaged[200 : len(damaged) // 2] = bytes(len(damaged) // 2 - 200)
    path.write_bytes(damaged)
    with pytest.raises(UnreadableFile):
        load(path, columns="wide")


def test_without_pyarrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.parquet", table(3), 9, None)
    really_import = builtins.__import__

    def without_pyarrow(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return really_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingExtra, match=r"pip install flatout\[data\]"):
        load(path)
