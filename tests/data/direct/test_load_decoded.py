"""Rows that are decoded arrive in a sink as they are, piece by piece, in flat memory."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.columnar.stored_tables import open_tables
from flatout.data.columnar.table_rows import TableFrame
from flatout.data.device.sinks import HostSink
from flatout.data.direct.load import load
from flatout.data.direct.load_report import BUFFERED, COLUMNS, DECODED, POSIX_DIRECT
from flatout.data.files.file_rows import FileRows
from flatout.data.resident.placing import FileSink, place_files

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")


def table(rows: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 255, (rows, 6), dtype="u1")
    return pa.table(
        {
            "a": generator.normal(size=rows).astype("f4"),
            "b": generator.integers(-9, 9, rows).astype("i2"),
            "flag": generator.integers(0, 2, rows).astype(bool),
            "wide": generator.normal(size=rows),
            "list": pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 6),
        }
    )


def write(path: Path, content: Any, group: int, compression: str | None) -> Path:
    if path.suffix == ".parquet":
        parquet.write_table(content, path, row_group_size=group, compression=compression or "none")
    else:
        feather.write_feather(content, str(path), chunksize=group, compression=compression or "uncompressed")
    return path


def opened(*paths: Path) -> TableFrame:
    return TableFrame(open_tables(paths, "x"), None)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 300),
    shards=st.integers(1, 3),
    group=st.integers(7, 200),
    suffix=st.sampled_from([".parquet", ".arrow", ".feather"]),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    slot_bytes=st.integers(1, 3000),
    threads=st.integers(1, 5),
)
@pytest.mark.backend("jax")
def test_rows_arrive_whatever_the_slots_and_threads(
    rows: int, shards: int, group: int, suffix: str, compression: str | None, slot_bytes: int, threads: int
) -> None:
    tables = [table(rows, seed) for seed in range(shards)]
    whole = pa.concat_tables(tables)
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write(Path(folder, f"{number}{suffix}"), content, group, compression)
            for number, content in enumerate(tables)
        ]
        rows_of = opened(*paths).matrix(["b", "a", "flag", "list"], "x")
        matrix, report = load(rows_of, slot_bytes=slot_bytes, threads=threads)
    lists = np.array(whole["list"].to_pylist(), "f4")
    expected = np.column_stack([*(whole[name].to_numpy() for name in ("b", "a", "flag")), lists]).astype("f4")
    np.testing.assert_array_equal(matrix, expected)
    assert report.engine == "arrow"
    assert sum(report.paths.values()) == matrix.nbytes
    assert set(report.paths) <= {DECODED, COLUMNS}
    assert report.nbytes == matrix.nbytes


def sink_of(backend: str) -> Any:
    name = {"jax": "JaxSink", "torch": "TorchSink", "tensorflow": "TensorFlowSink"}[backend]
    return getattr(importlib.import_module(f"flatout.engines.{backend}.sink"), name)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_columns_make_a_tensor_of_the_backend(tmp_path: Path, backend: str, suffix: str) -> None:
    content = table(500)
    path = write(tmp_path / f"x{suffix}", content, 100, None)
    tensor, _ = load(opened(path).matrix(["a", "b"], "x"), sink_of(backend), slot_bytes=999)
    np.testing.assert_array_equal(np.asarray(tensor), np.stack([content["a"], content["b"]], axis=1).astype("f4"))


def test_a_plain_column_of_an_arrow_file_is_read_as_it_lies_there(tmp_path: Path, backend: str) -> None:
    content = table(5000)
    path = write(tmp_path / "x.feather", content, 999, None)
    sink = sink_of(backend)
    frame = opened(path)
    columns = (frame.array("a", "x"), frame.array("list", "x"))
    sinks = [functools.partial(sink, cast_to=name) for name in ("float32", "uint8")]
    placed, reports = place_files(columns, np.asarray, sinks)
    np.testing.assert_array_equal(np.asarray(placed[1]), np.array(content["list"].to_pylist(), "u1"))
    np.testing.assert_array_equal(np.asarray(placed[0]), content["a"].to_numpy())
    assert [report.engine for report in reports] == ["posix", "posix"]
    assert {way for report in reports for way in report.paths} <= {BUFFERED, POSIX_DIRECT}
    assert sorted(sum(report.paths.values()) for report in reports) == [4 * 5000, 6 * 5000]


@pytest.mark.backend("jax")
def test_plain_columns_of_an_arrow_file_are_put_side_by_side(tmp_path: Path) -> None:
    content = table(3000)
    rows = opened(write(tmp_path / "x.feather", content, 700, None)).matrix(["wide", "a"], "x")
    (placed,), (report,) = place_files((rows,), np.asarray, [HostSink])
    np.testing.assert_array_equal(placed, np.column_stack([content["wide"], content["a"]]))
    assert report.paths == {COLUMNS: 3000 * 2 * 8}


@pytest.mark.backend("jax")
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_damaged_tables_are_named(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x{suffix}", table(2000), 100, "zstd")
    damaged = bytearray(path.read_bytes())
    damaged[300 : len(damaged) // 2] = os.urandom(len(damaged) // 2 - 300)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"`x` is '.*x{suffix}', which pyarrow cannot read"):
        load(opened(path).array("wide", "x"))


@pytest.mark.backend("jax")
@pytest.mark.parametrize("mappable", [True, False])
def test_rows_in_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mappable: bool) -> None:
    content = table(3000)
    path = write(tmp_path / "x.parquet", content, 700, None)
    if not mappable:

        def refused(*_: Any, **__: Any) -> Any:
            raise OSError(12, "Cannot allocate memory")

        monkeypatch.setattr(np, "memmap", refused)
    rows, _ = load(opened(path).array("list", "x"), lambda *a: FileSink(*a, folder=tmp_path), slot_bytes=999)
    monkeypatch.undo()
    assert isinstance(rows, np.memmap if mappable else FileRows)
    order = np.random.default_rng(1).permutation(3000)
    np.testing.assert_array_equal(rows[order], np.array(content["list"].to_pylist(), "u1")[order])
    assert [file.name for file in tmp_path.iterdir()] == ["x.parquet"]


_LOAD = """
import json, sys, threading
import numpy as np
from flatout.data.direct.load import load
from flatout.data.columnar.table_rows import TableFrame
from flatout.data.columnar.stored_tables import open_tables
from pathlib import Path

