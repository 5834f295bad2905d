"""What the user gave as data: arrays whose rows have numbers, or a source that gives batch after batch."""

from __future__ import annotations

import math
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.base.when_used import keras, tree
from flatout.seam.adapters import adapted_arrays, are_arrays, has_dense_rows, is_dataset


@dataclass(frozen=True)
class ArraySource:
    """Arrays, frames and tensors whose rows can be addressed by number.

    Attributes:
        inputs: `(x, y, sample_weight)` packed as Keras packs them for `train_step`.
        rows: Number of samples.
        batch_size: The user's, or the one Keras chooses in its place.
        nbytes: Size once placed, after Keras' conversion of floats to `floatx`.
    """

    inputs: Any
    rows: int
    batch_size: int
    nbytes: int

    @property
    def batches(self) -> int:
        return math.ceil(self.rows / self.batch_size)

    def head(self, rows: int) -> Any:
        """The first rows, unconverted: enough to build a model on."""
        return tree.map_structure(
            lambda array: None if array is None else (array.iloc if hasattr(array, "iloc") else array)[:rows],
            self.inputs,
        )


@dataclass(frozen=True)
class BatchSource:
    """What gives batch after batch, in words its `kind`: its rows have no numbers, nor perhaps a pass its `batches`."""

    x: Any
    kind: str
    batches: int | None
    class_weight: Any


def describe(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    class_weight: Any = None,
) -> ArraySource | BatchSource:
    """Look at the user's data without reading it.

    Raises:
        Refusal: Arrays that only Keras can convert, batch by batch, or something that Keras itself will refuse.
    """
    if not are_arrays((x, y, sample_weight)):
        kind = _kind_of_batches(x)
        if kind is None or y is not None or sample_weight is not None:
            raise Refusal(reason("source", f"a {type(x).__name__}"))
        return BatchSource(x, kind, _batches_of(x), class_weight)
    for name, value in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        for leaf in tree.flatten(value):
            if leaf is not None and not _is_dense_numeric(leaf):
                raise Refusal(reason("sparse", name))
    one_label_a_row = y is not None and not tree.is_nested(y) and len(y.shape) <= 2
    if class_weight is not None and sample_weight is None and one_label_a_row:
        sample_weight, class_weight = weights_of_classes(y, class_weight), None
    adapted = adapted_arrays(
        x, y, sample_weight=sample_weight, class_weight=class_weight, batch_size=batch_size, steps=steps
    )
    if adapted.rows == 0:
        raise Refusal(reason("no_rows"))
    leaves = [leaf for leaf in tree.flatten(adapted.inputs) if leaf is not None]
    return ArraySource(adapted.inputs, adapted.rows, adapted.batch_size, sum(map(_placed_bytes, leaves)))


def _kind_of_batches(x: Any) -> str | None:
    from flatout.data.batches.feed import Feed

    kinds = {
        "a generator": isinstance(x, types.GeneratorType),
        "a PyDataset": isinstance(x, keras.utils.PyDataset),
        "a flatout.feed": isinstance(x, Feed),
        "a tf.data.Dataset": is_dataset(x, "tf_dataset"),
        "a DataLoader": is_dataset(x, "torch_dataloader"),
        "a grain dataset": is_dataset(x, "grain_dataset"),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), None)


def _batches_of(x: Any) -> int | None:
    """As far as can be told without reading anything."""
    try:
        if hasattr(x, "cardinality"):
            count = int(x.cardinality())
            return count if count >= 0 else None
        return x.num_batches if hasattr(x, "num_batches") else len(x)
    except (TypeError, NotImplementedError):
        return None


def weights_of_classes(y: Any, class_weight: Any) -> np.ndarray:
    """Keras' `class_weight_to_sample_weights`, which loops over all samples in Python, with one loop over classes."""
    labels = np.asarray(y) if hasattr(y, "paths") else keras.ops.convert_to_numpy(y)
    if labels.ndim > 1:
        labels = np.argmax(labels, axis=-1) if labels.shape[-1] != 1 else np.squeeze(labels, axis=-1)
    classes, positions = np.unique(np.round(labels).astype("int32"), return_inverse=True)
    weights = np.array([class_weight.get(int(name), 1.0) for name in classes], dtype=keras.config.floatx())
    return weights[positions.reshape(labels.shape)]


def _is_dense_numeric(leaf: Any) -> bool:
    if not has_dense_rows(leaf):
        return False
    dtypes = leaf.dtypes if hasattr(leaf, "columns") else [getattr(leaf, "dtype", None)]
    return all(getattr(dtype, "kind", "f") in "biuf" or str(dtype) == "bfloat16" for dtype in dtypes)


def _placed_bytes(leaf: Any) -> int:
    if hasattr(leaf, "columns"):
        itemsize = max((getattr(dtype, "itemsize", 8) for dtype in leaf.dtypes), default=8)
        is_float = any(getattr(dtype, "kind", "f") == "f" for dtype in leaf.dtypes)
    else:
        dtype = getattr(leaf, "dtype", None)
        itemsize = getattr(dtype, "itemsize", None) or getattr(dtype, "size", None) or 8
        is_float = "float" in str(dtype)
    if is_float:
        itemsize = np.dtype(keras.config.floatx()).itemsize if keras.config.floatx() != "bfloat16" else 2
    return math.prod(int(size) for size in leaf.shape) * int(itemsize)
