"""PyDatasets that stand in the place of one with workers, so that Keras starts none of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def wants_workers(dataset: Any) -> bool:
    return dataset.workers > 1 or (dataset.workers > 0 and dataset.use_multiprocessing)


def order_only(dataset: Any) -> Any:
    """Gives the numbers of the batches, in an order that Keras' own code draws."""
    return _stand_in(dataset, lambda index: (index,))


def without_workers(dataset: Any) -> Any:
    return _stand_in(dataset, dataset.__getitem__)


def _stand_in(dataset: Any, item: Callable[[int], Any]) -> Any:
    """A dataset of the same length and with the same hooks, without workers."""
    from keras.utils import PyDataset

    class StandIn(PyDataset):
        def __getitem__(self, index: int) -> Any:
            return item(index)

        @property
        def num_batches(self) -> int | None:
            return dataset.num_batches

        def on_epoch_begin(self) -> None:
            dataset.on_epoch_begin()

        def on_epoch_end(self) -> None:
            dataset.on_epoch_end()

    return StandIn()
