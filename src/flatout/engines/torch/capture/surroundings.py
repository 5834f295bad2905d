"""What a trial run of the step may touch besides tensors: random states, gradients, modes and Python attributes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from keras.src.backend.common import global_state

from flatout.seam.versions import GLOBAL_SEED_GENERATOR

from .python_state import PythonState

_CONTAINERS = (list, dict, set)


class Surroundings:
    """Everything around the model's tensors that a step can change, as it was when this was made."""

    def __init__(self, model: Any) -> None:
        self._torch = generator_state()
        self._seed_generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
        self._modes = [(module, module.training) for module in model.modules()]
        self._gradients = [(p, p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()]
        # Of the model, its layers, metrics, loss and optimizer.
        self.attributes = PythonState()
        for thing in owned_objects(model):
            for held in (vars(thing), *vars(thing).values()):
                if type(held) in _CONTAINERS:
                    self.attributes.keep_contents(held, type(thing).__name__)

    def restore_random(self) -> None:
        """Put the random generators back."""
        set_generator_state(self._torch)
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, self._seed_generator)

    def restore(self) -> None:
        """Put all back but Python attributes."""
        self.restore_random()
        for module, mode in self._modes:
            module.training = mode
        with torch.no_grad():
            for parameter, gradient, values in self._gradients:
                parameter.grad = gradient
                if values is not None:
                    gradient.copy_(values)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep destructors and callbacks of Python's garbage collector out of a recording or a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def generator_state() -> tuple[bytes, ...]:
    """The default generators, from which Dropout without a seed draws."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return tuple(state.numpy().tobytes() for state in states)


def set_generator_state(state: tuple[bytes, ...]) -> None:
    for put, of_device in zip((torch.set_rng_state, torch.cuda.set_rng_state), state, strict=False):
        put(torch.frombuffer(bytearray(of_device), dtype=torch.uint8))


def owned_objects(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    things = [*model._flatten_layers(), *model.metrics, optimizer, getattr(optimizer, "inner_optimizer", None)]
    things += [getattr(model, "_compile_loss", None), getattr(model, "_compile_metrics", None)]
    unique = {id(thing): thing for thing in things if hasattr(thing, "__dict__")}
    return list(unique.values())


@contextmanager
def cudnn_with(flag: str) -> Iterator[None]:
    """A flag of cuDNN's is set meanwhile."""
    before = getattr(torch.backends.cudnn, flag)
    setattr(torch.backends.cudnn, flag, True)
    try:
        yield
    finally:
        setattr(torch.backends.cudnn, flag, before)
