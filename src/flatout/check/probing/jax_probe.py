"""Probes for jax: the compiled function, and the equations of its program by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from flatout.vectorize.verify.gradients import Arrays, on_device

from .live_functions import Operation


def compiled(function: Callable[..., Any]) -> Callable[[Arrays], np.ndarray]:
    """The function under `jax.jit`."""
    jitted = jax.jit(lambda values: function(**values))
    return lambda values: np.asarray(jitted(on_device(values)))


def operations(function: Callable[..., Any], values: Arrays, names: set[str]) -> Iterator[Operation]:
    """The equations that the lines of the user's file give rise to. Every broadcast is one of its own."""
    program = jax.make_jaxpr(lambda given: function(**given))(on_device(values))
    for equation in _equations(program.jaxpr):
        frames = equation.source_info.traceback.frames if equation.source_info.traceback is not None else ()
        frame = next((one for one in frames if one.file_name in names), None)
        if frame is not None:
            line = getattr(frame, "line_num", 0) or getattr(frame, "start_line", 0)
            shapes = [getattr(value.aval, "shape", ()) for value in equation.invars]
            yield Operation(line, equation.primitive.name, shapes)


def _equations(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns") and equation.primitive.name not in ("pjit", "jit"):
                    yield from _equations(inner)
