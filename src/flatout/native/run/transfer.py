"""How values cross between Keras' variables and buffers: by way of the host, for any backend."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.native.launch.buffers import DeviceArray


@dataclass(frozen=True, eq=False)
class VariableBlock:
    """Variables of float32 whose values lie one after another in a buffer."""

    buffer: DeviceArray
    variables: tuple[Any, ...]

    @functools.cached_property
    def offsets(self) -> list[int]:
        """Where in the buffer each variable begins."""
        sizes = (math.prod(variable.shape) for variable in self.variables[:-1])
        return list(itertools.accumulate(sizes, initial=0))

    @functools.cached_property
    def parts(self) -> list[tuple[Any, DeviceArray]]:
        """Each variable, and where it lies."""
        both = zip(self.variables, self.offsets, strict=True)
        return [(variable, self.buffer.part(tuple(variable.shape), offset)) for variable, offset in both]


class HostTransfer:
    """Copies state by way of the host, for any backend and launcher.

    When a method returns, the copies are made, or ordered before all that the launcher runs next.
    """

    def load(self, blocks: list[VariableBlock]) -> None:
        """Copy values of variables into their buffers."""
        for block in blocks:
            block.buffer.assign(np.concatenate([value_of(variable).reshape(-1) for variable in block.variables]))

    def store(self, blocks: list[VariableBlock], counter: Any = None, steps: int = 0) -> None:
        """Copy buffers into their variables, and count the steps that have changed them."""
        for block in blocks:
            values = np.split(block.buffer.numpy().reshape(-1), block.offsets[1:])
            for variable, value in zip(block.variables, values, strict=True):
                variable.assign(value.reshape(tuple(variable.shape)))
        if counter is not None:
            counter.assign(self.read_count(counter) + steps)

    def read_count(self, variable: Any) -> int:
        """The value of a counter."""
        return int(value_of(variable))


def value_of(variable: Any) -> np.ndarray:
    """The value of a variable, on the host."""
    from keras import ops

    return np.asarray(ops.convert_to_numpy(variable.value))
