"""Losses and metrics of a compiled model: vectorized as `compile` receives them, and named in the report of `fit`."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import Reason, reason
from .vectorize import Vectorized, vectorize

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
    return vectorize(value) if _is_users(value) else value


def _is_users(value: Any) -> bool:
    """Whether a loss or metric is a function, or a Loss with a `call`, of the user's own."""
    if isinstance(value, types.FunctionType):
        return not (value.__module__ or "").startswith("keras.")
    call = getattr(type(value), "call", None)
    is_loss = any(base.__name__ == "Loss" and base.__module__.startswith("keras.") for base in type(value).__mro__)
    return is_loss and isinstance(call, types.FunctionType) and not (call.__module__ or "").startswith("keras.")


def about_losses(model: Any) -> tuple[Reason, ...]:
    """What is to be said of a model's losses and metrics: which ones run as array code, and which ones loop."""
    return tuple(dict.fromkeys(said for function in _functions(model) if (said := _said(function)) is not None))


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


def _said(function: Any) -> Reason | None:
    if isinstance(function, Vectorized):
        decision = function._chosen
        if decision is None:
            return None
        if decision.function is not None:
            return reason("vectorized", _place(function._function))
        nothing = getattr(decision.reason, "code", "") == "FO100"
        return None if nothing else reason("not_vectorized", _place(function._function), decision.reason)
    return reason("loss_loop", _place(function)) if loops_over_data(function) else None


def _place(function: Any) -> str:
    code = function.__code__
    return f"`{function.__name__}` ({code.co_filename}:{code.co_firstlineno})"


@functools.lru_cache(maxsize=256)
def loops_over_data(function: Any) -> bool:
    """Whether a function has a loop or comprehension over its arguments, by its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    names = set(inspect.signature(function).parameters) - {"self"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _uses(node.value, names):
            names |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    loops: list[ast.expr] = [node.iter for node in ast.walk(tree) if isinstance(node, (ast.For, ast.comprehension))]
    loops += [node.test for node in ast.walk(tree) if isinstance(node, ast.While)]
    return any(_uses(over, names) for over in loops)


def _uses(node: ast.expr, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
