"""Rows into a torch tensor on Keras' device, by copies that run beside the reads."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np
import torch

from flatout.data.device.sinks import DeviceMemory, Wait, nothing_to_wait_for, position, require_numbers
from flatout.seam.torch_backend import get_device, to_torch_dtype


class TorchSink:
    """One tensor, allocated once; each reader thread copies into it on a CUDA stream of its own.

    `cast_to` is Keras' name of its dtype, by default Keras' counterpart of the file's.

    Example:
        >>> import numpy as np
        >>> sink = TorchSink((4, 2), np.dtype("float32"))
        >>> sink.write((1,), np.ones((3, 2), "float32"))()
        >>> sink.finish().shape
        torch.Size([4, 2])
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0, *, cast_to: str | None = None
    ):
        require_numbers(dtype, "torch")
        self._device = torch.device(get_device())
        self.wants_pinned = self._device.type == "cuda"
        kept = to_torch_dtype(cast_to or dtype.name)
        self._is_as_in_file = torch.from_numpy(np.empty(0, dtype)).dtype == kept
        lead = page_offset if self.wants_pinned and page_offset % 64 == 0 else 0
        nbytes = math.prod(shape) * kept.itemsize
        with torch.no_grad():
            memory = torch.empty(lead + nbytes, dtype=torch.uint8, device=self._device)
            self._tensor = memory[lead:].view(kept).view(shape)
        self._streams = threading.local()
        if self.wants_pinned:
            # The allocator may hand out memory that kernels already queued are still to read.
            self._allocated = torch.cuda.current_stream(self._device).record_event()

    @functools.cached_property
    def device_memory(self) -> DeviceMemory | None:
        """The tensor's memory, free to be written by its address."""
        if not (self.wants_pinned and self._is_as_in_file):
            return None
        self._allocated.synchronize()
        return DeviceMemory(self._tensor.data_ptr(), self._tensor.numel() * self._tensor.itemsize)

    @torch.no_grad()
    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        target, source = self._tensor[position(at, block)], torch.from_numpy(block)
        if not self.wants_pinned:
            target.copy_(source)
            return nothing_to_wait_for
        with torch.cuda.stream(self._own_stream()):
            # Cast on the device: a copy that casts would do so on the host, in pageable memory.
            placed = source if self._is_as_in_file else source.to(self._device, non_blocking=True)
            target.copy_(placed, non_blocking=True)
            # Blocking: eight threads that spin would take the cores from those that read.
            copied = torch.cuda.Event(blocking=True)
            copied.record()
        return copied.synchronize

    def finish(self) -> torch.Tensor:
        return self._tensor

    def _own_stream(self) -> torch.cuda.Stream:
        stream = getattr(self._streams, "stream", None)
        if stream is None:
            stream = self._streams.stream = torch.cuda.Stream(self._device)
            stream.wait_event(self._allocated)
        return stream
