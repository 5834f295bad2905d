"""Callbacks run in the first process of a group; the others take over what they change, at the same places."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.group import Group
from flatout.base.when_used import keras
from flatout.engines.contract import Task
from flatout.engines.rewind import Generators
from flatout.engines.select import engine_for
from flatout.seam import patches
from flatout.seam.callbacks import is_default_hook
from flatout.seam.stock_methods import methods_apart
from flatout.seam.trainers import first_epoch, put_first_epoch
from flatout.training.passes import look_at_variables
from flatout.training.planning.callback_services import service_for

_EVERY_EPOCH = ("on_train_begin", "on_epoch_begin", "on_epoch_end")
_BATCH_HOOKS: dict[Task, tuple[str, str]] = {
    "train": ("on_train_batch_begin", "on_train_batch_end"),
    "test": ("on_test_batch_begin", "on_test_batch_end"),
}
_VALIDATION = ("on_test_begin", "on_test_end")
_HOOKS = (*_EVERY_EPOCH, *_VALIDATION, *_BATCH_HOOKS["train"], *_BATCH_HOOKS["test"], "on_train_end")
# Metrics of the whole batch are the same in all processes but for the rounding of sums.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Effects:
    """What the callbacks of a fit may change, and where.

    Attributes:
        hooks: Those between epochs that somebody has; all processes stop there.
        between_epochs: Whether variables may change between epochs, and around a validation.
        between_batches: Whether variables may change between batches.
    """

    hooks: tuple[str, ...]
    between_epochs: bool
    between_batches: bool

    @classmethod
    def of(cls, callbacks: list[Any]) -> Effects:
        services = {task: {service_for(one, task) for one in callbacks} - {"none", "chunk"} for task in _BATCH_HOOKS}
        hooks = [name for task, names in _BATCH_HOOKS.items() if services[task] for name in names]
        hooks += [name for name in _VALIDATION if not all(is_default_hook(one, name) for one in callbacks)]
        # Others read logs, or save.
        between_batches = "step" in services["train"] | services["test"]
        return cls(tuple(hooks), look_at_variables(keras.callbacks.CallbackList(callbacks)), between_batches)

    def stand_in(self) -> list[Any]:
        """A callback with the same hooks, if any: with it all processes run their steps in the same pieces."""
        if not self.hooks and not self.between_epochs:
            return []

        def nothing(callback: Any, *args: Any, **kwargs: Any) -> None:
            return

        return [type("StandIn", (keras.callbacks.Callback,), dict.fromkeys(self.hooks, nothing))()]


@contextlib.contextmanager
def following(
    model: Any, group: Group, effects: Effects, begin: Callable[[], None], ended: Callable[[int], None]
) -> Iterator[None]:
    """Meanwhile, have callbacks of the model run alone, and their effects taken over by all.

    Args:
        model: The one that is trained.
        group: The processes.
        effects: Of the callbacks.
        begin: Called by the first process after the callbacks' `on_train_begin`.
        ended: Called by the first process after each epoch with its number; may stop the training.
    """
    followed = {*_EVERY_EPOCH, *effects.hooks, *(_VALIDATION if effects.between_epochs else ())}

    def hook(name: str) -> Callable[..., Any]:
        target = (keras.callbacks.CallbackList, name)
        original = patches.beneath(*target)
        with_variables = effects.between_batches if "batch" in name else effects.between_epochs

        def run(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            if group.is_alone or callbacks.model is not model:
                return original(callbacks, *args, **kwargs)
            if name.endswith("_end") and name in followed and with_variables:
                _wait_for(_variables(model))
            # Before callbacks write something else into them.
            numbers = _numbers(*args, **kwargs) if name == "on_epoch_end" else {}
            with group.alone():
                result = original(callbacks, *args, **kwargs)
                if group.is_first and name == "on_train_begin":
                    begin()
                elif group.is_first and name == "on_epoch_end":
                    ended(args[0])
            if name in followed and group.place.size > 1:
                _follow(model, group, numbers, with_variables)
            return result

        return run

    replaced = {(keras.callbacks.CallbackList, name): hook(name) for name in _HOOKS}
    with patches.replaced_here(replaced), methods_apart(model, lambda: group.is_alone):
        yield


def _follow(model: Any, group: Group, numbers: dict[str, float], with_variables: bool) -> None:
    """Have in each process what the first has, if they agree on these numbers."""
    engine = engine_for(keras.config.backend())
    variables = _variables(model) if with_variables else []
    values = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in variables]
    flags = {name: bool(getattr(model, name, False)) for name in ("stop_training", "stop_evaluating")}
    message = {"flags": flags, "epoch": first_epoch(model, 0), "logs": numbers}
    if with_variables:
        # A callback may have drawn from them: an evaluation does, on torch.
        message["generators"] = Generators.now(engine).as_text()
    told, told_values = group.told_by_first(message, values)
    if group.is_first:
        return
    _check_agreement(numbers, told["logs"])
    for name, flag in told["flags"].items():
        setattr(model, name, flag)
    put_first_epoch(model, told["epoch"])
    if with_variables:
        Generators.from_text(told["generators"]).put_back(engine)
    for variable, value, new in zip(variables, values, told_values, strict=True):
        if not np.array_equal(value, new, equal_nan=value.dtype.kind == "f"):
            variable.assign(new)


def _numbers(epoch: int, logs: dict[str, Any] | None = None) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items() if np.ndim(value) == 0}


def _variables(model: Any) -> list[Any]:
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    optimizer = getattr(model, "optimizer", None)
    found = [*model.variables, *(optimizer.variables if optimizer is not None else [])]
    return list({id(variable): variable for variable in found}.values())


def _wait_for(variables: list[Any]) -> None:
    """Where steps are awaited by whoever reads their results, one that failed must not fail in a checkpoint."""
    for variable in variables:
        if hasattr(variable.value, "block_until_ready"):
            variable.value.block_until_ready()


def _check_agreement(own: dict[str, float], of_first: dict[str, float]) -> None:
    for name in own.keys() & of_first.keys():
        one, other = own[name], of_first[name]
        if not math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) and not math.isnan(one + other):
            raise RuntimeError(
                f"The worker processes of a fit do not compute the same. Received: {name} = {one} here, {other} in the "
                "first. They see other data (a PyDataset that draws random numbers of its own must draw the same in "
                "each process), or a callback, which runs in the first alone, has changed Python that the loss or the "
                "model reads: use a keras.Variable of the model for it, or workers=1."
            )
