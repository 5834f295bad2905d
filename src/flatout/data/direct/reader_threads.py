"""Threads that share out a list of tasks: the first failure stops all of them, and none outlives the call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
_LOOK_EVERY_SECONDS = 0.05


def share_out(
    tasks: Iterable[T], worker: Callable[[int, Iterator[T]], None], threads: int, look: Callable[[], None]
) -> None:
    """Run a worker in each of several threads over one common stream of tasks, which ends early once one has failed.

    Args:
        tasks: Each goes to exactly one worker.
        worker: Called with the number of its thread and the stream.
        threads: How many.
        look: Called by this thread every now and then while it waits.

    Raises:
        BaseException: What a worker raised, or an interruption of this thread, once all threads have ended.
    """
    lock, stream, stopped = threading.Lock(), iter(tasks), threading.Event()

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
            stopped.set()
            raise

    with ThreadPoolExecutor(threads, "flatout-direct") as crew:
        try:
            jobs = [crew.submit(run, number) for number in range(threads)]
            while wait(jobs, _LOOK_EVERY_SECONDS).not_done:
                look()
        finally:
            stopped.set()
    for job in jobs:
        job.result()
