"""State between jax's arrays and buffers, on the GPU."""

from __future__ import annotations

import dataclasses
import functools
import math
import weakref
from typing import Any

import jax
import numpy as np

from flatout.native.launch.launcher import Launcher
from flatout.seam.variable_state import put_value

from .state_transfer import HostTransfer, VariableBlock


class JaxTransfer(HostTransfer):
    """Copies by address into buffers; back by a compiled program, as only jax makes arrays of jax."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        # Arrays that are being copied.
        self._on_the_way: list[Any] = []
        # What each block's variables were given last: arrays of jax never change, so these need not be loaded again.
        self._stored: weakref.WeakKeyDictionary[VariableBlock, list[Any]] = weakref.WeakKeyDictionary()
        self._views: weakref.WeakKeyDictionary[VariableBlock, Any] = weakref.WeakKeyDictionary()
        # The array that a counter was given last, and what is in it: asking the device takes as long as ten steps.
        self._count: tuple[Any, int] = (None, 0)

    def load(self, blocks: list[VariableBlock]) -> None:
        self._on_the_way.clear()
        for block in blocks:
            values = [variable.value for variable in block.variables]
            stored = self._stored.get(block)
            if stored is None or any(a is not b for a, b in zip(values, stored, strict=True)):
                self._on_the_way += jax.block_until_ready(values)
                for value, (_, part) in zip(values, block.parts, strict=True):
                    self._launcher.copy(part, dataclasses.replace(part, pointer=value.unsafe_buffer_pointer()))
            # Nobody knows what the buffer will hold if the steps that come now fail.
            self._stored.pop(block, None)

    def store(self, blocks: list[VariableBlock], counter: Any = None, steps: int = 0) -> None:
        views = [self._view(block) for block in blocks]
        shapes = tuple(tuple(tuple(variable.shape) for variable in block.variables) for block in blocks)
        # The buffers may be written again at once.
        before = None if counter is None else counter.value
        stored, after = jax.block_until_ready(_splitting(shapes)(views, before, np.int32(steps)))
        for block, values in zip(blocks, stored, strict=True):
            for variable, value in zip(block.variables, values, strict=True):
                put_value(variable, value)
            self._stored[block] = values
        if counter is not None:
            self._count = (after, self.read_count(counter) + steps)
            put_value(counter, after)

    def read_count(self, variable: Any) -> int:
        array, count = self._count
        return count if variable.value is array else super().read_count(variable)

    def _view(self, block: VariableBlock) -> Any:
        """The buffer itself as an array of jax. Kernels change it, of which jax knows nothing and needs not to."""
        if block not in self._views:
            size = math.prod(block.buffer.shape)
            self._views[block] = jax.dlpack.from_dlpack(block.buffer.part((size,), 0))
        return self._views[block]


@functools.cache
def _splitting(shapes: tuple[tuple[tuple[int, ...], ...], ...]) -> Any:
    """A function from buffers to arrays of these shapes, compiled once for all models that have them.

    It counts steps as well: in a program of its own that would take as long again.
    """

    @jax.jit
    def split(views: list[Any], count: Any, steps: Any) -> tuple[list[list[Any]], Any]:
        found = []
        for view, parts in zip(views, shapes, strict=True):
            values, offset = [], 0
            for shape in parts:
                size = math.prod(shape)
                values.append(view[offset : offset + size].reshape(shape))
                offset += size
            found.append(values)
        return found, None if count is None else count + steps.astype(count.dtype)

    return split
