"""Batches are copied if their source may overwrite them, and only then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from flatout.data.batches.batch_sources import WATCHED, OverwriteWatch, copied

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")

ROWS = np.arange(60.0).reshape(30, 2)
BUFFERS = [np.zeros((3, 2)) for _ in range(WATCHED + 1)]


def new_arrays(index: int) -> Any:
    return np.full((3, 2), index), {"weight": np.full(3, index)}


def slices(index: int) -> Any:
    return (ROWS[3 * index : 3 * index + 3],)


def one_buffer(index: int) -> Any:
    BUFFERS[0][:] = index
    return np.full(3, index), {"x": BUFFERS[0]}


def views_of_one_buffer(index: int) -> Any:
    BUFFERS[0][:] = index
    return (BUFFERS[0][: index % 3 + 1],)


def buffers_in_turn(index: int) -> Any:
    buffer = BUFFERS[index % WATCHED]
    buffer[:] = index
    return (buffer,)


def no_arrays(index: int) -> Any:
    return index, None


@pytest.mark.parametrize(
    ("make", "overwrites"),
    [
        (new_arrays, False),
        (slices, False),
        (no_arrays, False),
        (one_buffer, True),
        (views_of_one_buffer, True),
        (buffers_in_turn, True),
    ],
)
def test_memory_that_comes_again_is_noticed(make: Callable[[int], Any], overwrites: bool) -> None:
    watch = OverwriteWatch()
    made = [copied(make(index)) for index in range(10)]
    for _ in range(2):
        for got, expected in zip(list(watch.protected(map(make, range(10)))), made, strict=True):
            assert str(got) == str(expected)
    assert watch.overwrites is overwrites


def test_batches_of_new_arrays_are_given_as_they_are_after_the_first_ones() -> None:
    made = [(np.zeros(2),) for _ in range(WATCHED + 3)]
    got = list(OverwriteWatch().protected(made))
    assert [ours is theirs for ours, theirs in zip(got, made, strict=True)] == [False] * WATCHED + [True] * 3


def test_a_dataset_that_keeps_its_batches_is_not_taken_for_one_that_overwrites_them_in_the_next_epoch() -> None:
    watch = OverwriteWatch()
    made = [(np.zeros(2),) for _ in range(2)]
    for _ in range(5):
        list(watch.protected(made))
    assert watch.overwrites is None


def test_nothing_is_held_once_it_is_clear() -> None:
    references: list[Any] = []

    def arrays() -> Iterator[Any]:
        for _ in range(WATCHED + 2):
            array = np.zeros(2)
            references.append(weakref.ref(array))
            yield (array,)
            del array

    batches = OverwriteWatch().protected(arrays())
    for _ in range(WATCHED + 1):
        next(batches)
    gc.collect()
    assert [reference() for reference in references[:WATCHED]] == [None] * WATCHED
