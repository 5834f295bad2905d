"""Processes that train one model on torch: sums by gloo, or by NCCL where each process has a GPU of its own."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from flatout.base.group import DividingGroup, Place
from flatout.seam.torch_backend import get_device

# Whoever starts the processes notices sooner if one is gone; this is for what nobody watches.
_PATIENCE = timedelta(hours=12)


class TorchGroup(DividingGroup):
    """Without torch's default group, by which Keras would take the model for one that it has to divide itself."""

    def __init__(self, place: Place):
        super().__init__(place)
        host, _, port = place.addresses[0].rpartition(":")
        store = dist.TCPStore(host, int(port), place.size, self.is_first, timeout=timedelta(minutes=5))
        self._device = torch.device(get_device())
        own = f"{socket.gethostname()} {_identity(self._device) or place.rank}"
        store.set(f"device {place.rank}", own)
        devices = {store.get(f"device {rank}") for rank in range(place.size)}
        self._uses_nccl = self._device.type == "cuda" and len(devices) == place.size
        make = dist.ProcessGroupNCCL if self._uses_nccl else dist.ProcessGroupGloo
        self._processes = make(dist.PrefixStore("flatout", store), place.rank, place.size, _PATIENCE)

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place, where the tensor is."""
        on_host = tensor if self._uses_nccl == tensor.is_cuda else tensor.to(self._device if self._uses_nccl else "cpu")
        self._processes.allreduce([on_host]).wait()
        return tensor if on_host is tensor else tensor.copy_(on_host)

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        return self._sum(torch.from_numpy(numbers.copy())).numpy()

    def rows_of_all(self, part: Any, first: int, last: int, total: int) -> Any:
        return _RowsOfAll.apply(part, self, first, last, total)

    def means(self, values: list[Any]) -> list[Any]:
        found: dict[torch.dtype, list[int]] = {}
        for number, value in enumerate(values):
            found.setdefault(value.dtype, []).append(number)
        means = list(values)
        with torch.no_grad():
            for numbers in found.values():
                bucket = torch.cat([values[number].reshape(-1) for number in numbers])
                self._sum(bucket).div_(self.place.size)
                parts = bucket.split([values[number].numel() for number in numbers])
                for number, part in zip(numbers, parts, strict=True):
                    means[number] = part.view(values[number].shape)
        return means


class _RowsOfAll(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: torch.Tensor, group: TorchGroup, first: int, last: int, total: int) -> torch.Tensor:
        context.rows = (group.place.size, first, last, part.shape[0])
        rows = part.new_zeros((total, *part.shape[1:]), dtype=torch.uint8 if part.dtype == torch.bool else None)
        rows[first:last] = part[: last - first]
        return group._sum(rows).to(part.dtype)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        size, first, last, length = context.rows
        own = gradients[0][first:last] * size
        missing = own.new_zeros((length - (last - first), *own.shape[1:]))
        return torch.cat([own, missing]) if len(missing) else own, None, None, None, None


def _identity(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
