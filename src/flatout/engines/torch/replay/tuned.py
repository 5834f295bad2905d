"""A thread in which cuDNN tries its kernels for convolutions.

Torch remembers for each thread which kernel a convolution has, also where a rule of thumb chose it: in a thread that
has run a model's step, none of its convolutions is tried any more. Graphs that were captured here need what cuDNN has
compiled, so the thread is there to the end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from flatout.base.uninterrupted import Uninterrupted

_Found = TypeVar("_Found")


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="flatout-cudnn")


def in_tuned_thread(work: Callable[[], _Found], device: torch.device) -> _Found:
    """What `work` returns there."""

    def on_device() -> _Found:
        with torch.cuda.device(device):
            return work()

    # Until it is done nobody else may use the model's memory.
    with Uninterrupted():
        return _thread().submit(on_device).result()
