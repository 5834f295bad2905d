"""`vectorize=True`: `model.compile` vectorizes the user's losses and metrics as it receives them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from flatout.vectorize.decorator import vectorize

_original_compile: list[tuple[type, Callable[..., Any]]] = []


def vectorize_compile() -> None:
    """From here on, `model.compile` vectorizes the user's losses and metrics; a second call changes nothing."""
    if _original_compile:
        return
    import keras

    holder = next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))
    original = vars(holder)["compile"]
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(self, *args, **kwargs)
        for name in ("loss", "metrics", "weighted_metrics"):
            if call.arguments.get(name) is not None:
                call.arguments[name] = _each(call.arguments[name])
        return original(*call.args, **call.kwargs)

    _original_compile.append((holder, original))
    setattr(holder, "compile", compile)  # noqa: B010


def restore_compile() -> None:
    """Give Keras its own `compile` back."""
    while _original_compile:
        holder, original = _original_compile.pop()
        setattr(holder, "compile", original)  # noqa: B010


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


def is_users(value: Any) -> bool:
    """Whether a loss or metric is a function, or a Loss with a `call`, of the user's own."""
    if isinstance(value, types.FunctionType):
        return not (value.__module__ or "").startswith("keras.")
    call = getattr(type(value), "call", None)
    is_loss = any(base.__name__ == "Loss" and base.__module__.startswith("keras.") for base in type(value).__mro__)
    return is_loss and isinstance(call, types.FunctionType) and not (call.__module__ or "").startswith("keras.")
