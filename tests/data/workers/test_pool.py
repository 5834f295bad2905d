"""Workers make the batches of a dataset in order, from its present state, and leave nothing behind."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import random
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.data.workers.pool import InOrder, Processes, Threads

POOLS = [Threads, Processes]
# Workers know nothing of backends. That they get on with each one's threads is for the first test to show.
pytestmark = pytest.mark.backend("jax")


class Rows(keras.utils.PyDataset):
    """Batch i holds i; some take longer than others."""

    def __init__(self, length: int = 8) -> None:
        super().__init__()
        self.length = length
        self.factor = 1

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(random.Random(index).random() * 0.003)
        return np.full((2, 3), index * self.factor, np.float32), np.full(2, index)


class Shuffled(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.indices = np.arange(8)

    def __getitem__(self, index: int) -> Any:
        return (np.full(3, self.indices[index]),)

    def on_epoch_end(self) -> None:
        self.indices = self.indices[::-1].copy()


class Unpicklable(Shuffled):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1

    def __getitem__(self, index: int) -> Any:
        return (np.full(3, self.transform(index)),)

    def on_epoch_end(self) -> None:
        factor = self.scale = self.scale * 10
        self.transform = lambda index: index * factor

    transform = staticmethod(lambda index: index)


class Structures(keras.utils.PyDataset):
    """Batches of every make, each larger than the one before."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        rows = 10 ** (index % 6)
        whole = np.arange(rows * 6, dtype=np.float32).reshape(rows, 6)
        return (
            {"a": whole, "strided": whole[:, ::2], "fortran": np.asfortranarray(whole)},
            [np.array(["text", None], dtype=object), np.zeros((0, 4)), np.array(index, np.int8)],
            {"name": f"batch {index}", "none": None, "half": np.ones(rows, np.float16)},
        )


class Failing(Rows):
    def __getitem__(self, index: int) -> Any:
        if index == 3:
            self.look_up(index)
        return super().__getitem__(index)

    def look_up(self, index: int) -> None:
        raise LookupError("no such sample", index)


class OddError(Exception):
    """Pickle cannot make it again: its arguments are not those of its constructor."""

    def __init__(self, one: int, two: int):
        super().__init__(f"{one} and {two}")
        self.one = one


class LockedError(Exception):
    """Cannot be pickled at all."""

    def __init__(self, text: str):
        super().__init__(text)
        self.lock = threading.Lock()


class FailingOddly(Rows):
    def __getitem__(self, index: int) -> Any:
        try:
            raise OSError(2, "gone", "a.png")
        except OSError as error:
            raise (OddError(1, 2) if index else LockedError("1 and 2")) from error


def shared_memory() -> set[Path]:
    """What lies in /dev/shm, without the semaphores of other processes: tests run beside other tests."""
    mapped = Path("/proc/self/maps").read_text()
    return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.mp-") or str(path) in mapped}


def children() -> int:
    return len(multiprocessing.active_children())


def worker_threads() -> int:
    return sum(thread.name.startswith("flatout-worker") for thread in threading.enumerate())


@pytest.fixture(params=POOLS, ids=["threads", "processes"])
def pool_class(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = shared_memory(), children(), worker_threads()
    yield
    # To collect takes half a second in a process that has loaded a backend.
    if (children(), worker_threads()) != before[1:]:
        gc.collect()
    assert (shared_memory(), children(), worker_threads()) == before


@pytest.mark.backend("jax", "tensorflow", "torch")
@settings(max_examples=12, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 7), max_size=25),
    count=st.integers(1, 4),
    ahead=st.integers(1, 12),
    limit=st.none() | st.integers(0, 30),
    pool_class=st.sampled_from(POOLS),
)
def test_batches_come_in_order_whatever_the_workers(
    numbers: list[int], count: int, ahead: int, limit: int | None, pool_class: Any
) -> None:
    pool = pool_class(Rows(), count)
    batches = InOrder(pool, iter(numbers), ahead)
    batches.limit = limit
    seen: list[int] = []
    for x, y in batches:
        assert x.shape == (2, 3)
        assert np.all(x == y[0])
        seen.append(int(y[0]))
    pool.close()
    assert seen == numbers


def test_first_take_orders_one_batch_and_the_limit_is_kept(pool_class: Any) -> None:
    drawn: list[int] = []
    numbers = (drawn.append(number) or number for number in itertools.count())
    pool = pool_class(Rows(), 2)
    batches = InOrder(pool, numbers, 5)
    batches.limit = 4
    next(batches)
    assert drawn == [0]
    next(batches)
    assert drawn == [0, 1, 2, 3]
    for _ in range(3):
        next(batches)
    assert drawn == [0, 1, 2, 3, 4]
    pool.close()


def test_structures_dtypes_and_orders_cross_processes_and_slots_grow() -> None:
    pool = Processes(Structures(), 2)
    for index, batch in enumerate(InOrder(pool, iter([0, 1, 2, 3, 4, 5, 0, 1, 2]), 3)):
        expected = Structures()[index % 6]
        x, others, rest = batch
        assert list(x) == list(expected[0])
        for name, array in x.items():
            np.testing.assert_array_equal(array, expected[0][name])
            assert array.dtype == np.float32
        assert x["a"].ctypes.data % 64 == 0
        assert x["a"].flags.writeable
        assert x["fortran"].flags.f_contiguous
        assert others[0].tolist() == ["text", None]
        assert others[1].shape == (0, 4)
        assert others[2].shape == ()
        assert rest["name"] == f"batch {index % 6}"
        assert rest["half"].dtype == np.float16
    pool.close()


