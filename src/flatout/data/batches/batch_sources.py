"""Where the batches of a feed come from: a generator, what a Keras adapter reads anew, or the workers of a dataset.

Batches that their source may overwrite while they wait are copied, and only where that can happen.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.base.when_used import keras, tree
from flatout.data.workers.background import ITEMS_AHEAD, Background
from flatout.seam.adapters import dataset_behind, looked_at, raw_batches, standardized, tf_signature

# A feed remembers this many batches, until more are taken, in case Keras took them only to build the model.
REMEMBERED = 8
# What feeds of a generator pulled ahead and did not use, for the next feed of the same generator.
_UNREAD: weakref.WeakKeyDictionary[Any, Iterator[Any]] = weakref.WeakKeyDictionary()
# Forms for which batches are pulled as they are; for the others the adapter's own iterator converts them.
_RAW = {
    "PyDatasetAdapter": {"numpy", "jax", "torch", "tensorflow"},
    "TFDatasetAdapter": {"torch"},
    "TorchDataLoaderAdapter": {"tensorflow"},
    "GrainDatasetAdapter": {"tensorflow"},
}
# Batches of a pass that are compared with each other: as many buffers may take turns and will be noticed.
WATCHED = 4


class Source:
    """Where a feed's batches come from, by way of Keras' adapter.

    Attributes:
        gives_once: Whether what it has given never comes again.
    """

    gives_once = False

    def __init__(self, adapter: Any):
        self.adapter = adapter

    def open(self, form: str) -> Any:
        """A `Background`, or what is used as one, of a pass in a form: numpy, jax, torch or tensorflow."""
        raise NotImplementedError

    def gives_raw(self, form: str) -> bool:
        """Whether `open` gives batches as the user made them, still to be converted to the form."""
        return True

    def signature(self) -> Any:
        """TensorFlow's description of a batch."""
        return self.adapter.get_tf_dataset().element_spec

    def begin_epoch(self) -> None:
        pass

    def end_epoch(self) -> None:
        pass

    def close(self) -> None:
        pass


class FromGenerator(Source):
    """A generator: read once, through all epochs."""

    gives_once = True

    def __init__(self, generator: Any, adapter: Any, items: int):
        super().__init__(adapter)
        self._generator = weakref.ref(generator)
        batches = adapter.generator()
        # A generator may write its next batch into the arrays of the last one.
        self._background = Background(map(copied, batches) if items else batches, items=items, keeps=REMEMBERED)
        self._epochs = self._ends = 0
        self._was_given_up = False
        self._is_closed = False

    def open(self, form: str) -> Background:
        if self._was_given_up:
            self._background.take_back()
            self._was_given_up = False
        return self._background

    def begin_epoch(self) -> None:
        # Keras builds a model on the first batch of an epoch that it gives up, with one call of `on_epoch_end`, from
        # `EpochIterator.reset`. After an epoch that ran to its end a second one follows, or the iterator is kept.
        self._was_given_up = self._epochs == 1 and self._ends == 1
        self._epochs += 1
        self._ends = 0

    def end_epoch(self) -> None:
        self._ends += 1

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._background.close()
        pulled = self._background.taken + self._background.ready
        unread = itertools.chain(self._background.unread(), looked_at(self.adapter)[pulled:])
        generator = self._generator()
        if generator is not None:
            _UNREAD[generator] = unread


def continued(generator: Any) -> Any:
    """A generator with what an earlier feed of it pulled and did not use before the rest."""
    return _resumed(_UNREAD.pop(generator), generator) if generator in _UNREAD else generator


def _resumed(unread: Iterator[Any], generator: Iterator[Any]) -> Iterator[Any]:
    yield from unread
    # Not `yield from`, which would close the user's generator together with this one.
    for batch in generator:  # noqa: UP028
        yield batch


