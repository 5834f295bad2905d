"""State between torch's tensors and buffers, on the device."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from flatout.native.launch.buffers import DeviceArray

from .transfer import Cargo, value_of


class TorchFerry:
    """Copies tensors into buffers and back, on torch's own stream, and waits for it."""

    def __init__(self) -> None:
        # Buffers as tensors, each next to the variable that lies there.
        self._pairs: weakref.WeakKeyDictionary[Cargo, list[tuple[Any, torch.Tensor]]] = weakref.WeakKeyDictionary()

    def load(self, cargos: list[Cargo]) -> None:
        with torch.no_grad():
            for cargo in cargos:
                for variable, there in self._pairs_of(cargo):
                    there.copy_(variable.value)
        _wait()

    def store(self, cargos: list[Cargo], counter: Any = None, steps: int = 0) -> None:
        with torch.no_grad():
            for cargo in cargos:
                for variable, there in self._pairs_of(cargo):
                    variable.value.copy_(there)
            if counter is not None:
                counter.value.add_(steps)
        # The buffers may be written again at once.
        _wait()

    def read_count(self, variable: Any) -> int:
        return int(value_of(variable))

    def _pairs_of(self, cargo: Cargo) -> list[tuple[Any, torch.Tensor]]:
        if cargo not in self._pairs:
            self._pairs[cargo] = [(variable, _tensor(part)) for variable, part in cargo.parts]
        return self._pairs[cargo]


def _tensor(part: DeviceArray) -> torch.Tensor:
    """The memory itself as a tensor."""
    return torch.as_tensor(part, device="cuda") if part.is_cuda else torch.from_numpy(np.asarray(part))


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
