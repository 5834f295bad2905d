"""How values cross between Keras' variables and buffers: by way of the host, for any backend."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flatout.native.launch.buffers import DeviceArray


@dataclass(frozen=True, eq=False)
class VariableBlock:
    """Variables of float32 whose values lie one after another in a buffer."""

    buffer: DeviceArray
    variables: tuple[Any, ...]

    @functools.cached_property
    def parts(self) -> list[tuple[Any, DeviceArray]]:
        """Each variable, and where it lies."""
        found, offset = [], 0
        for variable in self.variables:
            shape = tuple(variable.shape)
            found.append((variable, self.buffer.part(shape, offset)))
            offset += math.prod(shape)
        return found


class Transfer(Protocol):
    """Copies state; when a method returns, the copies are made, or ordered before all that the launcher runs next."""

    def load(self, blocks: list[VariableBlock]) -> None:
        """Copy values of variables into their buffers."""
        ...

    def store(self, blocks: list[VariableBlock], counter: Any = None, steps: int = 0) -> None:
        """Copy buffers into their variables, and count the steps that have changed them."""
        ...

    def read_count(self, variable: Any) -> int:
        """The value of a counter."""
        ...


class HostTransfer:
    """By way of NumPy arrays: for any backend and launcher."""

    def load(self, blocks: list[VariableBlock]) -> None:
        for block in blocks:
            values = [value_of(variable).reshape(-1) for variable in block.variables]
            block.buffer.assign(np.concatenate(values))

    def store(self, blocks: list[VariableBlock], counter: Any = None, steps: int = 0) -> None:
        for block in blocks:
            values, offset = block.buffer.numpy().reshape(-1), 0
            for variable in block.variables:
                size = math.prod(variable.shape)
                variable.assign(values[offset : offset + size].reshape(tuple(variable.shape)))
                offset += size
        if counter is not None:
            counter.assign(self.read_count(counter) + steps)

    def read_count(self, variable: Any) -> int:
        return int(value_of(variable))


def value_of(variable: Any) -> np.ndarray:
    """The value of a variable, on the host."""
    from keras import ops

    return np.asarray(ops.convert_to_numpy(variable.value))
