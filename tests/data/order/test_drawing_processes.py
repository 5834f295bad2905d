"""Orders that other processes draw are those of NumPy's generator here, whatever becomes of those processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from flatout.data.order.drawing_processes import DrawingProcesses

ROWS = 5000


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Iterator[DrawingProcesses]:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    made = DrawingProcesses(ROWS)
    yield made
    made.close()


def states(count: int) -> list[Any]:
    return [np.random.RandomState(number).get_state() for number in range(count)]


def expected(state: Any, rows: list[int]) -> list[np.ndarray]:
    generator = np.random.RandomState()
    generator.set_state(state)
    return [generator.permutation(count) for count in rows]


def test_each_generator_goes_on_from_its_own_state(drawing: DrawingProcesses) -> None:
    generators = [(expected(state, [ROWS] * 3), drawing.generator(state)) for state in states(5)]
    for number in range(3):
        for _, one in generators:
            assert one is not None
            one.look(ROWS)
            one.look(ROWS)
        for orders, one in generators:
            assert one is not None
            np.testing.assert_array_equal(one.take(ROWS), orders[number])


def test_orders_of_several_lengths_one_after_the_other(drawing: DrawingProcesses) -> None:
    (state,) = states(1)
    one = drawing.generator(state)
    assert one is not None
    rows = [ROWS, 4999, ROWS, 1]
    for count, order in zip(rows, expected(state, rows), strict=True):
        one.look(count)
        np.testing.assert_array_equal(one.take(count), order)


def test_an_order_stays_while_the_next_is_drawn(drawing: DrawingProcesses) -> None:
    (state,) = states(1)
    first, second = expected(state, [ROWS, ROWS])
    one = drawing.generator(state)
    assert one is not None
    taken = one.take(ROWS)
    # Drawn into the place of this generator.
    np.testing.assert_array_equal(one.take(ROWS), second)
    np.testing.assert_array_equal(taken, first)


def test_a_process_that_is_killed_is_not_missed(drawing: DrawingProcesses) -> None:
    both = [(state, drawing.generator(state)) for state in states(2)]
    orders = [expected(state, [ROWS] * 4) for state, _ in both]
    for number in range(4):
        for (_, one), known in zip(both, orders, strict=True):
            assert one is not None
            one.look(ROWS)
            if number == 2:
                one._process._process.kill()
            np.testing.assert_array_equal(one.take(ROWS), known[number])


def test_places_are_given_back(drawing: DrawingProcesses) -> None:
    state = states(1)[0]
    for _ in range(40):
        one = drawing.generator(state)
        assert one is not None
        one.look(ROWS)
        one.close()
    held = [drawing.generator(state) for _ in range(33)]
    assert held[31] is not None
    assert held[32] is None


def test_few_cores_or_rows_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert DrawingProcesses(ROWS).generator(states(1)[0]) is None
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert DrawingProcesses(100).generator(states(1)[0]) is None
