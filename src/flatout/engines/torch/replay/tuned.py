"""A thread in which cuDNN tries its kernels for convolutions.

Torch remembers for each thread which kernel a convolution has, also where a rule of thumb chose it: in a thread that
has run a model's step, none of its convolutions is tried any more. Graphs that were captured here need what cuDNN has
compiled, so the thread is there to the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from flatout.base.uninterrupted import Uninterrupted

_Found = TypeVar("_Found")
_tasks: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
_begun = threading.Lock()


def in_tuned_thread(work: Callable[[], _Found], stream: torch.cuda.Stream) -> _Found:
    """What `work` returns there, on the caller's stream."""

    def on_stream() -> _Found:
        with torch.cuda.stream(stream):
            return work()

    return in_one_thread(on_stream)


def in_one_thread(work: Callable[[], _Found]) -> _Found:
    """What `work` returns in a thread that is always the same."""
    if _begun.acquire(blocking=False):
        # No executor, whose threads end before others do that may still train.
        threading.Thread(target=_work, name="flatout-cudnn", daemon=True).start()
    answer: Future[_Found] = Future()
    # Until it is done nobody else may use the model's memory.
    with Uninterrupted():
        _tasks.put((work, answer))
        return answer.result()


def _work() -> None:
    while True:
        _do(*_tasks.get())


def _do(work: Callable[[], Any], answer: Future[Any]) -> None:
    try:
        answer.set_result(work())
    except BaseException as error:
        answer.set_exception(error)
