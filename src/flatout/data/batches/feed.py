"""Sources that are read batch by batch, pulled ahead of their use: generators, PyDatasets, tf.data, DataLoaders, grain.

A `Feed` stands in the place of `x` in stock `fit`, `evaluate` and `predict`, and gives our engines many batches at a
time. Keras' own data adapter of the source stays inside it: checks, class weights and shuffling are Keras'. What is
ours is who waits: a thread or worker processes make the next batches while the model trains on this one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flatout.base.when_used import keras, tf, tree
from flatout.data.workers.background import ITEMS_AHEAD
from flatout.seam.adapters import adapter_class, as_jax_batches, as_numpy_batches, as_tf_sparse, as_torch_loader
from flatout.seam.epoch_iterators import adapter_of

from .batch_checks import check_adapter, check_first, check_length, uses_a_model
from .batch_sources import FromAdapter, FromGenerator, FromWorkers, Source, continued, stand_in, wants_workers


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
        >>> from flatout.data.batches.feed import feed
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
    if ahead is not None and ahead < 0:
        raise ValueError(f"Invalid value for argument `ahead`. Received: ahead={ahead}. Expected 0 or more.")
    if ahead is None and uses_a_model(x):
        ahead = 0
    items = ITEMS_AHEAD if ahead is None else ahead
    if isinstance(x, keras.utils.PyDataset):
        check_length(x)
        if ahead != 0 and wants_workers(x):
            # Which gives the numbers of the batches, in an order that Keras' own code draws.
            adapter = adapter_of(stand_in(x, lambda index: (index,)), shuffle, class_weight)
            return _feed_class()(FromWorkers(x, adapter, ahead), steps_per_epoch, limit)
        x = stand_in(x, x.__getitem__) if wants_workers(x) else x
    user_generator = x if isinstance(x, types.GeneratorType) else None
    if user_generator is not None:
        x = continued(user_generator)
    adapter = adapter_of(x, shuffle, class_weight)
    check_adapter(adapter, x)
    source = FromAdapter(adapter, items) if user_generator is None else FromGenerator(user_generator, adapter, items)
    return _feed_class()(source, steps_per_epoch, limit)


def _of_adapter(name: str) -> Any:
    """A property of Keras' adapter of the source; None where that adapter does not implement it."""

    def value(feed: Feed) -> Any:
        try:
            return getattr(feed._source.adapter, name)
        except NotImplementedError:
            return None

    return property(value)


class Feed(contextlib.AbstractContextManager["Feed"]):
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
        self._newest: Callable[[], Any] = lambda: None
        self._has_given = False
        self.exhausted = False
        self.error: Exception | None = None
        weakref.finalize(self, source.close).atexit = False

    def batches(self) -> Batches:
        """The batches of a pass as numpy structures: `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

        A generator goes on where it is, everything else starts anew, as Keras' iterators do; call `on_epoch_begin`
        before and `on_epoch_end` after each epoch, as Keras' `EpochIterator` does.
        """
        return self._batches("numpy", as_numpy_batches)

    get_numpy_iterator = batches

    def get_jax_iterator(self) -> Batches:
        return self._batches("jax", as_jax_batches)

    def get_torch_dataloader(self, loader: Callable[[Batches], Any] = as_torch_loader) -> Any:
        batches = self._batches("torch", None)
        # Converted by the thread that trains: `keras.device` scopes belong to a thread.
        return loader(batches) if self._source.gives_raw("torch") else batches

    def get_tf_dataset(self) -> Any:
        """A dataset that asks for each batch when the step needs it: this object has it ready."""
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

    num_batches = _of_adapter("num_batches")
    batch_size = _of_adapter("batch_size")
    has_partial_batch = _of_adapter("has_partial_batch")
    partial_batch_size = _of_adapter("partial_batch_size")

    @property
    def is_stalled(self) -> bool:
        """Whether whoever asks for the next batch will have to wait for the source; False if nobody can tell."""
        puller = self._newest()
        return puller is not None and puller.is_stalled

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
        this = self

        class StopWhenExhausted(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if this.exhausted:
                    self.model.stop_training = True

        return StopWhenExhausted()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let no code of the source run in this process' background meanwhile."""
        with contextlib.ExitStack() as stack:
            for puller in list(self._pullers):
                stack.enter_context(puller.paused())
            yield

    def close(self) -> None:
        """End every thread and process behind this feed. It can be called again."""
        self._has_given = True
        for puller in list(self._pullers):
            puller.close()
        self._source.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, form: str, convert: Callable[[Iterable[Any]], Iterator[Any]] | None) -> Batches:
        puller = self._source.open(form)
        self._pullers.add(puller)
        self._newest = weakref.ref(puller)
        return Batches(self, puller, convert if self._source.gives_raw(form) else None)

    def _take(self, puller: Any) -> list[Any]:
        allowed = [left for left in (self._left_in_epoch, self._left) if left is not None]
        puller.limit = puller.taken + min(allowed) if allowed else None
        try:
            items = list(itertools.islice(puller, 1))
            if not self._has_given:
                check_first(items, self._source.adapter)
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


class Batches(Iterator[Any]):
    """Iterates over the batches of a pass."""

    def __init__(self, owner: Feed, puller: Any, convert: Callable[[Iterable[Any]], Iterator[Any]] | None):
        self._feed = owner
        self._puller = puller
        self._convert = convert

    def __next__(self) -> Any:
        items = self._feed._take(self._puller)
        if not items:
            raise StopIteration
        return items[0] if self._convert is None else next(self._convert(items))

    def close(self) -> None:
        """Give this pass up."""
        self._puller.close()


@functools.cache
def _feed_class() -> type[Feed]:
    """`Feed` as Keras knows it. Keras is imported only when the first feed is made."""
    return type("Feed", (Feed, adapter_class()), {"__doc__": Feed.__doc__, "__module__": __name__})


def _as_tensorflow_takes(signature: Any, batch: Any) -> Any:
    """A batch with the structure of its signature, and what tf.data has no values for replaced."""

    def component(value: Any, spec: Any) -> Any:
        if value is None:
            return tf.experimental.Optional.empty(None)
        value = as_tf_sparse(value)
        if hasattr(value, "shape") and not spec.shape.is_compatible_with(value.shape):
            raise TypeError(
                f"A batch has a component of another shape than the first ones. Received: shape {tuple(value.shape)}. "
                f"Expected: {spec.shape}. Dimensions that vary must differ between the first two batches."
            )
        return value

    return tree.map_structure(component, tree.lists_to_tuples(batch), signature)
