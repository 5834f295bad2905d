"""Probes for TensorFlow: the compiled function, and the operations of its graph by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from flatout.vectorize.verify.gradients import Arrays, on_device

from .live_functions import Operation, UserLine

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
