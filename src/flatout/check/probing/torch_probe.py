"""Probes for torch: operations by line, host reads by line, (B,) against (B, 1)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .user_line import UserLine, of_frames

_BINARY = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div", "aten::rsub"})
_READS = {
    "item": "FO201",
    "numpy": "FO201",
    "tolist": "FO201",
    "__float__": "FO201",
    "__int__": "FO201",
    "__bool__": "FO202",
    "__array__": "FO205",
}


def tensors(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arrays as tensors."""
    return {name: torch.as_tensor(value) for name, value in values.items()}


def eager(function: Callable[..., Any], values: dict[str, np.ndarray]) -> np.ndarray:
    """The value as NumPy, run as plain Python."""
    return np.asarray(torch.as_tensor(function(**tensors(values))).detach())


def compiled(function: Callable[..., Any]) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """The function as `fit` runs it: on torch, plain Python."""
    return lambda values: eager(function, values)


def gradient(function: Callable[..., Any], values: dict[str, np.ndarray], pred: str) -> np.ndarray | None:
    """The gradient with respect to the outputs; None if there is no path."""
    given = tensors(values)
    given[pred].requires_grad_(True)
    result = torch.as_tensor(function(**given)).sum()
    if not result.requires_grad:
        return None
    (found,) = torch.autograd.grad(result, given[pred], allow_unused=True)
    return None if found is None else np.asarray(found)


def operations(function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]) -> Counter[UserLine]:
    """How many operations each line of the user's files gives rise to."""
    counting = _Counting(files)
    with counting:
        function(**tensors(values))
    return counting.lines


def accidents(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str], batch: int
) -> Counter[UserLine]:
    """The lines that combine (B,) with (B, 1)."""
    counting = _Counting(files, batch)
    with counting:
        function(**tensors(values))
    return counting.broadcasts


def host_reads(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]
) -> Counter[tuple[str, UserLine]]:
    """How often each line reads from the device in one call, with the code of the rule."""
    watching = _Watching(files)
    given = tensors(values)
    with watching:
        function(**given)
    return watching.reads


class _Counting(TorchDispatchMode):
    def __init__(self, files: set[str], batch: int = 0):
        super().__init__()
        self._files = files
        self._batch = batch
        self.lines: Counter[UserLine] = Counter()
        self.broadcasts: Counter[UserLine] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        place = of_frames(sys._getframe(1), self._files)
        if place is not None:
            self.lines[place] += 1
            shapes = [tuple(one.shape) for one in args if isinstance(one, torch.Tensor)]
            if (
                self._batch
                and function.name().split(".")[0] in _BINARY
                and sorted(shapes) == [(self._batch,), (self._batch, 1)]
            ):
                self.broadcasts[place] += 1
        return function(*args, **(kwargs or {}))


class _Watching(TorchFunctionMode):
    """Counts calls of what copies to the host, outermost ones only: `float` calls `item`."""

    _READERS: ClassVar = {getattr(torch.Tensor, name): code for name, code in _READS.items()}

    def __init__(self, files: set[str]):
        super().__init__()
        self._files = files
        self.reads: Counter[tuple[str, UserLine]] = Counter()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        code = self._READERS.get(function)
        place = of_frames(sys._getframe(1), self._files) if code is not None else None
        if code is not None and place is not None:
            self.reads[code, place] += 1
        return function(*args, **(kwargs or {}))


def error_code(error: BaseException) -> str:
    """The rule that an exception stands for; empty if none."""
    return "FO501" if "does not require grad" in str(error) else ""
