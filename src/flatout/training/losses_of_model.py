"""What the report of `fit` says of a model's losses and metrics."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from flatout.base.errors import Reason, reason
from flatout.check.loaded_function import findings_of
from flatout.seam.compiled_parts import function_of, given_loss, given_metrics
from flatout.vectorize.compile_hook import is_users
from flatout.vectorize.decorator import Vectorized


def about_losses(model: Any) -> tuple[Reason, ...]:
    """What is to be said of a model's losses and metrics: which run as array code, which loop or cannot be compiled."""
    return tuple(dict.fromkeys(said for function in _functions(model) for said in _said(function)))


def _functions(model: Any) -> Iterator[Any]:
    """The user's own losses and metrics, as functions."""
    yield from _flat([given_loss(model), given_metrics(model)])


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
        return
    value = function_of(value)
    call = getattr(value, "call", None)
    if isinstance(value, Vectorized) or isinstance(call, Vectorized):
        yield value if isinstance(value, Vectorized) else call
    elif is_users(value):
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
