"""Probes for TensorFlow: operations of the graph by line, the compiled value, the gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .user_line import UserLine

# A function is traced for every probe; TensorFlow would warn that this is slow.
tf.get_logger().setLevel("ERROR")
_BINARY = frozenset({"Sub", "AddV2", "Mul", "RealDiv"})


def tensors(values: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arrays as tensors."""
    return {name: tf.constant(value) for name, value in values.items()}


def eager(function: Callable[..., Any], values: dict[str, np.ndarray]) -> np.ndarray:
    """The value as NumPy, run as plain Python."""
    return np.asarray(function(**tensors(values)))


def compiled(function: Callable[..., Any]) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """The function as a graph; AutoGraph is off, as it is for losses of Keras."""
    traced = tf.function(lambda values: tf.convert_to_tensor(function(**values)), autograph=False)
    return lambda values: np.asarray(traced(tensors(values)))


def gradient(function: Callable[..., Any], values: dict[str, np.ndarray], pred: str) -> np.ndarray | None:
    """The gradient with respect to the outputs; None if there is no path."""
    given = tensors(values)
    with tf.GradientTape() as tape:
        tape.watch(given[pred])
        result = tf.reduce_sum(function(**given))
    found = tape.gradient(result, given[pred])
    return None if found is None else np.asarray(tf.convert_to_tensor(found))


def operations(function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]) -> Counter[UserLine]:
    """How many operations each line of the user's files gives rise to."""
    lines: Counter[UserLine] = Counter()
    for operation in _graph(function, values).get_operations():
        place = _place(operation, files)
        if place is not None:
            lines[place] += 1
    return lines


def _graph(function: Callable[..., Any], values: dict[str, np.ndarray]) -> Any:
    traced = tf.function(lambda given: function(**given), autograph=False)
    return traced.get_concrete_function(tensors(values)).graph


def _place(operation: Any, files: set[str]) -> UserLine | None:
    for frame in reversed(list(operation.traceback or ())):
        if frame.filename in files:
            return UserLine(frame.filename, frame.lineno)
    return None


def accidents(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str], batch: int
) -> Counter[UserLine]:
    """The lines that combine (B,) with (B, 1)."""
    lines: Counter[UserLine] = Counter()
    for operation in _graph(function, values).get_operations():
        shapes = sorted(tuple(one.shape.as_list()) for one in operation.inputs if one.shape.rank is not None)
        place = _place(operation, files)
        if operation.type in _BINARY and shapes == [(batch,), (batch, 1)] and place is not None:
            lines[place] += 1
    return lines


def host_reads(
    function: Callable[..., Any], values: dict[str, np.ndarray], files: set[str]
) -> Counter[tuple[str, UserLine]]:
    """None: a read on the host is an error while tracing."""
    return Counter()


def error_code(error: BaseException) -> str:
    """The rule that an exception stands for; empty if none."""
    text = str(error)
    if type(error).__name__ == "OperatorNotAllowedInGraphError":
        return "FO101" if "terating over" in text else "FO202"
    if isinstance(error, NotImplementedError) and "numpy" in text.lower():
        return "FO205"
    if isinstance(error, AttributeError) and "numpy" in text:
        return "FO201"
    if isinstance(error, TypeError) and ("float()" in text or "int()" in text or "__index__" in text):
        return "FO201"
    return "FO302" if isinstance(error, ValueError) and "create variables" in text else ""
