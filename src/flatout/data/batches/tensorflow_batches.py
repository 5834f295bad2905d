"""A feed as a `tf.data.Dataset` that asks for each batch when the step needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from keras import tree

from flatout.seam.adapters import as_tf_sparse


def dataset_of(batches: Callable[[], Iterable[Any]], signature: Any) -> Any:
    """A dataset of the batches of a pass, each made when it is asked for."""
    options = tf.data.Options()
    # No prefetching behind our back: it would make batches that Keras only looks at, or that nobody asked for.
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)


def as_tensorflow_takes(signature: Any, batch: Any) -> Any:
    """A batch with the structure of its signature, and what tf.data has no values for replaced."""
    return tree.map_structure(_component, tree.lists_to_tuples(batch), signature)


def _component(value: Any, spec: Any) -> Any:
    if value is None:
        return tf.experimental.Optional.empty(None)
    value = as_tf_sparse(value)
    if hasattr(value, "shape") and not spec.shape.is_compatible_with(value.shape):
        raise TypeError(
            f"A batch has a component of another shape than the first ones. Received: shape {tuple(value.shape)}. "
            f"Expected: {spec.shape}. Dimensions that vary must differ between the first two batches."
        )
    return value
