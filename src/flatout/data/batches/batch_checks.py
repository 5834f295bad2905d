"""What is looked at: whether a source gives batches, and of which arrays, and whether it uses a model."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tree
from flatout.seam.adapters import array_adapter_class

from .batch_sources import wants_workers


def check_length(dataset: Any) -> None:
    name = type(dataset).__name__
    try:
        length = dataset.num_batches
    except NotImplementedError as error:
        raise ValueError(
            f"The PyDataset `{name}` does not say how many batches it has. Received: neither `__len__` nor "
            "`num_batches`. Define `__len__`, or a property `num_batches` that is None for an endless dataset."
        ) from error
    if length is not None and length < 1:
        raise ValueError(
            f"The PyDataset `{name}` is empty. Received: {length} batches. Expected at least one; look at `__len__`."
        )


def check_adapter(adapter: Any, x: Any) -> None:
    """Refuse arrays, and sources that say that they are empty."""
    if isinstance(adapter, array_adapter_class()):
        raise ValueError(
            f"`feed` takes sources that are read batch by batch. Received: x of type {type(x).__name__}, whose rows "
            "Keras addresses by number. Pass it to `fit` itself, or a generator, PyDataset, tf.data.Dataset, "
            "DataLoader or grain dataset to `feed`."
        )
    if adapter.num_batches == 0:
        raise ValueError(
            f"The {type(x).__name__} is empty. Received: 0 batches. Expected a source that gives at least one; is "
            "drop_last or drop_remainder set with fewer samples than a batch has?"
        )


def check_first(items: list[Any], adapter: Any) -> None:
    if not items:
        raise ValueError(
            f"The source gave no batch. Received: an empty {type(adapter).__name__.removesuffix('Adapter')}. Expected "
            "at least one batch; look at its filters and at drop_last or drop_remainder."
        )
    if _has_numbers_in_lists(items[0]) or any(
        str(getattr(leaf, "dtype", "")) == "object" for leaf in tree.flatten(items[0])
    ):
        raise ValueError(
            "A batch holds ragged data. Received: lists of numbers, or an array of Python objects, where an array of "
            "numbers was expected. Pad the samples of a batch to one shape and give them as `np.asarray(samples)`."
        )


def _has_numbers_in_lists(structure: Any) -> bool:
    if isinstance(structure, list) and any(isinstance(item, (int, float)) for item in structure):
        return True
    if isinstance(structure, dict):
        structure = list(structure.values())
    return isinstance(structure, (list, tuple)) and any(map(_has_numbers_in_lists, structure))


def uses_a_model(x: Any) -> bool:
    """Whether the code of a source mentions a Keras layer or model, as far as can be seen."""
    values: list[Any] = []
    if isinstance(x, types.GeneratorType) and x.gi_frame is not None:
        values = [*x.gi_frame.f_locals.values(), *map(x.gi_frame.f_globals.get, x.gi_code.co_names)]
    elif isinstance(x, keras.utils.PyDataset) and not wants_workers(x):
        code = getattr(type(x).__getitem__, "__code__", None)
        names = code.co_names if code else ()
        values = [*vars(x).values(), *(getattr(type(x).__getitem__, "__globals__", {}).get(name) for name in names)]
    return any(isinstance(value, keras.Layer) for value in values)


def is_plain(batch: Any) -> bool:
    """Whether a batch is made of tuples, lists and dicts of arrays that every backend takes as they are, and of None.

    Most generators give such, and Keras' conversion of each batch takes longer than a short step.
    """
    kind = type(batch)
    if kind is np.ndarray:
        return _is_taken(batch)
    if kind is tuple or kind is list:
        return all(map(is_plain, batch))
    if kind is dict:
        return all(map(is_plain, batch.values()))
    return batch is None


def _is_taken(array: np.ndarray) -> bool:
    dtype, flags = array.dtype, array.flags
    # torch wants arrays that it might write to, in this machine's byte order, and has few unsigned numbers.
    is_of_numbers = (dtype.kind in "bif" or dtype == np.uint8) and bool(dtype.isnative)
    return is_of_numbers and flags.c_contiguous and flags.writeable
