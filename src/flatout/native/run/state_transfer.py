"""A model's state on its way between Keras' variables and a session's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flatout.native.launch.buffers import DeviceArray
from flatout.native.launch.launcher import Launcher
from flatout.native.program.kernel_program import KernelProgram, StepName
from flatout.seam.compiled_parts import iterations_variable

from .transfer import HostTransfer, VariableBlock, value_of


class State:
    """What a task takes from the model's variables before its steps, and gives them after.

    Attributes:
        iterations: Steps that the optimizer had taken when the state was loaded.
    """

    def __init__(self, program: KernelProgram, buffers: Mapping[str, DeviceArray], launcher: Launcher, task: StepName):
        network, binding = program.network, program.binding
        self._task = task
        self.iterations = 0
        self._optimizer = program.model.optimizer if task == "train" else None
        self._transfer = _fastest_transfer(launcher)
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
            seeds = np.array([value_of(generator.state) for generator in generators]).astype(np.int64)
            seeds[:, 1] += steps
            buffer.assign((seeds & 0xFFFFFFFF).astype(np.uint32).view(np.int32))

    def store(self, steps: int) -> None:
        """Copy the buffers that `steps` steps of the task have changed back into the variables."""
        if self._written:
            counter = None if self._optimizer is None else iterations_variable(self._optimizer)
            self._transfer.store(self._written, counter, steps)
        if self._task == "train" and self._seeds is not None:
            for generator in self._seeds[1]:
                state = np.array(value_of(generator.state))
                state[1] += steps
                generator.state.assign(state)


def _fastest_transfer(launcher: Launcher) -> HostTransfer:
    """The fastest way between the backend in use and the memory of a launcher."""
    import keras

    backend = keras.config.backend()
    if backend == "torch" and launcher.name in ("cuda.core", "cpu"):
        from .torch_transfer import TorchTransfer

        return TorchTransfer()
    if backend == "jax" and launcher.name == "cuda.core":
        from .jax_transfer import JaxTransfer

        return JaxTransfer(cast(Any, launcher))
    return HostTransfer()
