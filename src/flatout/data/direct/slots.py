"""Rows on their way through host memory: each thread fills one of its two slots while the other is copied.

The threads share out a list of tasks: the first failure stops all of them, and none outlives the call.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from flatout.data.device.pinned_memory import borrowed
from flatout.data.device.sinks import Sink, Wait, nothing_to_wait_for

from .load_report import Tally

T = TypeVar("T")
SLOTS_PER_THREAD = 2
_LOOK_EVERY_SECONDS = 0.05
# Fills a slot; returns where its block goes, and the block, which is a view of the slot.
FillSlot = Callable[[np.ndarray], tuple[tuple[int, ...], np.ndarray]]


def pass_through(
    tasks: Sequence[T],
    fills: Callable[[Iterator[T]], Iterator[FillSlot]],
    sink: Sink,
    slot_bytes: int,
    tally: Tally,
) -> None:
    """Read into slots, by what `fills` gives for tasks, and copy to a sink, by as many threads as the tally says."""
    count = tally.threads * SLOTS_PER_THREAD
    with borrowed(count * slot_bytes, pin=sink.wants_pinned) as slab:
        tally.is_pinned = slab.is_pinned
        if slab.why_not:
            tally.add_reason("pageable", f"The slots could not be page-locked: {slab.why_not}.")
        slots = slab.slots(count, slot_bytes)

        def worker(number: int, mine: Iterator[T]) -> None:
            own = slots[number * SLOTS_PER_THREAD : (number + 1) * SLOTS_PER_THREAD]
            _fill_and_copy(own, fills(mine), sink, tally)

        share_out(tasks, worker, tally.threads, tally.memory.sample)


def _fill_and_copy(slots: list[np.ndarray], fills: Iterator[FillSlot], sink: Sink, tally: Tally) -> None:
    pending: list[Wait] = [nothing_to_wait_for] * len(slots)
    try:
        for turn in itertools.cycle(range(len(slots))):
            with tally.timed("reading"):
                fill = next(fills, None)
            if fill is None:
                return
            with tally.timed("copying"):
                pending[turn]()
            with tally.timed("reading"):
                at, block = fill(slots[turn])
            with tally.timed("copying"):
                pending[turn] = sink.write(at, block)
    finally:
        # A copy that is still under way would read a slot that somebody else has borrowed.
        with tally.timed("copying"):
            for copied in pending:
                copied()


def share_out(
    tasks: Iterable[T], worker: Callable[[int, Iterator[T]], None], threads: int, look: Callable[[], None]
) -> None:
    """Run a worker in each of several threads over one common stream of tasks, which ends early once one has failed.

    A worker is called with the number of its thread and the stream; `look` every now and then by who waits for them.
    What a worker raised first, or an interruption of this thread, is raised once all threads have ended.
    """
    lock, stream, stopped, failed = threading.Lock(), iter(tasks), threading.Event(), list[int]()

    def until_stopped() -> Iterator[T]:
        while not stopped.is_set():
            with lock:
                try:
                    task = next(stream)
                except StopIteration:
                    return
            yield task

    def run(number: int) -> None:
        try:
            worker(number, until_stopped())
        except BaseException:
            failed.append(number)
            stopped.set()
            raise

    with ThreadPoolExecutor(threads, "flatout-direct") as crew:
        try:
            jobs = [crew.submit(run, number) for number in range(threads)]
            while wait(jobs, _LOOK_EVERY_SECONDS).not_done:
                look()
        finally:
            stopped.set()
    for number in failed:
        jobs[number].result()
