"""Rows of a file: what NumPy would give, without a map of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatout.base.errors import UnreadableFile
from flatout.data.files.file_rows import FileRows, open_rows
from flatout.data.files.npy_files import Shards, extents, open_npy, unmapped
from flatout.data.files.page_cache import cached_bytes, drop_from_cache
from flatout.data.sources.description import ArraySource, describe
from flatout.data.stream.chunks import FreshMemory, RowReader

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(1, 9),
    row_shape=st.sampled_from([(), (3,), (2, 2), (0,)]),
    dtype=st.sampled_from(["<i2", ">f4", "?"]),
    data=st.data(),
)
def test_rows_are_those_of_the_array(
    tmp_path: Path, length: int, row_shape: tuple[int, ...], dtype: str, data: st.DataObject
) -> None:
    whole = np.arange(length * int(np.prod(row_shape))).reshape(length, *row_shape).astype(dtype)
    np.save(tmp_path / "x.npy", whole)
    found = open_rows(tmp_path / "x.npy")
    assert (found.shape, found.dtype, found.ndim, len(found)) == (whole.shape, whole.dtype, whole.ndim, len(whole))
    assert found.nbytes == whole.nbytes
    rows: Any = data.draw(
        st.one_of(
            st.slices(length),
            st.integers(-length, length - 1),
            st.lists(st.integers(-length, length - 1), max_size=12).map(lambda rows: np.array(rows, "int64")),
        )
    )
    np.testing.assert_array_equal(found[rows], whole[rows])
    assert np.asarray(found[rows]).dtype == np.asarray(whole[rows]).dtype
    np.testing.assert_array_equal(np.asarray(found, "float32"), whole.astype("float32"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.arange(20, dtype="float32").reshape(5, 4))
    return tmp_path / "x.npy"


def test_what_is_no_row_is_refused(path: Path) -> None:
    found = open_rows(path)
    for rows in (5, -6, np.array([0, 5])):
        with pytest.raises(IndexError, match="out of range for 5 rows"):
            found[rows]
    with pytest.raises(TypeError, match="a slice or a one-dimensional array of integers"):
        found[np.array([True, False, True, False, True])]
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(found, copy=False)


def test_maps_of_files_become_rows_of_the_same_place(path: Path) -> None:
    mapped = np.load(path, mmap_mode="r")
    part = unmapped(mapped[1:4])
    assert isinstance(part, FileRows)
    np.testing.assert_array_equal(part[:], mapped[1:4])
    (found,) = extents(part)
    assert (found.path, found.offset, found.shape, found.dtype) == (path, 128 + 16, (3, 4), np.dtype("float32"))
    both = unmapped(Shards([mapped, mapped[2:]]))
    assert [type(array) for array in both.arrays] == [FileRows, FileRows]
    assert both.paths == (path, path)
    np.testing.assert_array_equal(both[3:7], np.concatenate([mapped, mapped[2:]])[3:7])
    for other in (np.zeros(3), np.load(path), None):
        assert unmapped(other) is other


def test_a_file_that_cannot_be_mapped_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(np.lib.format, "open_memmap", fail)
    assert isinstance(open_npy(path, "x"), FileRows)
    np.save(path, np.asfortranarray(np.zeros((3, 4))))
    with pytest.raises(UnreadableFile, match=r"Fortran order.*ascontiguousarray"):
        open_npy(path, "x")


def test_a_file_that_changes_is_not_read_on(path: Path) -> None:
    found = open_rows(path)
    np.save(path, np.zeros((5, 4), "float32"))
    os.utime(path, (0, 0))
    for rows in (found, found.part(1, 3), Shards([found])):
        with pytest.raises(ValueError, match="has been changed since it was opened"):
            rows[:1]


def test_the_reader_and_the_source_take_them(path: Path) -> None:
    found = open_rows(path)
    source = describe(found, batch_size=2)
    assert isinstance(source, ArraySource)
    assert (source.rows, source.nbytes) == (5, 80)
    for dtype in ("float32", "float16"):
        reader = RowReader(found, [np.dtype(dtype)], 2, 1, FreshMemory())
        first = reader.chunk(None, 1, 2)
        np.testing.assert_array_equal(first.data[:2], np.load(path)[2:4].astype(dtype))
        shuffled = reader.chunk(np.array([4, 3, 0, 1, 2]), 0, 1)
        np.testing.assert_array_equal(shuffled.data[:2], np.load(path)[[4, 3]].astype(dtype))


def test_a_cold_file_is_not_left_in_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    np.save(path, np.zeros((4096, 1024), "float32"))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        drop_from_cache(file.fileno())
    if cached_bytes(path) is None or cached_bytes(path) > 2**20:
        pytest.skip("this file system keeps what it is asked to drop")
    found = unmapped(np.load(path, mmap_mode="r"))
    for start in range(0, 4096, 512):
        found[start : start + 512]
    assert cached_bytes(path) < 2**22
