"""Probes for TensorFlow: the compiled function, and the operations of its graph by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from flatout.vectorize.verify.gradients import Arrays, on_device

from .live_functions import Operation

# A function is traced for every probe; TensorFlow would warn that this is slow.
tf.get_logger().setLevel("ERROR")


def compiled(function: Callable[..., Any]) -> Callable[[Arrays], np.ndarray]:
    """The function as a graph; AutoGraph is off, as it is for losses of Keras."""
    traced = tf.function(lambda values: tf.convert_to_tensor(function(**values)), autograph=False)
    return lambda values: np.asarray(traced(on_device(values)))


def operations(function: Callable[..., Any], values: Arrays, names: set[str]) -> Iterator[Operation]:
    """The operations of the graph that the lines of the user's file give rise to."""
    traced = tf.function(lambda given: function(**given), autograph=False)
    for operation in traced.get_concrete_function(on_device(values)).graph.get_operations():
        lines = [frame.lineno for frame in operation.traceback or () if frame.filename in names]
        if lines:
            shapes = [tuple(one.shape.as_list()) for one in operation.inputs if one.shape.rank is not None]
            yield Operation(lines[-1], operation.type, shapes)
