"""A feed as Keras' torch backend reads it, but for the tensors that it makes of each batch: chunks want arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from keras import tree
from torch.utils.data import default_convert

from flatout.seam.adapters import as_torch_loader
from flatout.seam.epoch_iterators import read_by
from flatout.seam.torch_backend import convert_to_tensor

from .batch_checks import is_plain


class ArrayLoader:
    """Stands in for the DataLoader that Keras puts around batches."""

    def __init__(self, batches: Iterable[Any]):
        self._batches = batches
        self._loader = as_torch_loader(batches)

    def __iter__(self) -> Iterator[Any]:
        # Draws the random number that a DataLoader draws for its workers, and asks for no batch.
        iter(self._loader)
        return map(_loaded, self._batches)


@functools.cache
def with_arrays(iterator_class: Any) -> Any:
    """Keras' epoch iterator over a `Feed`, with NumPy arrays where these would become tensors as they are."""
    return read_by(iterator_class, lambda adapter, _: adapter.get_torch_dataloader(ArrayLoader))


def _loaded(batch: Any) -> Any:
    """A batch in the structure in which a DataLoader gives it."""
    if is_plain(batch):
        return _with_lists(batch)
    return default_convert(tree.map_structure(convert_to_tensor, batch, none_is_leaf=False))


def _with_lists(batch: Any) -> Any:
    if isinstance(batch, tuple | list):
        return [_with_lists(item) for item in batch]
    if isinstance(batch, dict):
        return {key: _with_lists(item) for key, item in batch.items()}
    return batch
