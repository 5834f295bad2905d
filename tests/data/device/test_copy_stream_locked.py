"""Which arrays a GPU may fetch rows of, without one: those that lie in memory as they are wanted, and are worth it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from flatout.data.device import copy_stream
from flatout.data.device.copy_stream import is_lockable, locked
from flatout.data.device.cuda_driver import CudaError, cuda_driver
from flatout.data.stream.chunks import FreshMemory, RowReader

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_stream, "FEWEST_BYTES", 1)


def test_arrays_in_memory_are_lockable(small: None) -> None:
    x = np.zeros((10, 128), np.float32)
    assert is_lockable(x, x.dtype)
    assert is_lockable(x[2:7], x.dtype)
    assert is_lockable(np.zeros((10, 32, 32, 3), np.uint8), np.dtype("uint8"))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((10, 127), np.float32),
        np.zeros((10, 1023), np.uint8),
        np.zeros((10, 256), np.float32)[:, ::2],
        np.asfortranarray(np.zeros((10, 128), np.float32)),
        np.frombuffer(bytes(10 * 512), np.float32).reshape(10, 128),
        np.zeros(10_000, np.float32),
        np.zeros((0, 128), np.float32),
    ],
    ids=["short rows", "odd rows", "columns", "Fortran", "of another object", "scalars", "none"],
)
def test_others_are_not(small: None, array: np.ndarray) -> None:
    assert not is_lockable(array, array.dtype)


def test_rows_that_are_converted_on_their_way_are_not(small: None) -> None:
    assert not is_lockable(np.zeros((10, 128), np.float64), np.dtype("float32"))


def test_files_are_not(small: None, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 128), np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert not is_lockable(x, x.dtype)
    assert not is_lockable(np.asarray(x), x.dtype)


def test_little_is_not_worth_it_and_most_of_memory_is_too_much(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((10, 128), np.float32)
    monkeypatch.setattr(os, "sysconf", lambda name: 1 if name == "SC_PAGE_SIZE" else 2 * x.nbytes - 1)
    assert not is_lockable(x, x.dtype)
    monkeypatch.undo()
    assert not is_lockable(x, x.dtype)


def test_without_a_gpu_rows_go_by_way_of_host_memory(small: None) -> None:
    try:
        cuda_driver()
    except CudaError:
        pass
    else:
        pytest.skip("there is a GPU")
    x = np.arange(1280, dtype=np.float32).reshape(10, 128)
    assert locked(x, x.dtype) is None
    reader = RowReader((x,), [x.dtype], 5, 1, FreshMemory(), fetches=True)
    (chunk,) = reader.chunks(np.arange(9, -1, -1), 0, 2)
    np.testing.assert_array_equal(chunk.data[0], x[::-1])
