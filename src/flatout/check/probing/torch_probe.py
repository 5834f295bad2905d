"""Probes for torch: operations and host reads by line."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.vectorize.verify.gradients import Arrays, on_device, value_and_gradient

from .live_functions import Operation, innermost

_READS = {"item": "FO201", "numpy": "FO201", "tolist": "FO201", "__float__": "FO201", "__int__": "FO201",
          "__bool__": "FO202", "__array__": "FO205"}  # fmt: skip
_READERS = {getattr(torch.Tensor, name): code for name, code in _READS.items()}


def compiled(function: Callable[..., Any]) -> Callable[[Arrays], np.ndarray]:
    """The function as `fit` runs it: on torch, plain Python."""
    return lambda values: value_and_gradient(function, values, None)[0]


def operations(function: Callable[..., Any], values: Arrays, names: set[str]) -> list[Operation]:
    """The operations that the lines of the user's file give rise to."""
    with _Recording(names) as recording:
        function(**on_device(values))
    return recording.operations


def host_reads(function: Callable[..., Any], values: Arrays, names: set[str]) -> Counter[tuple[str, int]]:
    """How often each line reads from the device in one call, with the code of the rule."""
    with _Watching(names) as watching:
        function(**on_device(values))
    return watching.reads


class _Recording(TorchDispatchMode):
    def __init__(self, names: set[str]):
        super().__init__()
        self._names = names
        self.operations: list[Operation] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = innermost(traceback.walk_stack(sys._getframe(1)), self._names)
        if line is not None:
            shapes = [tuple(one.shape) for one in args if isinstance(one, torch.Tensor)]
            self.operations.append(Operation(line, function.name().split(".")[0], shapes))
        return function(*args, **(kwargs or {}))


class _Watching(TorchFunctionMode):
    """Counts calls of what copies to the host, outermost ones only: `float` calls `item`."""

    def __init__(self, names: set[str]):
        super().__init__()
        self._names = names
        self.reads: Counter[tuple[str, int]] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        code = _READERS.get(function)
        line = innermost(traceback.walk_stack(sys._getframe(1)), self._names) if code is not None else None
        if code is not None and line is not None:
            self.reads[code, line] += 1
        return function(*args, **(kwargs or {}))
