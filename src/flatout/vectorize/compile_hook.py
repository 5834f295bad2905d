"""`enable(vectorize=True)`: the user's losses and metrics are vectorized as `model.compile` receives them."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

from flatout.seam import patches
from flatout.seam.keras_names import is_of_keras
from flatout.seam.trainers import trainer_base

from .decorator import vectorize


def vectorize_compile() -> None:
    """From here on, `model.compile` vectorizes the user's losses and metrics; a second call changes nothing."""
    trainer = trainer_base()
    signature = inspect.signature(patches.beneath(trainer, "compile"))

    def compile(inner: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(model, *args, **kwargs)
        for name in ("loss", "metrics", "weighted_metrics"):
            if call.arguments.get(name) is not None:
                call.arguments[name] = _each(call.arguments[name])
        return inner(*call.args[1:], **call.kwargs)

    patches.apply("vectorize", [patches.Patch(trainer, "compile", compile)])


def restore_compile() -> None:
    """From here on, `model.compile` takes losses and metrics as they are."""
    patches.undo("vectorize")


def is_users(value: Any) -> bool:
    """Whether a loss or metric is a function, or a Loss with a `call`, of the user's own."""
    if isinstance(value, types.FunctionType):
        return not is_of_keras(value)
    call = getattr(type(value), "call", None)
    is_loss = any(base.__name__ == "Loss" and is_of_keras(base) for base in type(value).__mro__)
    return is_loss and isinstance(call, types.FunctionType) and not is_of_keras(call)


def _each(value: Any) -> Any:
    """Losses or metrics in whatever structure `compile` takes them."""
    if isinstance(value, dict):
        return {key: _each(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_each(item) for item in value)
    if isinstance(value, functools.partial) and is_users(value.func):
        try:
            return vectorize(value)
        except TypeError:  # It was given arguments by place: its arrays cannot be told from them.
            return value
    return vectorize(value) if is_users(value) else value
