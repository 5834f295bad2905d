"""Processes that train one model on TensorFlow: sums by its collective operations, inside the compiled step."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import numpy as np
import tensorflow as tf

from flatout.base.group import DividingGroup, Place

# Of sums in programs, and of those between them.
_IN_PROGRAMS, _BETWEEN = 713, 714
# More sums than a process traces. TensorFlow wants one shape for a number, of 31 bits.
_MOST_SUMS = 4096
_MOST_SIZES = 2**31 // _MOST_SUMS


class TensorFlowGroup(DividingGroup):
    """TensorFlow's runtime is set up by the strategy for several workers, whose `fit` Keras 3 does not support."""

    def __init__(self, place: Place):
        super().__init__(place)
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": list(place.addresses)}, "task": {"type": "worker", "index": place.rank}}
        )
        # Held: the runtime ends with it.
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self._keys = itertools.count(1)

    def _sum(self, tensor: Any, number: int | None = None) -> Any:
        """All processes trace the same sums in the same order, and so agree on their numbers."""
        group = _IN_PROGRAMS if number is None else _BETWEEN
        number = next(self._keys) % _MOST_SUMS if number is None else number
        total = tf.raw_ops.CollectiveReduceV2(
            input=tf.reshape(tensor, [-1]),
            group_size=self.place.size,
            group_key=group,
            instance_key=tf.size(tensor) % _MOST_SIZES * _MOST_SUMS + number,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
        )
        return tf.reshape(total, tf.shape(tensor))

    def sum_numbers(self, numbers: np.ndarray) -> np.ndarray:
        return self._sum(tf.constant(numbers), 0).numpy()  # type: ignore[no-any-return]

    def rows_of_all(self, part: Any, first: Any, last: Any, total: Any) -> Any:
        is_flag, size = part.dtype == tf.bool, self.place.size

        @tf.custom_gradient
        def rows_of_all(part: Any) -> Any:
            rows = tf.cast(part, tf.int32) if is_flag else part
            rows = self._sum(_padded(rows[: last - first], first, total - last))

            def gradient(upstream: Any) -> Any:
                own = upstream[first:last] * size
                return _padded(own, 0, tf.shape(part)[0] - (last - first))

            return tf.cast(rows, part.dtype), gradient

        rows = rows_of_all(part)
        rows.set_shape([total if isinstance(total, int) else None, *part.shape[1:]])
        return rows

    def means(self, values: list[Any]) -> list[Any]:
        means = [self._mean_of_rows(value) if _is_of_rows(value) else value for value in values]
        dense = {number: value.dtype for number, value in enumerate(values) if not _is_of_rows(value)}
        for dtype in dict.fromkeys(dense.values()):
            numbers = [number for number, its_dtype in dense.items() if its_dtype == dtype]
            bucket = tf.concat([tf.reshape(values[number], [-1]) for number in numbers], 0)
            bucket = self._sum(bucket) / self.place.size
            parts = tf.split(bucket, [tf.size(values[number]) for number in numbers])
            for number, part in zip(numbers, parts, strict=True):
                means[number] = tf.reshape(part, tf.shape(values[number]))
        return means

    def _mean_of_rows(self, slices: Any) -> Any:
        """Everybody's rows of a gradient, one after the other: optimizers leave alone the rows that are in none."""
        rank, size, count = self.place.rank, self.place.size, tf.shape(slices.indices)[0]
        counts = self._sum(tf.one_hot(rank, size, on_value=count, off_value=0, dtype=tf.int32))
        total, first = tf.reduce_sum(counts), tf.reduce_sum(counts[:rank])
        after = total - first - count
        values = self._sum(_padded(slices.values, first, after)) / size
        return tf.IndexedSlices(values, self._sum(_padded(slices.indices, first, after)), slices.dense_shape)


def _is_of_rows(value: Any) -> bool:
    return isinstance(value, tf.IndexedSlices)


def _padded(rows: Any, before: Any, after: Any) -> Any:
    return tf.pad(rows, [[before, after], *[[0, 0]] * (rows.shape.rank - 1)])
