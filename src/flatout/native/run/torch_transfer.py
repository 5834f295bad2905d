"""State between torch's tensors and buffers, on the device."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from flatout.native.launch.buffers import DeviceArray

from .state_transfer import HostTransfer, VariableBlock


class TorchTransfer(HostTransfer):
    """Copies tensors into buffers and back, on torch's own stream, and waits for it."""

    def __init__(self) -> None:
        # Buffers as tensors, each next to the variable that lies there.
        self._pairs: weakref.WeakKeyDictionary[VariableBlock, list[Any]] = weakref.WeakKeyDictionary()

    def load(self, blocks: list[VariableBlock]) -> None:
        with torch.no_grad():
            for block in blocks:
                for variable, there in self._pairs_of(block):
                    there.copy_(variable.value)
        _wait()

    def store(self, blocks: list[VariableBlock], counter: Any = None, steps: int = 0) -> None:
        with torch.no_grad():
            for block in blocks:
                for variable, there in self._pairs_of(block):
                    variable.value.copy_(there)
            if counter is not None:
                counter.value.add_(steps)
        # The buffers may be written again at once.
        _wait()

    def _pairs_of(self, block: VariableBlock) -> list[tuple[Any, torch.Tensor]]:
        if block not in self._pairs:
            self._pairs[block] = [(variable, _tensor(part)) for variable, part in block.parts]
        return self._pairs[block]


def _tensor(part: DeviceArray) -> torch.Tensor:
    """The memory itself as a tensor."""
    return torch.as_tensor(part, device="cuda") if part.is_cuda else torch.from_numpy(np.asarray(part))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
