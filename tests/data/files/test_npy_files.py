"""Files as arrays: the same rows as NumPy would give, read only where asked, and what is said of broken files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.files.file_rows import FileRows
from flatout.data.files.npy_files import Archive, Shards, extents, joined, open_npy, unmapped

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

_LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any)
_ROW_SHAPES = st.sampled_from([(), (3,), (2, 2)])


def _shards(lengths: list[int], row_shape: tuple[int, ...]) -> tuple[Shards, np.ndarray]:
    whole = np.arange(sum(lengths) * int(np.prod(row_shape)), dtype="int16").reshape(-1, *row_shape)
    return Shards(np.split(whole, np.cumsum(lengths)[:-1])), whole


@settings(max_examples=200, deadline=None)
@given(lengths=_LENGTHS, row_shape=_ROW_SHAPES, data=st.data())
def test_shards_give_what_the_concatenated_array_gives(
    lengths: list[int], row_shape: tuple[int, ...], data: st.DataObject
) -> None:
    shards, whole = _shards(lengths, row_shape)
    assert (shards.shape, shards.dtype, shards.ndim, len(shards)) == (whole.shape, whole.dtype, whole.ndim, len(whole))
    assert shards.nbytes == whole.nbytes
    rows: Any = data.draw(
        st.one_of(
            st.slices(len(whole)),
            st.integers(-len(whole), len(whole) - 1),
            st.lists(st.integers(-len(whole), len(whole) - 1), max_size=12).map(lambda rows: np.array(rows, "int64")),
        )
    )
    got, expected = shards[rows], whole[rows]
    np.testing.assert_array_equal(got, expected)
    assert np.asarray(got).dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(shards), whole)
    np.testing.assert_array_equal(np.asarray(shards, "float32"), whole.astype("float32"))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    np.testing.assert_array_equal(np.asarray(shards.part(start, stop)), whole[start:stop])


def test_shards_refuse_what_is_no_row() -> None:
    shards, _ = _shards([2, 3], (2,))
    for rows in (5, -6, np.array([0, 5])):
        with pytest.raises(IndexError, match="out of range for 5 rows"):
            shards[rows]
    with pytest.raises(TypeError, match="a slice or a one-dimensional array of integers"):
        shards[np.array([True, False, True, False, True])]
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(shards, copy=False)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three files of 4, 0 and 3 rows."""
    paths = [tmp_path / f"x-{number}.npy" for number in range(3)]
    rows = np.arange(7 * 6, dtype="float32").reshape(7, 2, 3)
    for path, part in zip(paths, np.split(rows, [4, 4]), strict=True):
        np.save(path, part)
    return paths


def test_files_are_mapped_and_cannot_be_written(files: list[Path]) -> None:
    array = open_npy(files[0], "x")
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    assert joined([open_npy(path, "x") for path in files], "x").paths == tuple(files)


def _read(extent: FileRows, shape: tuple[int, ...]) -> np.ndarray:
    with extent.path.open("rb") as file:
        file.seek(extent.offset)
        raw = file.read(extent.shape[0] * extent.row_bytes)
    return np.frombuffer(raw, "float32").reshape(extent.shape[0], *shape)


def test_extents_find_the_bytes_of_every_row(files: list[Path]) -> None:
    shards = joined([open_npy(path, "x") for path in files], "x")
    found = np.concatenate([_read(extent, (2, 3)) for extent in extents(shards)])
    np.testing.assert_array_equal(found, np.asarray(shards))
    part = open_npy(files[0], "x")[1:][1:3]
    (extent,) = extents(part)
    np.testing.assert_array_equal(_read(extent, (2, 3)), part)


def test_rows_that_do_not_lie_one_after_the_other_have_no_extents(files: list[Path], tmp_path: Path) -> None:
    array = open_npy(files[0], "x")
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.ones((4, 3))))
    assert extents(array[::2]) == ()
    assert extents(np.array(array)) == ()
    assert extents(open_npy(tmp_path / "columns.npy", "x")) == ()


def test_a_map_with_changes_in_memory_is_not_its_file(files: list[Path]) -> None:
    assert extents(np.load(files[0], mmap_mode="c")) == ()


def test_a_map_whose_file_is_gone_is_read_from_memory(files: list[Path]) -> None:
    array = open_npy(files[0], "x")
    files[0].unlink()
    assert extents(array) == ()
    assert unmapped(array) is array


def test_shards_of_different_rows_are_refused(files: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", np.zeros((2, 2, 4), "float32"))
    with pytest.raises(ValueError, match=r"`x` must hold rows of one shape and dtype.*\(2, 3\) float32.*\(2, 4\)"):
        joined([open_npy(files[0], "x"), open_npy(tmp_path / "other.npy", "x")], "`x`")
    np.save(tmp_path / "other.npy", np.zeros((2, 2, 3), "float64"))
    with pytest.raises(ValueError, match=r"float32 in .*float64 in "):
        joined([open_npy(files[0], "x"), open_npy(tmp_path / "other.npy", "x")], "`x`")


def test_a_truncated_file_is_named(files: list[Path]) -> None:
    with files[0].open("r+b") as file:
        file.truncate(150)
    with pytest.raises(ValueError, match=re.escape(f"`x` is {str(files[0])!r} (150 bytes), which is cut short")):
        open_npy(files[0], "x")


def test_what_is_no_array_of_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"hello, this is text")
    with pytest.raises(ValueError, match=r"is no \.npy file"):
        open_npy(path, "x")
    np.save(path, np.array([None, "a"]), allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects"):
        open_npy(path, "x")
    np.save(path, np.float64(3))
    with pytest.raises(ValueError, match="a single number"):
        open_npy(path, "x")
    with pytest.raises(ValueError, match="Is a directory"):
        open_npy(tmp_path, "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no .npy file"),
        (b"PK\x03\x04 a zip archive", "is no .npy file"),
        (b"\x93NUMPY\x07\x00\x10\x00" + b" " * 16, "format version.*not \\(7, 0\\)"),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': ", "expected 16 bytes got 10"),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': '<f4'}", "is no .npy file"),
        (b"\x93NUMPY\x01\x00\x04\x00" + b"[[[[", "is no .npy file"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f", "expected 2147483647 bytes got 0"),
    ],
)
def test_a_damaged_header_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_npy(tmp_path / "x.npy", "x")


def test_archives_give_arrays_by_name(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.ones((3, 2), "uint8"), label=np.arange(3))
    archive = Archive(path, "x")
    assert archive.names == ("x", "label")
    assert archive.matrix(["x"], "x").dtype == np.uint8
    np.testing.assert_array_equal(archive.array("label", "y"), np.arange(3))
    with pytest.raises(ValueError, match=r"leaves 2 arrays to choose from: \['x', 'label'\]"):
        archive.matrix(archive.names, "x")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"hello, this is text")
    with pytest.raises(ValueError, match=r"is no \.npz file"):
        Archive(path, "x")
    np.save(path.open("wb"), np.zeros(3))
    with pytest.raises(ValueError, match=r"is no \.npz file"):
        Archive(path, "x")
    np.savez(path, x=np.array([None, "a"]))
    with pytest.raises(ValueError, match="holds Python objects"):
        Archive(path, "x").array("x", "x")
