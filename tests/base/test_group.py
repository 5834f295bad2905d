"""Which rows of a batch are a process' own, and what the first process tells the others."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.base.group import Group, Place

pytestmark = pytest.mark.backend("jax")  # It is the same for all.


def places(size: int) -> list[Place]:
    return [Place(rank, tuple(f"host:{port}" for port in range(size))) for rank in range(size)]


@given(rows=st.integers(0, 500), size=st.integers(1, 17))
@settings(deadline=None)
def test_parts_are_the_rows_each_once_and_in_order(rows: int, size: int) -> None:
    parts = [range(*place.rows_of(rows)) for place in places(size)]
    assert [row for part in parts for row in part] == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(rows=st.integers(1, 500), size=st.integers(1, 17))
@settings(deadline=None)
def test_who_has_no_row_of_a_batch_finds_one_to_compute(rows: int, size: int) -> None:
    for place in places(size):
        first, last = place.rows_of(rows)
        assert place.computed_rows(rows) == slice(first, max(last, first + 1))
        assert first < rows


class Meeting(Group):
    """Threads in the place of processes."""

    def __init__(self, place: Place, barrier: threading.Barrier, table: dict[int, np.ndarray]):
        super().__init__(place)
        self._barrier, self._table = barrier, table

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        self._table[self.place.rank] = numbers
        self._barrier.wait()
        total = np.sum(list(self._table.values()), axis=0, dtype=np.int32)
        self._barrier.wait()
        return total


@given(
    text=st.text(max_size=40),
    sizes=st.lists(st.integers(0, 5), max_size=4),
    kinds=st.lists(st.sampled_from(["float32", "int64", "bool", "float16", "uint8"]), min_size=4, max_size=4),
)
@settings(deadline=None, max_examples=30)
def test_all_have_what_the_first_says(text: str, sizes: list[int], kinds: list[str]) -> None:
    random, barrier, table = np.random.default_rng(0), threading.Barrier(3), {}  # type: ignore[var-annotated]
    arrays = [random.integers(0, 2, (size, 3)).astype(kind) for size, kind in zip(sizes, kinds, strict=False)]
    found: dict[int, Any] = {}

    def listen(place: Place) -> None:
        group = Meeting(place, barrier, table)
        own = arrays if group.is_first else [np.zeros_like(array) for array in arrays]
        found[place.rank] = group.told_by_first({"says": text} if group.is_first else {"says": place.rank}, own)

    threads = [threading.Thread(target=listen, args=(place,)) for place in places(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for message, values in found.values():
        assert message == {"says": text}
        for value, array in zip(values, arrays, strict=True):
            np.testing.assert_array_equal(value, array)
            assert value.dtype == array.dtype