def test_a_view_is_good_for_as_long_as_it_is_kept() -> None:
    pool = Processes(Rows(), 2)
    kept = [x[1:, ::2] for x, _ in InOrder(pool, (i % 8 for i in range(40)), 4)]
    pool.close()
    assert [int(x[0, 0]) for x in kept] == [i % 8 for i in range(40)]


def test_slots_are_used_again() -> None:
    pool = Processes(Rows(), 2)
    for _ in InOrder(pool, (i % 8 for i in range(60)), 3):
        pass
    assert sum(worker.count for worker in pool._workers) <= 8
    pool.close()


def test_what_jax_makes_of_a_batch_outlives_the_slot() -> None:
    jax = pytest.importorskip("jax")
    pool = Processes(Rows(), 1)
    arrays = [jax.device_put(x) for x, _ in InOrder(pool, (i % 8 for i in range(30)), 2)]
    pool.close()
    assert [int(x[0, 0]) for x in arrays] == [i % 8 for i in range(30)]


def test_an_abandoned_pass_does_not_disturb_the_next(pool_class: Any) -> None:
    pool = pool_class(Rows(), 2)
    first = InOrder(pool, iter(range(8)), 6)
    next(first)
    next(first)
    first.close()
    assert next(first, None) is None
    assert [int(y[0]) for _, y in InOrder(pool, iter(range(8)), 6)] == list(range(8))
    pool.close()


@pytest.mark.parametrize("dataset", [Shuffled(), Unpicklable()], ids=["sent", "inherited"])
def test_workers_see_what_the_hooks_changed(dataset: Any) -> None:
    pool = Processes(dataset, 2)
    for _ in range(3):
        pool.refresh()
        expected = [int(dataset[index][0][0]) for index in range(8)]
        assert [int(batch[0][0]) for batch in InOrder(pool, iter(range(8)), 4)] == expected
        dataset.on_epoch_end()
    pool.close()


def test_workers_see_attributes_set_and_deleted_by_others_and_are_not_started_anew() -> None:
    dataset = Rows()
    dataset.big = np.zeros(20 * 2**20, np.uint8)
    dataset.extra = 1
    pool = Processes(dataset, 1)

    def first() -> float:
        return float(next(iter(InOrder(pool, iter([1]), 1)))[0][0, 0])

    assert first() == 1
    pids = [worker.process.pid for worker in pool._workers]
    dataset.factor = 7
    del dataset.extra
    pool.refresh()
    assert first() == 7
    pool.refresh()
    assert [worker.process.pid for worker in pool._workers] == pids
    pool.close()


def test_the_users_exception_arrives_with_type_arguments_and_frames(pool_class: Any) -> None:
    pool = pool_class(Failing(), 2)
    batches = InOrder(pool, iter(range(8)), 8)
    seen = [int(item[1][0]) for item in itertools.islice(batches, 3)]
    assert seen == [0, 1, 2]
    with pytest.raises(LookupError) as caught:
        next(batches)
    assert caught.value.args == ("no such sample", 3)
    frames = {frame.name: frame for frame in traceback.extract_tb(caught.tb)}
    assert frames["look_up"].filename == __file__
    assert frames["look_up"].line == 'raise LookupError("no such sample", index)'
    batches.close()
    pool.close()


def test_an_exception_that_pickle_cannot_make_again_keeps_its_text_frames_and_cause() -> None:
    pool = Processes(FailingOddly(), 1)
    for number, kind, text in ((0, RuntimeError, "LockedError: 1 and 2"), (1, OddError, "1 and 2")):
        with pytest.raises(kind, match=text) as caught:
            next(InOrder(pool, iter([number]), 1))
        assert str(traceback.extract_tb(caught.tb)[-1].line).startswith("raise (OddError(1, 2) if index else")
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert caught.value.__cause__.filename == "a.png"
        assert getattr(caught.value, "one", 1) == 1
    pool.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_users_start_method_is_taken(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: method)
    pool = Processes(NumPyOnly(), 1)
    batches = InOrder(pool, iter(range(3)), 2)
    next(batches)
    assert type(pool._workers[0].process).__name__.lower() == f"{method}process"
    assert [int(x[0]) for (x,) in batches] == [1, 2]
    pool.close()


class NumPyOnly:
    """Stands for a PyDataset; Keras would take seconds to import in a spawned worker."""

    def __getitem__(self, index: int) -> Any:
        return (np.full(2, index),)

    on_epoch_begin = keras.utils.PyDataset.on_epoch_begin
    on_epoch_end = keras.utils.PyDataset.on_epoch_end


def test_workers_end_when_the_pool_is_collected(pool_class: Any) -> None:
    pool = pool_class(Rows(), 2)
    next(InOrder(pool, iter(range(3)), 2))
    del pool
    gc.collect()
    deadline = time.monotonic() + 10
    while (children() or worker_threads()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children() == worker_threads() == 0


class Blocked(Rows):
    def __getitem__(self, index: int) -> Any:
        time.sleep(600 if index == 1 else 0)
        return super().__getitem__(index)


def test_closing_ends_a_wait_in_another_thread() -> None:
    pool = Processes(Blocked(), 1)
    batches = InOrder(pool, iter(range(8)), 2)
    outcome: list[Any] = []
    waiting = threading.Thread(target=lambda: outcome.extend([next(batches, None), next(batches, None)]))
    waiting.start()
    time.sleep(0.5)
    batches.close()
    pool.close()
    waiting.join(20)
    assert [batch is None for batch in outcome] == [False, True]


def test_workers_inherit_no_interrupt() -> None:
    pool = Processes(Rows(), 1)
    batches = InOrder(pool, iter(range(8)), 2)
    next(batches)
    os.kill(pool._workers[0].process.pid, 2)
    assert [int(y[0]) for _, y in batches] == list(range(1, 8))
    pool.close()
