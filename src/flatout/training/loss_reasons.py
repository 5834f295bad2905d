"""What the report of a fit says of the model's losses and metrics, and which of them the checker may be asked about."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.errors import Reason, reason
from flatout.seam.compiled_parts import function_of, given_loss, given_metrics
from flatout.vectorize.compile_hook import is_users
from flatout.vectorize.decorator import Vectorized

Unchecked = tuple[tuple[int, Callable[..., Any]], ...]


def with_losses(model: Any, reasons: tuple[Reason, ...]) -> tuple[tuple[Reason, ...], Unchecked]:
    """The reasons of a fit and, after them, which losses run as array code; and those that run as they are written.

    Returns:
        All reasons, and for each function that runs as it is written its place among them.
    """
    told: dict[Reason, None] = {}
    unchecked: list[tuple[int, Callable[..., Any]]] = []
    for function in (*_functions(given_loss(model)), *_functions(given_metrics(model))):
        if isinstance(function, Vectorized):
            told.update(dict.fromkeys(_about(function)))
        else:
            unchecked.append((len(reasons) + len(told), _without_its_data(function)))
    return (*reasons, *told), tuple(unchecked)


def _functions(value: Any) -> Iterator[Any]:
    """The user's own losses and metrics in what `compile` was given, as functions."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _functions(item)
        return
    value = function_of(value)
    call = getattr(value, "call", None)
    if isinstance(value, Vectorized) or isinstance(call, Vectorized):
        yield value if isinstance(value, Vectorized) else call
    elif is_users(value):
        yield value if isinstance(value, types.FunctionType) else type(value).call


def _about(function: Vectorized) -> Iterator[Reason]:
    decision = function._chosen
    if decision is None:
        return
    code = function._function.__code__
    place = f"`{function._function.__name__}` ({code.co_filename}:{code.co_firstlineno})"
    if decision.function is not None:
        yield reason("vectorized", place)
    elif getattr(decision.reason, "code", "") != "FO100":
        yield reason("not_vectorized", place, decision.reason)


def _without_its_data(function: types.FunctionType) -> types.FunctionType:
    """A function to be read and not called: reports live on, and must not keep what a loss closes over."""
    if function.__closure__ is None:
        return function
    cells = tuple(types.CellType() for _ in function.__closure__)
    read = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    read.__module__ = function.__module__
    wrapped = getattr(function, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):
        # Where its source is looked for.
        read.__wrapped__ = _without_its_data(wrapped)  # type: ignore[attr-defined]
    return read
