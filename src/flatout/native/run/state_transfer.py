"""A model's state on its way between Keras' variables and a session's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from flatout.native.launch.buffers import DeviceArray
from flatout.native.launch.launcher import Launcher
from flatout.native.program.kernel_program import KernelProgram, StepName
from flatout.seam.optimizers import iterations_variable

from .transfer import HostTransfer, Transfer, VariableBlock, value_of


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
        self._constants = [
            (buffers[weight.name], binding.constants[weight.name])
            for weight in network.weights
            if weight.name in binding.constants
        ]
        # What was sent last of them.
        self._sent: list[np.ndarray | None] = [None] * len(self._constants)
        self._seeds = (buffers["seeds"], binding.seeds) if network.dropouts else None

        def variables(names: list[str], found: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(found[name] for name in names)

        trained = [weight.name for weight in network.trained]
        weights = [VariableBlock(buffers["weights"], variables(trained, binding.weights))] if trained else []
        others = [
            VariableBlock(buffers[weight.name], (binding.weights[weight.name],))
            for weight in network.weights
            if not weight.trainable and weight.name in binding.weights
        ]
        slots: list[VariableBlock] = []
        if task == "train" and network.optimizer is not None and trained:
            for slot in network.optimizer.slots:
                names = [f"{name}/{slot}" for name in trained]
                slots.append(VariableBlock(buffers[slot], variables(names, binding.slots)))
        pairs = tuple(variable for metric in binding.metrics for variable in (metric.total, metric.count))
        metrics = [VariableBlock(buffers["metrics"], pairs)] if task != "predict" else []
        self._read = [*weights, *others, *slots, *metrics]
        self._written = {"train": self._read, "test": metrics, "predict": []}[task]

    def load(self) -> None:
        """Copy the values of all variables that the task takes into the buffers."""
        self._transfer.load(self._read)
        for number, (buffer, constant) in enumerate(self._constants):
            value = np.asarray(constant())
            sent = self._sent[number]
            if sent is None or not np.array_equal(value, sent):
                buffer.assign(value)
                self._sent[number] = value
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
            self._transfer.store(
                self._written, None if self._optimizer is None else iterations_variable(self._optimizer), steps
            )
        if self._task == "train" and self._seeds is not None:
            for generator in self._seeds[1]:
                state = np.array(value_of(generator.state))
                state[1] += steps
                generator.state.assign(state)


def _fastest_transfer(launcher: Launcher) -> Transfer:
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
