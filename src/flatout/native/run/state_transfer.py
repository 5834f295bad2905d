"""A model's state on its way between Keras' variables and a session's buffers: by way of the host, for any backend."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from flatout.native.launch.buffers import DeviceArray
from flatout.native.program.kernel_program import KernelProgram, StepName
from flatout.seam.compiled_parts import iterations_variable


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
            block.buffer.assign(np.concatenate([on_host(variable.value).reshape(-1) for variable in block.variables]))

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
        return int(on_host(variable.value))


def on_host(array: Any) -> np.ndarray:
    """The values of an array of any backend."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(ops.convert_to_numpy(array))


class State:
    """What a task takes from the model's variables before its steps, and gives them after.

    Attributes:
        iterations: Steps that the optimizer had taken when the state was loaded.
    """

    def __init__(
        self, program: KernelProgram, buffers: Mapping[str, DeviceArray], transfer: HostTransfer, task: StepName
    ):
        network, binding = program.network, program.binding
        self._task = task
        self.iterations = 0
        self._optimizer = program.model.optimizer if task == "train" else None
        self._transfer = transfer
        self._constants = {buffers[name]: constant for name, constant in binding.constants.items()}
        # What was sent last of them.
        self._sent: dict[DeviceArray, np.ndarray] = {}
        self._seeds = (buffers["seeds"], binding.seeds) if network.dropouts else None
        trained = [weight.name for weight in network.trained]
        found = {"weights": [binding.weights[name] for name in trained]} if trained else {}
        for weight in network.weights:
            if not weight.trainable and weight.name in binding.weights:
                found[weight.name] = [binding.weights[weight.name]]
        if task == "train" and network.optimizer is not None and trained:
            for slot in network.optimizer.slots:
                found[slot] = [binding.slots[f"{name}/{slot}"] for name in trained]
        if task != "predict":
            found["metrics"] = [variable for metric in binding.metrics for variable in (metric.total, metric.count)]
        self._read = [VariableBlock(buffers[name], tuple(variables)) for name, variables in found.items()]
        # The metrics are the last.
        self._written = {"train": self._read, "test": self._read[-1:], "predict": []}[task]

    def load(self) -> None:
        """Copy the values of all variables that the task takes into the buffers."""
        self._transfer.load(self._read)
        for buffer, constant in self._constants.items():
            value = constant()
            if buffer not in self._sent or not np.array_equal(value, self._sent[buffer]):
                buffer.assign(value)
                self._sent[buffer] = value
        if self._optimizer is not None:
            self.iterations = self._transfer.read_count(iterations_variable(self._optimizer))

    def load_seeds(self, steps: int) -> None:
        """Copy the state of the Dropout layers' generators, as it is `steps` steps on, into its buffer."""
        if self._seeds is not None:
            buffer, generators = self._seeds
            seeds = np.array([on_host(generator.state.value) for generator in generators]).astype(np.int64)
            seeds[:, 1] += steps
            buffer.assign((seeds & 0xFFFFFFFF).astype(np.uint32).view(np.int32))

    def store(self, steps: int) -> None:
        """Copy the buffers that `steps` steps of the task have changed back into the variables."""
        if self._written:
            counter = None if self._optimizer is None else iterations_variable(self._optimizer)
            self._transfer.store(self._written, counter, steps)
        if self._task == "train" and self._seeds is not None:
            for generator in self._seeds[1]:
                state = np.array(on_host(generator.state.value))
                state[1] += steps
                generator.state.assign(state)
