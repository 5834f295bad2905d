"""Sources that are read batch by batch, pulled ahead of their use: generators, PyDatasets, tf.data, DataLoaders, grain.

A `Feed` stands in the place of `x` in stock `fit`, `evaluate` and `predict`, and gives our engines many batches at a
time. Keras' own data adapter of the source stays inside it: checks, class weights and shuffling are Keras'. What is
ours is who waits: a thread or worker processes make the next batches while the model trains on this one.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from .background import ITEMS_AHEAD, Background
from .workers import InOrder, Processes, Threads

# A feed remembers this many batches, until more are taken, in case Keras took them only to build the model.
REMEMBERED = 8
# What feeds of a generator pulled ahead and did not use, for the next feed of the same generator.
_UNREAD: weakref.WeakKeyDictionary[Any, Iterator[Any]] = weakref.WeakKeyDictionary()


class Puller(Protocol):
    """Batches of one pass, made ahead of being taken."""

    limit: int | None

    @property
    def taken(self) -> int: ...
    def take(self, most: int = 1) -> list[Any]: ...
    def close(self) -> None: ...


def feed(
    x: Any,
    *,
    shuffle: Any = False,
    class_weight: dict[int, float] | None = None,
    steps_per_epoch: int | None = None,
    ahead: int | None = None,
    limit: int | None = None,
) -> Feed:
    """Pull a source of batches in the background.

    The result goes to one call of `model.fit`, `model.evaluate` or `model.predict` in the place of `x`. It gives the
    batches that `x` itself would give, in the same order.

    Args:
        x: A generator, `keras.utils.PyDataset`, `tf.data.Dataset`, torch `DataLoader` or grain dataset.
        shuffle: As for `fit`, which cannot pass it on: whether a `PyDataset` gives its batches in random order.
        class_weight: As for `fit`, likewise.
        steps_per_epoch: As for `fit`. Nothing is then made ahead beyond the end of an epoch, so that callbacks and
            validation find the random generators of Python and numpy as stock Keras would leave them.
        ahead: Most batches to make ahead; 0 makes each when it is asked for, in the thread that asks. By default
            `max_queue_size` for the workers of a `PyDataset`, else 64 batches or 256 MB, and 0 for a source that
            itself uses a Keras model, whose weights must not be older than stock Keras would have them.
        limit: Never make more batches ahead than this in all, such as `epochs * steps_per_epoch`.

    Raises:
        ValueError: `x` is not such a source, or an empty one.

    Example:
        >>> import keras, numpy as np
        >>> from flatout.data.feed import feed
        >>> def batches():
        ...     while True:
        ...         yield np.ones((8, 4)), np.ones((8, 1))
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> with feed(batches()) as source:
        ...     history = model.fit(source, steps_per_epoch=3, verbose=0)
        >>> len(history.history["loss"])
        1
    """
    from keras.src.trainers.data_adapters import get_data_adapter
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

    if ahead is not None and ahead < 0:
        raise ValueError(f"Invalid value for argument `ahead`. Received: ahead={ahead}. Expected 0 or more.")
    if ahead is None and _uses_a_model(x):
        ahead = 0
    items = ITEMS_AHEAD if ahead is None else ahead
    if isinstance(x, PyDataset):
        _check_length(x)
        if ahead != 0 and _wants_workers(x):
            adapter = get_data_adapter(_order_only(x), shuffle=shuffle, class_weight=class_weight)
            return _feed_class()(_FromWorkers(x, adapter, ahead), steps_per_epoch, limit)
        x = _without_workers(x) if _wants_workers(x) else x
    user_generator = x if isinstance(x, types.GeneratorType) else None
    if user_generator is not None and user_generator in _UNREAD:
        x = _resumed(_UNREAD.pop(user_generator), user_generator)
    adapter = get_data_adapter(x, shuffle=shuffle, class_weight=class_weight)
    if isinstance(adapter, ArrayDataAdapter):
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
    if user_generator is not None:
        return _feed_class()(_FromGenerator(user_generator, adapter, items), steps_per_epoch, limit)
    return _feed_class()(_FromAdapter(adapter, items), steps_per_epoch, limit)


class Feed:
    """Keras' data adapter of a source, pulled in the background; made by `feed`.

    Attributes:
        exhausted: Whether the source has given all it has, once and for all: a finite generator at its end.
        error: What the source raised. TensorFlow reports it as an error of its own, without type and traceback.
    """

    def __init__(self, source: Source, steps_per_epoch: int | None, limit: int | None):
        self._source = source
        self._steps_per_epoch = steps_per_epoch
        self._left_in_epoch = steps_per_epoch
        self._left = limit
        self._pullers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._has_given = False
        self.exhausted = False
        self.error: Exception | None = None
        weakref.finalize(self, source.close).atexit = False

    def batches(self) -> Batches:
        """The batches of a pass as numpy structures: `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

        A generator goes on where it is, everything else starts anew, as Keras' iterators do; call `on_epoch_begin`
        before and `on_epoch_end` after each epoch, as Keras' `EpochIterator` does.
        """
        from keras.src.trainers.data_adapters.data_adapter_utils import get_numpy_iterator

        return self._batches("numpy", get_numpy_iterator)

    get_numpy_iterator = batches

    def get_jax_iterator(self) -> Batches:
        from keras.src.trainers.data_adapters.data_adapter_utils import get_jax_iterator

        return self._batches("jax", get_jax_iterator)

    def get_torch_dataloader(self) -> Any:
        from keras.src.trainers.data_adapters.data_adapter_utils import get_torch_dataloader

        batches = self._batches("torch", None)
        # Converted by the thread that trains: `keras.device` scopes belong to a thread.
        return get_torch_dataloader(batches) if self._source.gives_raw("torch") else batches

    def get_tf_dataset(self) -> Any:
        """A dataset that asks for each batch when the step needs it: this object has it ready."""
        import tensorflow as tf

        if not self._source.gives_raw("tensorflow"):
            return self._source.adapter.get_tf_dataset()
        signature = self._source.signature()
        convert = functools.partial(_as_tensorflow_takes, signature)
        # TensorFlow never lets go of the functions of a dataset, so this one must not hold on to the feed.
        weak_self = weakref.ref(self)

        def batches() -> Iterable[Any]:
            owner = weak_self()
            return () if owner is None else owner._batches("tensorflow", lambda items: map(convert, items))

        options = tf.data.Options()
        # No prefetching behind our back: it would make batches that Keras only looks at, or that nobody asked for.
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False
        return tf.data.Dataset.from_generator(batches, output_signature=signature).with_options(options)

    @property
    def num_batches(self) -> int | None:
        return self._source.adapter.num_batches

    @property
    def batch_size(self) -> int | None:
        return self._source.adapter.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        return _or_none(self._source.adapter, "has_partial_batch")

    @property
    def partial_batch_size(self) -> int | None:
        return _or_none(self._source.adapter, "partial_batch_size")

    def on_epoch_begin(self) -> None:
        self._source.adapter.on_epoch_begin()
        self._source.begin_epoch()
        self._left_in_epoch = self._steps_per_epoch

    def on_epoch_end(self) -> None:
        self._source.adapter.on_epoch_end()
        self._source.end_epoch()

    def stop_when_exhausted(self) -> Any:
        """A callback that ends `fit` after the epoch in which a finite generator ends.

        Keras says that it interrupts the training then, but goes on with epochs of no steps and a loss of 0.
        """
        import keras

        this = self

        class StopWhenExhausted(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if this.exhausted:
                    self.model.stop_training = True

        return StopWhenExhausted()

    def close(self) -> None:
        """End every thread and process behind this feed. It can be called again."""
        self._has_given = True
        for puller in list(self._pullers):
            puller.close()
        self._source.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, form: str, convert: Callable[[Iterable[Any]], Iterator[Any]] | None) -> Batches:
        puller = self._source.open(form)
        self._pullers.add(puller)
        return Batches(self, puller, convert if self._source.gives_raw(form) else None)

    def _take(self, puller: Puller, most: int) -> list[Any]:
        allowed = [left for left in (self._left_in_epoch, self._left) if left is not None]
        puller.limit = puller.taken + min(allowed) if allowed else None
        try:
            items = puller.take(most)
            if not self._has_given:
                _check_first(items, self._source.adapter)
        except BaseException as error:
            self.error = error if isinstance(error, Exception) else None
            self.close()
            raise
        self._has_given = True
        if not items:
            self.exhausted = self._source.gives_once
        if self._left_in_epoch is not None:
            self._left_in_epoch = max(0, self._left_in_epoch - len(items))
        if self._left is not None:
            self._left = max(0, self._left - len(items))
        return items


class Batches:
    """Iterates over the batches of a pass; `take` gives as many as are ready."""

    def __init__(self, owner: Feed, puller: Puller, convert: Callable[[Iterable[Any]], Iterator[Any]] | None):
        self._feed = owner
        self._puller = puller
        self._convert = convert

    def take(self, most: int = 1) -> list[Any]:
        """Wait for a batch, and return it with all others that are ready, `most` at most; `[]` at the end."""
        items = self._feed._take(self._puller, most)
        return items if self._convert is None else list(self._convert(items))

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        items = self.take()
        if not items:
            raise StopIteration
        return items[0]

    def close(self) -> None:
        """Give this pass up."""
        self._puller.close()


class Source(Protocol):
    """Where a feed's batches come from."""

    adapter: Any
    gives_once: bool

    def open(self, form: str) -> Any:
        """A `Puller` for a form: numpy, jax, torch or tensorflow."""

    def gives_raw(self, form: str) -> bool:
        """Whether `open` gives batches as the user made them, still to be converted to the form."""

    def signature(self) -> Any:
        """TensorFlow's description of a batch."""

    def begin_epoch(self) -> None: ...
    def end_epoch(self) -> None: ...
    def close(self) -> None: ...


class _FromGenerator:
    """A generator: read once, through all epochs."""

    gives_once = True

    def __init__(self, generator: Any, adapter: Any, items: int):
        self.adapter = adapter
        self._generator = weakref.ref(generator)
        batches = adapter.generator()
        # A generator may write its next batch into the arrays of the last one.
        self._background = Background(map(_copied, batches) if items else batches, items=items)
        self._again: deque[Any] = deque()
        self._remembered: list[Any] | None = []
        self._epochs = self._ends = 0
        self._was_given_up = False
        self._is_closed = False
        self.limit: int | None = None

    def open(self, form: str) -> Any:
        if self._was_given_up and self._remembered:
            self._again = deque(self._remembered)
            self._was_given_up = False
        return self

    def gives_raw(self, form: str) -> bool:
        return True

    def signature(self) -> Any:
        return self.adapter.get_tf_dataset().element_spec

    @property
    def taken(self) -> int:
        return self._background.taken - len(self._again)

    def take(self, most: int = 1) -> list[Any]:
        if self._again:
            return [self._again.popleft() for _ in range(min(most, len(self._again)))]
        self._background.limit = self.limit
        items = self._background.take(most)
        if self._remembered is not None:
            self._remembered = [*self._remembered, *items] if items and self.taken <= REMEMBERED else None
        return items

    def begin_epoch(self) -> None:
        # Keras builds a model on the first batch of an epoch that it gives up, with one call of `on_epoch_end`, from
        # `EpochIterator.reset`. After an epoch that ran to its end a second one follows, or the iterator is kept.
        self._was_given_up = self._epochs == 1 and self._ends == 1
        if not self._was_given_up and self._epochs:
            self._remembered = None
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
        unread = itertools.chain(self._again, self._background.unread(), self.adapter._first_batches[pulled:])
        generator = self._generator()
        if generator is not None:
            _UNREAD[generator] = unread


class _FromAdapter:
    """What Keras' adapter can read anew for each pass, pulled by one thread."""

    gives_once = False

    # Forms for which batches are pulled as they are; for the others the adapter's own iterator converts them.
    _RAW: types.MappingProxyType[str, set[str]] = types.MappingProxyType(
        {
            "PyDatasetAdapter": {"numpy", "jax", "torch", "tensorflow"},
            "TFDatasetAdapter": {"torch"},
            "TorchDataLoaderAdapter": {"tensorflow"},
            "GrainDatasetAdapter": {"tensorflow"},
        }
    )

    def __init__(self, adapter: Any, items: int):
        self.adapter = adapter
        self._kind = type(adapter).__name__
        self._items = items

    def open(self, form: str) -> Background:
        # `iter` is called here, by the thread that trains: a DataLoader draws a random number in it.
        return Background(iter(self._iterable(form)), items=self._items)

    def _iterable(self, form: str) -> Iterable[Any]:
        if self._kind == "PyDatasetAdapter":
            return self.adapter._get_iterator()
        if form == "numpy" or (form == "tensorflow" and self._kind == "TorchDataLoaderAdapter"):
            return self.adapter.get_numpy_iterator()
        if form == "jax":
            return self.adapter.get_jax_iterator()
        return _lazily(self.adapter._dataset) if self.gives_raw(form) else self.adapter.get_torch_dataloader()

    def gives_raw(self, form: str) -> bool:
        return form in self._RAW.get(self._kind, ())

    def signature(self) -> Any:
        return self.adapter.get_tf_dataset().element_spec

    def begin_epoch(self) -> None:
        pass

    end_epoch = close = begin_epoch


class _FromWorkers:
    """A `PyDataset` whose batches are made by threads or processes, started once."""

    gives_once = False

    def __init__(self, dataset: Any, adapter: Any, ahead: int | None):
        self.adapter = adapter
        self._dataset = dataset
        queued = dataset.max_queue_size
        self._ahead = ahead or (queued if queued > 0 else ITEMS_AHEAD)
        kind = Processes if dataset.use_multiprocessing else Threads
        self._pool: Any = kind(dataset, dataset.workers)

    def open(self, form: str) -> InOrder:
        numbers = (number for (number,) in self.adapter._get_iterator())
        return InOrder(self._pool, numbers, self._ahead, finish=self.adapter._standardize_batch)

    def gives_raw(self, form: str) -> bool:
        return True

    def signature(self) -> Any:
        from keras.src.trainers.data_adapters import data_adapter_utils as keras_data

        count = keras_data.NUM_BATCHES_FOR_TENSOR_SPEC
        count = count if self.adapter.num_batches is None else min(count, self.adapter.num_batches)
        return keras_data.get_tensor_spec([self.adapter._standardize_batch(self._dataset[i]) for i in range(count)])

    def begin_epoch(self) -> None:
        self._pool.refresh()

    def end_epoch(self) -> None:
        pass

    def close(self) -> None:
        self._pool.close()


@functools.cache
def _feed_class() -> type[Feed]:
    """`Feed` as Keras knows it. Keras is imported only when the first feed is made."""
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter

    return type("Feed", (Feed, DataAdapter), {"__doc__": Feed.__doc__, "__module__": __name__})


def _lazily(dataset: Iterable[Any]) -> Iterator[Any]:
    # A tf.data.Dataset shuffles anew for each iterator, used or not; Keras makes one when the first batch is asked for.
    yield from dataset


def _resumed(unread: Iterator[Any], generator: Iterator[Any]) -> Iterator[Any]:
    yield from unread
    # Not `yield from`, which would close the user's generator together with this one.
    for batch in generator:  # noqa: UP028
        yield batch


def _copied(batch: Any) -> Any:
    from keras import tree

    return tree.map_structure(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, batch)


def _wants_workers(dataset: Any) -> bool:
    return dataset.workers > 1 or (dataset.workers > 0 and dataset.use_multiprocessing)


def _stand_in(dataset: Any, item: Callable[[int], Any]) -> Any:
    """A dataset of the same length and with the same hooks, without workers."""
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

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


def _order_only(dataset: Any) -> Any:
    """Gives the numbers of the batches, in an order that Keras' own code draws."""
    return _stand_in(dataset, lambda index: (index,))


def _without_workers(dataset: Any) -> Any:
    return _stand_in(dataset, dataset.__getitem__)


def _check_length(dataset: Any) -> None:
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


def _check_first(items: list[Any], adapter: Any) -> None:
    from keras import tree

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


def _uses_a_model(x: Any) -> bool:
    """Whether the code of a source mentions a Keras layer or model, as far as can be seen."""
    from keras import Layer
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

    values: list[Any] = []
    if isinstance(x, types.GeneratorType) and x.gi_frame is not None:
        values = [*x.gi_frame.f_locals.values(), *map(x.gi_frame.f_globals.get, x.gi_code.co_names)]
    elif isinstance(x, PyDataset) and not _wants_workers(x):
        code = getattr(type(x).__getitem__, "__code__", None)
        names = code.co_names if code else ()
        values = [*vars(x).values(), *(getattr(type(x).__getitem__, "__globals__", {}).get(name) for name in names)]
    return any(isinstance(value, Layer) for value in values)


def _as_tensorflow_takes(signature: Any, batch: Any) -> Any:
    from keras import tree

    return tree.map_structure(_component, tree.lists_to_tuples(batch), signature)


def _component(value: Any, spec: Any) -> Any:
    import tensorflow as tf
    from keras.src.trainers.data_adapters import data_adapter_utils as keras_data

    if value is None:
        return tf.experimental.Optional.empty(None)
    if keras_data.is_scipy_sparse(value):
        value = keras_data.scipy_sparse_to_tf_sparse(value)
    elif keras_data.is_jax_sparse(value):
        value = keras_data.jax_sparse_to_tf_sparse(value)
    if hasattr(value, "shape") and not spec.shape.is_compatible_with(value.shape):
        raise TypeError(
            f"A batch has a component of another shape than the first ones. Received: shape {tuple(value.shape)}. "
            f"Expected: {spec.shape}. Dimensions that vary must differ between the first two batches."
        )
    return value


def _or_none(adapter: Any, name: str) -> Any:
    """A property that some of Keras' adapters do not implement."""
    try:
        return getattr(adapter, name)
    except NotImplementedError:
        return None
