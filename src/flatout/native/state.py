"""A model's state on its way between Keras' variables and a session's buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .session import Session


def load(session: Session, task: str) -> None:
    """Copy the values of all Keras variables that a task takes into the buffers."""
    program = session.program
    binding, network = program.binding, program.network
    _fill_arena(session, "weights", [binding.weights[weight.name] for weight in network.trained])
    for weight in network.weights:
        if weight.name in binding.constants:
            session.buffers[weight.name].assign(binding.constants[weight.name]())
        elif not weight.trainable:
            session.buffers[weight.name].assign(_value(binding.weights[weight.name]))
    if task == "train":
        assert network.optimizer is not None
        for slot in network.optimizer.slots:
            _fill_arena(session, slot, [binding.slots[f"{weight.name}/{slot}"] for weight in network.trained])
    if task != "predict":
        pairs = [[_value(metric.total), _value(metric.count)] for metric in binding.metrics]
        session.buffers["metrics"].assign(np.array(pairs, np.float32))
    if network.dropouts:
        seeds = np.array([_value(generator.state) for generator in binding.seeds]).astype(np.int64)
        session.buffers["seeds"].assign((seeds & 0xFFFFFFFF).astype(np.uint32).view(np.int32))


def store(session: Session, task: str, steps: int) -> None:
    """Copy the buffers that a task has changed back into the Keras variables."""
    program = session.program
    binding, network = program.binding, program.network
    if task == "train":
        assert network.optimizer is not None
        _read_arena(session, "weights", [binding.weights[weight.name] for weight in network.trained])
        for slot in network.optimizer.slots:
            _read_arena(session, slot, [binding.slots[f"{weight.name}/{slot}"] for weight in network.trained])
        for weight in network.weights:
            if not weight.trainable and weight.name in binding.weights:
                binding.weights[weight.name].assign(session.buffers[weight.name].numpy())
        optimizer = program.model.optimizer
        optimizer._iterations.assign(int(_value(optimizer._iterations)) + steps)
        for generator in binding.seeds:
            state = np.array(_value(generator.state))
            state[1] += steps
            generator.state.assign(state)
    if task != "predict":
        for metric, (total, count) in zip(binding.metrics, session.buffers["metrics"].numpy(), strict=True):
            metric.total.assign(total)
            metric.count.assign(count)


def iterations(model: Any) -> int:
    return int(_value(model.optimizer._iterations))


def _value(variable: Any) -> np.ndarray:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(variable.value))


def _fill_arena(session: Session, arena: str, variables: list[Any]) -> None:
    if variables:
        session.buffers[arena].assign(np.concatenate([_value(one).reshape(-1) for one in variables]))


def _read_arena(session: Session, arena: str, variables: list[Any]) -> None:
    if not variables:
        return
    values, begin = session.buffers[arena].numpy(), 0
    for variable in variables:
        size = int(np.prod(variable.shape))
        variable.assign(values[begin : begin + size].reshape(tuple(variable.shape)))
        begin += size
