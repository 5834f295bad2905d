"""Probes for TensorFlow: the compiled function, and the operations of its graph by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from flatout.vectorize.verify.gradients import Arrays, on_device

from .user_line import Operation, UserLine

# A function is traced for every probe; TensorFlow would warn that this is slow.
tf.get_logger().setLevel("ERROR")


def compiled(function: Callable[..., Any]) -> Callable[[Arrays], np.ndarray]:
    """The function as a graph; AutoGraph is off, as it is for losses of Keras."""
    traced = tf.function(lambda values: tf.convert_to_tensor(function(**values)), autograph=False)
    return lambda values: np.asarray(traced(on_device(values)))


def operations(function: Callable[..., Any], values: Arrays, files: set[str]) -> Iterator[Operation]:
    """The operations of the graph that the lines of the user's files give rise to."""
    traced = tf.function(lambda given: function(**given), autograph=False)
    for operation in traced.get_concrete_function(on_device(values)).graph.get_operations():
        for frame in reversed(list(operation.traceback or ())):
            if frame.filename in files:
                shapes = [tuple(one.shape.as_list()) for one in operation.inputs if one.shape.rank is not None]
                yield Operation(UserLine(frame.filename, frame.lineno), operation.type, shapes)
                break


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
