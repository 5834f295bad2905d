"""Probes for jax: the compiled function, and the equations of its program by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from flatout.vectorize.verify.gradients import Arrays, on_device

from .live_functions import Operation, UserLine


def compiled(function: Callable[..., Any]) -> Callable[[Arrays], np.ndarray]:
    """The function under `jax.jit`."""
    jitted = jax.jit(lambda values: function(**values))
    return lambda values: np.asarray(jitted(on_device(values)))


def operations(function: Callable[..., Any], values: Arrays, files: set[str]) -> Iterator[Operation]:
    """The equations that the lines of the user's files give rise to. Every broadcast is one of its own."""
    program = jax.make_jaxpr(lambda given: function(**given))(on_device(values))
    for equation in _equations(program.jaxpr):
        place = _place(equation, files)
        if place is not None:
            shapes = [getattr(value.aval, "shape", ()) for value in equation.invars]
            yield Operation(place, equation.primitive.name, shapes)


def _equations(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns") and equation.primitive.name not in ("pjit", "jit"):
                    yield from _equations(inner)


def _place(equation: Any, files: set[str]) -> UserLine | None:
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if frame.file_name in files:
            return UserLine(frame.file_name, getattr(frame, "line_num", 0) or getattr(frame, "start_line", 0))
    return None
