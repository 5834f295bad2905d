"""Chunks of rows, as a GPU gets them: every row once, in order, in memory that is used in turns."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.base.group import Place
from flatout.data.stream import chunks
from flatout.data.stream.chunks import FreshMemory, Ring, RowReader, even_chunks

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


class _Zeros(FreshMemory):
    def __call__(self, arrays: Any) -> list[np.ndarray]:
        return [np.zeros(shape, dtype) for shape, dtype in arrays]


_ZEROS = _Zeros()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 400),
    batch_size=st.integers(1, 50),
    group=st.integers(1, 3),
    chunk_bytes=st.integers(1, 4000),
    stretches=st.booleans(),
    is_shuffled=st.booleans(),
    data=st.data(),
)
def test_every_row_comes_once_and_in_order(
    rows: int, batch_size: int, group: int, chunk_bytes: int, stretches: bool, is_shuffled: bool, data: st.DataObject
) -> None:
    x = np.arange(rows, dtype=np.int32)[:, None]
    order = np.random.default_rng(0).permutation(rows) if is_shuffled else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
        reader = RowReader((x,), [np.dtype("int64")], batch_size, group, FreshMemory(), stretches)
    steps = -(-rows // reader.batch_size)
    first = data.draw(st.integers(0, steps - 1))
    stop = data.draw(st.integers(first + 1, steps))
    got, layouts = [], set()
    for chunk in reader.chunks(order, first, stop):
        taken = min(chunk.steps * chunk.batch_size, chunk.rows)
        got.append(chunk.data[0][:taken, 0])
        layouts.add((chunk.rows, chunk.batch_size))
    numbers = np.arange(rows) if order is None else order
    expected = numbers[first * reader.batch_size : min(stop * reader.batch_size, rows)]
    np.testing.assert_array_equal(np.concatenate(got), expected)
    # A program is compiled for each: short, long and the partial last batch.
    assert len(layouts) <= 3


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 200), batch_size=st.integers(1, 30), rank=st.integers(0, 2), is_shuffled=st.booleans())
def test_of_x_a_process_reads_its_rows_alone(rows: int, batch_size: int, rank: int, is_shuffled: bool) -> None:
    x, y = np.arange(1, rows + 1, dtype=np.int32)[:, None], np.arange(rows)
    order = np.random.default_rng(0).permutation(rows) if is_shuffled else None
    own_rows = Place(rank, ("", "", "")).computed_rows
    reader = RowReader((x, y), [x.dtype, y.dtype], batch_size, 1, _ZEROS, own_rows=own_rows)
    for chunk in reader.chunks(order, 0, -(-rows // reader.batch_size)):
        for step in range(chunk.steps):
            batch = slice(step * chunk.batch_size, (step + 1) * chunk.batch_size)
            ours, labels = chunk.data[0][batch, 0], chunk.data[1][batch]
            expected = np.zeros_like(ours)
            expected[own_rows(len(ours))] = labels[own_rows(len(ours))] + 1
            np.testing.assert_array_equal(ours, expected)


def test_long_passes_go_over_to_long_chunks() -> None:
    x = np.zeros((32 * 1875, 784), np.float32)
    reader = RowReader((x,), [x.dtype], 32, 1, FreshMemory(), stretches=True)
    lengths = [chunk.steps for chunk in reader.chunks(None, 0, 1875)]
    assert lengths[:5] == [*[reader.short] * 4, reader.long]
    assert sum(lengths) == 1875
    reader.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("flatout-gather")]


@pytest.mark.parametrize(("used_for", "is_locked"), [(0.5, True), (1.2, True), (5.0, False)])
def test_arrays_are_locked_after_a_pass_that_waited_for_its_rows(
    monkeypatch: pytest.MonkeyPatch, used_for: float, is_locked: bool
) -> None:
    """The device takes `used_for` seconds for a chunk, and long to compile for the first; gathering takes one."""
    clock, locks = [0.0], []
    gather = RowReader._gather

    def timed(*arguments: object) -> None:
        clock[0] += 1.0
        gather(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(chunks.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1600)
    monkeypatch.setattr(chunks, "locked", lambda leaf, dtype: locks.append(leaf))
    monkeypatch.setattr(RowReader, "_gather", timed)
    x = np.arange(4000, dtype=np.int32)[:, None]
    for fetches in (False, True):
        reader = RowReader((x,), [x.dtype], 10, 1, FreshMemory(), fetches=fetches)
        for _ in range(2):
            for number, _ in enumerate(reader.chunks(None, 0, 400)):
                clock[0] += 1000.0 if number == 0 else max(0.0, used_for - 1.0)
            reader.end_pass()
        assert len(locks) == (fetches and is_locked)


@given(steps=st.integers(1, 5000), most=st.integers(1, 300))
def test_chunks_of_even_length_leave_few_steps_over(steps: int, most: int) -> None:
    length = even_chunks(steps, most)
    assert 1 <= length <= max(most, steps)
    if steps > most:
        assert steps % length <= steps % most


def test_a_ring_gives_its_slots_in_turns_and_grows() -> None:
    ring = Ring(2)
    small = [((3,), np.dtype("float32")), ((2, 2), np.dtype("uint8"))]
    places = [ring(small)[0].ctypes.data for _ in range(4)]
    assert places[0] == places[2] != places[1] == places[3]
    first, second = ring(small)
    first[:], second[:] = 7, 9
    np.testing.assert_array_equal(first, 7)
    (large,) = ring([((100_000,), np.dtype("float64"))])
    large[:] = 1
    np.testing.assert_array_equal(first, 7)
    ring.close()