class FromAdapter(Source):
    """What Keras' adapter can read anew for each pass, pulled by one thread."""

    def __init__(self, adapter: Any, items: int):
        super().__init__(adapter)
        self._kind = type(adapter).__name__
        self._items = items
        self._watch = OverwriteWatch()

    def open(self, form: str) -> Background:
        # `iter` is called here, by the thread that trains: a DataLoader draws a random number in it.
        try:
            batches = iter(self._iterable(form))
        except ImportError as error:
            # Keras 3.12 looks into grain for what is no longer there; on tensorflow it has another way to read.
            raise Refusal(reason("source", f"data that Keras has no NumPy arrays of ({error})")) from error
        if self._kind == "PyDatasetAdapter" and self._items:
            batches = self._watch.protected(batches)
        return Background(batches, items=self._items)

    def _iterable(self, form: str) -> Iterable[Any]:
        if self._kind == "PyDatasetAdapter":
            return raw_batches(self.adapter)
        if form == "numpy" or (form == "tensorflow" and self._kind == "TorchDataLoaderAdapter"):
            return self.adapter.get_numpy_iterator()
        if form == "jax":
            return self.adapter.get_jax_iterator()
        return _lazily(dataset_behind(self.adapter)) if self.gives_raw(form) else self.adapter.get_torch_dataloader()

    def gives_raw(self, form: str) -> bool:
        return form in _RAW.get(self._kind, ())


def _lazily(dataset: Iterable[Any]) -> Iterator[Any]:
    # A tf.data.Dataset shuffles anew for each iterator, used or not; Keras makes one when the first batch is asked for.
    yield from dataset


class FromWorkers(Source):
    """A `PyDataset` whose batches are made by threads or processes, started once."""

    def __init__(self, dataset: Any, adapter: Any, ahead: int | None):
        super().__init__(adapter)
        self._dataset = dataset
        queued = dataset.max_queue_size
        self._ahead = ahead or (queued if queued > 0 else ITEMS_AHEAD)
        # Not at the top: multiprocessing keeps the `__main__` that it finds when it is first imported, and under
        # `python -m flatout` that would be ours, not the user's script.
        from flatout.data.workers.pool import Processes, Threads

        kind = Processes if dataset.use_multiprocessing else Threads
        self._pool: Any = kind(dataset, dataset.workers)

    def open(self, form: str) -> Any:
        from flatout.data.workers.pool import InOrder

        numbers = (number for (number,) in raw_batches(self.adapter))
        return InOrder(self._pool, numbers, self._ahead, finish=functools.partial(standardized, self.adapter))

    def signature(self) -> Any:
        return tf_signature(lambda number: standardized(self.adapter, self._dataset[number]), self.adapter.num_batches)

    def begin_epoch(self) -> None:
        self._pool.refresh()

    def close(self) -> None:
        self._pool.close()


def wants_workers(dataset: Any) -> bool:
    return dataset.workers > 1 or (dataset.workers > 0 and dataset.use_multiprocessing)


def stand_in(dataset: Any, item: Callable[[int], Any]) -> Any:
    """A dataset of the same length and with the same hooks, without workers, so that Keras starts none of its own."""

    class StandIn(keras.utils.PyDataset):
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


def copied(batch: Any) -> Any:
    """A batch in memory of its own."""
    return tree.map_structure(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, batch)


class OverwriteWatch:
    """Finds out whether a dataset writes its batches into the same arrays again, and copies them if it does.

    The first batches of a pass are copied in any case: an earlier one is already overwritten when a later one shows
    it. They are also kept until then, since memory that is free is allocated again.
    """

    def __init__(self) -> None:
        self.overwrites: bool | None = None

    def protected(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of a pass, those that may be overwritten as copies."""
        # Not a generator, which would hold on to a batch until the next is asked for.
        return map(functools.partial(self._protected, []), batches)

    def _protected(self, kept: list[list[np.ndarray]], batch: Any) -> Any:
        if self.overwrites is None:
            arrays = [leaf for leaf in tree.flatten(batch) if isinstance(leaf, np.ndarray)]
            if any(np.may_share_memory(array, other) for others in kept for array in arrays for other in others):
                self.overwrites = True
            elif len(kept) == WATCHED:
                self.overwrites = False
            kept.append(arrays)
            if self.overwrites is not None:
                kept.clear()
        return batch if self.overwrites is False else copied(batch)
