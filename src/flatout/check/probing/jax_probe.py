"""Probes for jax: equations by line, the compiled value, the gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from .user_line import UserLine

_ERRORS = {
    "TracerBoolConversionError": "FO202",
    "TracerIntegerConversionError": "FO201",
    "ConcretizationTypeError": "FO201",
    "TracerArrayConversionError": "FO205",
    "NonConcreteBooleanIndexError": "FO108",
}


def tensors(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arrays as jax arrays."""
    return {name: jax.numpy.asarray(value) for name, value in values.items()}


def eager(function: Callable[..., Any], values: dict[str, np.ndarray]) -> np.ndarray:
    """The value as NumPy, run as plain Python."""
    return np.asarray(function(**tensors(values)))


def compiled(function: Callable[..., Any]) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """The function under `jax.jit`."""
    jitted = jax.jit(lambda values: function(**values))
    return lambda values: np.asarray(jitted(tensors(values)))


def gradient(function: Callable[..., Any], values: dict[str, np.ndarray], pred: str) -> np.ndarray | None:
    """The gradient with respect to the outputs."""
    given = tensors(values)
    guess = given.pop(pred)
    return np.asarray(jax.grad(lambda one: jax.numpy.sum(function(**{**given, pred: one})))(guess))


def operations(function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]) -> Counter[UserLine]:
    """How many equations each line of the user's files gives rise to."""
    program = jax.make_jaxpr(lambda given: function(**given))(tensors(values))
    lines: Counter[UserLine] = Counter()
    for equation in _equations(program.jaxpr):
        place = _place(equation, files)
        if place is not None:
            lines[place] += 1
    return lines


def _equations(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (list, tuple)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns") and equation.primitive.name != "pjit" and equation.primitive.name != "jit":
                    yield from _equations(inner)


def _place(equation: Any, files: set[str]) -> UserLine | None:
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if frame.file_name in files:
            return UserLine(frame.file_name, getattr(frame, "line_num", 0) or getattr(frame, "start_line", 0))
    return None


def accidents(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str], batch: int
) -> Counter[UserLine]:
    """Not to be seen in a program of jax, where every broadcast is explicit."""
    return Counter()


def host_reads(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]
) -> Counter[tuple[str, UserLine]]:
    """None: a read on the host is an error while tracing."""
    return Counter()


def error_code(error: BaseException) -> str:
    """The rule that an exception stands for; empty if none."""
    for kind in type(error).__mro__:
        if kind.__name__ in _ERRORS:
            return _ERRORS[kind.__name__]
    return "FO201" if isinstance(error, AttributeError) and "numpy" in str(error) else ""
