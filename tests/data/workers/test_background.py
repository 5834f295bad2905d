"""An iterator pulled on a thread gives what it would give without one, no further ahead than allowed."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.workers.background import Background, size_of

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


def threads() -> int:
    return sum(thread.name == "flatout-background" for thread in threading.enumerate())


class Counted:
    """Counts 0, 1, 2, ... and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_closed = False

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> int:
        self.asked += 1
        return self.asked - 1

    def close(self) -> None:
        self.is_closed = True


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(0, 40),
    items=st.integers(0, 9),
    nbytes=st.integers(0, 400),
    limit=st.none() | st.integers(0, 50),
    at_once=st.booleans(),
)
def test_items_come_in_order_whatever_the_bounds(
    length: int, items: int, nbytes: int, limit: int | None, at_once: bool
) -> None:
    rows = (np.full(10, number) for number in range(length))
    bytes_ahead = patch("flatout.data.workers.background.BYTES_AHEAD", nbytes)
    with bytes_ahead, Background(rows, items=items, at_once=at_once) as background:
        background.limit = limit
        seen = [int(item[0]) for item in background]
        assert next(background, None) is None
        assert background.taken == length
    assert seen == list(range(length))


def test_nothing_is_pulled_before_the_first_take_and_one_item_for_it() -> None:
    source = Counted()
    with Background(source) as background:
        assert source.asked == 0
        assert next(background) == 0
        time.sleep(0.05)
        assert source.asked == 1


def test_look_ahead_is_bounded_in_items() -> None:
    source = Counted()
    with Background(source, items=4) as background:
        next(background)
        next(background)
        assert until(lambda: source.asked == 6)
        time.sleep(0.05)
        assert source.asked == 6
        assert background.ready == 4
        assert [next(background) for _ in range(4)] == [2, 3, 4, 5]


def test_look_ahead_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.data.workers.background.BYTES_AHEAD", 400)
    batches = ((np.zeros(100, np.uint8), {"y": np.zeros(50, np.uint8)}) for _ in itertools.count())
    with Background(batches, items=64) as background:
        next(background)
        next(background)
        assert until(lambda: background.ready == 3)
        time.sleep(0.05)
        assert background.ready == 3


def test_size_counts_the_arrays_of_a_nest() -> None:
    assert size_of((np.zeros(3, np.float32), [np.zeros(2, np.uint8), None], {"a": np.zeros(1, np.int64)}, "text")) == 22


def test_limit_holds_look_ahead_back_but_not_what_is_asked_for() -> None:
    source = Counted()
    with Background(source) as background:
        background.limit = 3
        assert [next(background) for _ in range(3)] == [0, 1, 2]
        time.sleep(0.05)
        assert source.asked == 3
        assert next(background) == 3
        background.limit = 6
        assert until(lambda: source.asked == 6)


def test_error_is_raised_at_its_item_with_the_frames_of_the_user() -> None:
    def users_generator() -> Iterator[int]:
        yield 0
        yield 1
        raise KeyError("no such sample")

    with Background(users_generator()) as background:
        assert [next(background), next(background)] == [0, 1]
        with pytest.raises(KeyError, match="no such sample") as caught:
            next(background)
        assert "users_generator" in [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert next(background, None) is None


def test_without_look_ahead_there_is_no_thread() -> None:
    caller: list[threading.Thread] = []
    numbers = (caller.append(threading.current_thread()) or number for number in range(3))
    with Background(numbers, items=0) as background:
        assert next(background) == 0
        assert list(background) == [1, 2]
    assert set(caller) == {threading.current_thread()}


def test_close_ends_the_thread_and_closes_the_iterator() -> None:
    before = threads()
    source = Counted()
    background = Background(source, items=2)
    next(background)
    next(background)
    assert until(lambda: background.ready == 2)
    background.close()
    background.close()
    assert threads() == before
    assert source.is_closed
    assert list(background.unread()) == [2, 3]


def test_garbage_collection_ends_the_thread() -> None:
    before = threads()
    background = Background(itertools.count(), items=2)
    next(background)
    del background
    gc.collect()
    assert until(lambda: threads() == before)


def test_close_does_not_wait_for_ever_for_code_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatout.data.workers.background.PATIENCE", 0.1)
    go_on = threading.Event()

    def blocked() -> Iterator[int]:
        yield 0
        yield 1
        go_on.wait(60)
        yield 2

    before = threads()
    background = Background(blocked())
    next(background)
    next(background)
    start = time.monotonic()
    background.close()
    assert time.monotonic() - start < 10
    go_on.set()
    assert until(lambda: threads() == before)


def test_waiting_is_interrupted_by_ctrl_c() -> None:
    go_on = threading.Event()

    def blocked() -> Iterator[int]:
        go_on.wait(60)
        yield 0

    with Background(blocked()) as background:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(background)
        go_on.set()


def test_a_pause_does_not_wait_for_an_item_to_grow() -> None:
    most = 3000

    def growing() -> Iterator[int]:
        while True:
            size = 0
            while size < most and not background.is_waited_for:
                size += 1
                time.sleep(0.001)
            yield size

    with Background(growing(), items=2) as background:
        assert next(background) == 0
        # From the second one on the thread runs ahead, and the item in its hands grows until somebody wants it.
        next(background)
        assert until(lambda: background._shared.is_pulling)
        with background.paused():
            assert all(size < most for size, _ in background._shared.ready)
