"""Losses and metrics of a compiled model: vectorized as `compile` receives them, and named in the report of `fit`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.errors import Reason, reason
from flatout.check.loaded_function import findings_of
from flatout.vectorize.decorator import Vectorized, vectorize

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
    if isinstance(value, functools.partial) and _is_users(value.func):
        try:
            return vectorize(value)
        except TypeError:  # It was given arguments by place: its arrays cannot be told from them.
            return value
    return vectorize(value) if _is_users(value) else value


def _is_users(value: Any) -> bool:
    """Whether a loss or metric is a function, or a Loss with a `call`, of the user's own."""
    if isinstance(value, types.FunctionType):
        return not (value.__module__ or "").startswith("keras.")
    call = getattr(type(value), "call", None)
    is_loss = any(base.__name__ == "Loss" and base.__module__.startswith("keras.") for base in type(value).__mro__)
    return is_loss and isinstance(call, types.FunctionType) and not (call.__module__ or "").startswith("keras.")


def about_losses(model: Any) -> tuple[Reason, ...]:
    """What is to be said of a model's losses and metrics: which run as array code, which loop or cannot be compiled."""
    return tuple(dict.fromkeys(said for function in _functions(model) for said in _said(function)))


def _functions(model: Any) -> Iterator[Any]:
    """The user's own losses and metrics, as functions."""
    for part, attribute in (("_compile_loss", "_user_loss"), ("_compile_metrics", "_user_metrics")):
        yield from _flat(getattr(getattr(model, part, None), attribute, None))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
        return
    value = getattr(value, "fn", getattr(value, "_fn", value))
    call = getattr(value, "call", None)
    if isinstance(value, Vectorized) or isinstance(call, Vectorized):
        yield value if isinstance(value, Vectorized) else call
    elif _is_users(value):
        yield value if isinstance(value, types.FunctionType) else type(value).call


def _said(function: Any) -> Iterator[Reason]:
    if not isinstance(function, Vectorized):
        yield from _found(function)
        return
    decision = function._chosen
    if decision is None:
        return
    if decision.function is not None:
        yield reason("vectorized", _place(function._function))
    elif getattr(decision.reason, "code", "") != "FO100":
        yield reason("not_vectorized", _place(function._function), decision.reason)


# Loops that grow with the data.
_LOOPS = ("FO101", "FO102", "FO103", "FO105", "FO107")


def _found(function: Any) -> Iterator[Reason]:
    """What `flatout check` finds in a loss: what stops it from being compiled, and loops over its data."""
    import keras

    backend = keras.backend.backend()
    found = findings_of(function, backend)
    errors = [one for one in found if one.severity == "error"]
    loops = [one for one in found if one.code in _LOOPS and one.severity != "info"]
    if errors:
        yield reason("loss_error", _place(function), f"{_lines(errors)}, on {backend}: {errors[0].message}")
    if loops:
        yield reason("loss_loop", _place(function), _lines(loops))


def _lines(findings: list[Any]) -> str:
    return ", ".join(dict.fromkeys(f"{one.code} in line {one.line}" for one in findings))


def _place(function: Any) -> str:
    code = function.__code__
    return f"`{function.__name__}` ({code.co_filename}:{code.co_firstlineno})"
