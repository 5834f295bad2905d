"""Callbacks run in the first process of a group; the others take over what they change, at the same places."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.base.when_used import keras
from flatout.engines.group import Group
from flatout.seam import patches
from flatout.seam.trainers import first_epoch, put_first_epoch

_EVERY_EPOCH = ("on_train_begin", "on_epoch_begin", "on_epoch_end")
_EVERY_BATCH = ("on_train_batch_begin", "on_train_batch_end")
_IN_BETWEEN = ("on_train_end", "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end")
# Metrics of the whole batch are the same in all processes but for the rounding of sums.
_TOLERANCE = 1e-3


@contextlib.contextmanager
def following(
    model: Any, group: Group, watches: str, begin: Callable[[], None], saved: Callable[[int], None]
) -> Iterator[None]:
    """Meanwhile, have callbacks of the model run alone, and their effects taken over by all.

    Args:
        model: The one that is trained.
        group: The processes.
        watches: What callbacks may change: `"flags"` (they stop at most), `"epochs"` or `"batches"` (variables as well,
            between epochs, or between batches).
        begin: Called by the first process after the callbacks' `on_train_begin`.
        saved: Called by the first process after each epoch with its number.
    """
    followed = _EVERY_EPOCH + (_EVERY_BATCH if watches == "batches" else ())

    def hook(name: str) -> Callable[..., Any]:
        target = (keras.callbacks.CallbackList, name)

        def run(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            original = patches.beneath(*target)
            if group.is_alone or callbacks.model is not model:
                return original(callbacks, *args, **kwargs)
            if name.endswith("_end") and name in followed and watches != "flags":
                _wait_for(_variables(model))
            with group.alone():
                result = original(callbacks, *args, **kwargs)
                if group.is_first and name == "on_train_begin":
                    begin()
                elif group.is_first and name == "on_epoch_end":
                    saved(args[0])
            if name in followed:
                logs = kwargs.get("logs", args[-1] if len(args) > 1 else None) if name == "on_epoch_end" else None
                _follow(model, group, logs or {}, with_variables=watches != "flags")
            return result

        return run

    hooks = (*_EVERY_EPOCH, *_EVERY_BATCH, *_IN_BETWEEN)
    with patches.replaced_here({(keras.callbacks.CallbackList, name): hook(name) for name in hooks}):
        yield


def _follow(model: Any, group: Group, logs: dict[str, Any], with_variables: bool) -> None:
    """Have in each process what the first has."""
    variables = _variables(model) if with_variables else []
    values = [np.asarray(keras.ops.convert_to_numpy(variable.value)) for variable in variables]
    numbers = {name: float(value) for name, value in logs.items() if np.ndim(value) == 0}
    message = {"stop": bool(model.stop_training), "epoch": first_epoch(model, 0), "logs": numbers}
    told, told_values = group.told_by_first(message, values)
    if group.is_first:
        return
    _check_agreement(numbers, told["logs"])
    model.stop_training = told["stop"]
    put_first_epoch(model, told["epoch"])
    for variable, value, new in zip(variables, values, told_values, strict=True):
        if not np.array_equal(value, new, equal_nan=value.dtype.kind == "f"):
            variable.assign(new)


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
                f"The worker processes of a fit do not compute the same. Received: {name}={one} here, {other} in the "
                "first. Either they see other data (a PyDataset that draws random numbers of its own must draw the same"
                " in each process), or a callback, which runs in the first alone, has changed Python that the loss or "
                "the model reads: use a keras.Variable of the model for it, or workers=1."
            )
