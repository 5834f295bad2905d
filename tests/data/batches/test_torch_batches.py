"""Batches for chunks are what Keras' DataLoader makes of them, but for being arrays, and draw what it draws."""

from __future__ import annotations

import collections
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest

from flatout.data.batches.batch_checks import is_plain
from flatout.data.batches.feed import feed

pytestmark = pytest.mark.backend("torch")

ROWS = np.arange(24, dtype="float32").reshape(8, 3)
LABELS = np.arange(8)
READ_ONLY = ROWS.copy()
READ_ONLY.flags.writeable = False
Pair = collections.namedtuple("Pair", "first second")
PLAIN = {
    "a pair": (ROWS, LABELS),
    "weights": (ROWS, LABELS, np.ones(8, "float16")),
    "a dict": ({"b": ROWS, "a": LABELS}, LABELS),
    "lists and tuples": (([ROWS, (LABELS, ROWS)],), LABELS),
    "x alone": (ROWS,),
    "images": (np.arange(96, dtype="uint8").reshape(8, 4, 3, 1), LABELS > 3),
    "64 bits": (ROWS.astype("float64"), LABELS.astype("int64")),
}
OTHERS = {
    "uint16": (ROWS.astype("uint16"), LABELS),
    "uint32": (ROWS.astype("uint32"), LABELS),
    "bfloat16": (ROWS.astype(ml_dtypes.bfloat16), LABELS),
    "backwards": (ROWS[::-1], LABELS[::-1]),
    "columns first": (np.asfortranarray(ROWS), LABELS),
    "read-only": (READ_ONLY, LABELS),
    "a named tuple": (Pair(ROWS, LABELS), LABELS),
    "a masked array": (np.ma.masked_less(ROWS, 3), LABELS),
}


def structure_of(batch: Any) -> Any:
    """The batch with arrays as lists of numbers, beside their dtypes."""
    import torch

    if isinstance(batch, dict):
        return {key: structure_of(item) for key, item in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(*map(structure_of, batch)) if hasattr(batch, "_fields") else [structure_of(i) for i in batch]
    if batch is None:
        return None
    tensor = torch.as_tensor(batch)
    return str(tensor.dtype), tensor.tolist()


def both_ways(batch: Any) -> tuple[list[Any], list[Any]]:
    """What Keras' loader and ours give, and the state of torch's generator after each."""
    import torch

    from flatout.data.batches.torch_batches import ArrayLoader

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return batch

    seen = []
    for loader in ((), (ArrayLoader,)):
        keras.utils.set_random_seed(3)
        with feed(Batches()) as source:
            batches = list(source.get_torch_dataloader(*loader))
        seen.append([*map(structure_of, batches), torch.get_rng_state().tolist()])
    assert len(seen[0]) == 4
    return seen[0], seen[1]


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_batches_are_as_keras_loads_them(kind: str) -> None:
    assert is_plain(PLAIN[kind])
    expected, received = both_ways(PLAIN[kind])
    assert received == expected


@pytest.mark.parametrize("kind", OTHERS)
def test_other_batches_are_as_keras_loads_them(kind: str) -> None:
    assert not is_plain(OTHERS[kind])
    expected, received = both_ways(OTHERS[kind])
    assert received == expected


@pytest.mark.parametrize("kind", ["backwards", "read-only", "uint32", "columns first"])
def test_training_on_other_batches_equals_stock_keras(kind: str) -> None:
    import flatout

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return OTHERS[kind]

    def trained(fit: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = fit(model, Batches(), epochs=2, verbose=0).history
        return history, model.get_weights()

    with flatout.options(force=True):
        history, weights = trained(flatout.fit)
    expected, expected_weights = trained(keras.Model.fit)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-6)
    for one, other in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