class Adding:
    wants_pinned, device_memory = False, None
    def __init__(self, shape, dtype, page_offset):
        self.total, self.lock = 0.0, threading.Lock()
    def write(self, at, block):
        with self.lock:
            self.total += float(block.sum())
        return lambda: None
    def finish(self):
        return self.total

def run(path):
    frame = TableFrame(open_tables([Path(path)], "x"), None)
    return load(frame.matrix(frame.names, "x"), Adding)

run(sys.argv[1])
total, report = run(sys.argv[2])
print(json.dumps([total, report.nbytes, report.peak_rss_growth]))
"""


@pytest.mark.backend("jax")
@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "group"), [(".parquet", 2**16), (".parquet", 2**30), (".feather", 2**16)])
def test_host_memory_stays_flat(tmp_path: Path, suffix: str, group: int) -> None:
    """A table of 640 MB, also one that is a single row group, takes little more than the slots."""
    rows, columns = 2_500_000, 32
    values = np.resize(np.arange(rows, dtype="f8") % 1000, rows)
    content = pa.table({f"c{number}": values for number in range(columns)})
    small = write(tmp_path / f"small{suffix}", content.slice(0, 100_000), group, "zstd")
    large = write(tmp_path / f"large{suffix}", content, group, "zstd")
    del content
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    command = [sys.executable, "-c", _LOAD, str(small), str(large)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    total, nbytes, growth = json.loads(done.stdout)
    assert total == values.sum() * columns
    assert nbytes == rows * columns * 8
    assert growth < 200e6
