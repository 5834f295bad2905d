"""Threads that share out a list of tasks: the first failure stops all of them, and none outlives the call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_LOOK_EVERY_SECONDS = 0.05
_DEFAULT_THREADS, _THREADS_PER_CORE = 8, 4


def thread_count(wanted: int | None) -> int:
    """As many reader threads as asked for, eight by default, and at most four for each core."""
    if wanted is not None and wanted < 1:
        raise ValueError(f"Invalid value for `threads`. Received: {wanted}. Expected at least 1.")
    return min(wanted or _DEFAULT_THREADS, (os.cpu_count() or 1) * _THREADS_PER_CORE)


def share_out(
    tasks: Iterable[T], worker: Callable[[int, Iterator[T]], None], threads: int, look: Callable[[], None]
) -> None:
    """Run a worker in each of several threads over one common stream of tasks.

    Args:
        tasks: Each goes to exactly one worker.
        worker: Called with the number of its thread and the stream, which ends early once another worker has failed.
        threads: How many.
        look: Called by this thread every now and then while it waits.

    Raises:
        BaseException: What a worker raised first, or an interruption of this thread, once all threads have ended.
    """
    lock, stream, failures = threading.Lock(), iter(tasks), list[BaseException]()
    stopped = threading.Event()

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
        except BaseException as error:
            failures.append(error)
            stopped.set()

    crew = [threading.Thread(target=run, args=(number,), name=f"flatout-direct-{number}") for number in range(threads)]
    try:
        for thread in crew:
            thread.start()
        for thread in crew:
            while thread.is_alive():
                thread.join(_LOOK_EVERY_SECONDS)
                look()
    finally:
        stopped.set()
        for thread in crew:
            if thread.ident is not None:
                thread.join()
    if failures:
        raise failures[0]
