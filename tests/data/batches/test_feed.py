"""A feed gives the batches of its source as stock Keras would, in the same order, with the same random numbers."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras.src.trainers.data_adapters import get_data_adapter

from flatout.data.batches.feed import Feed, feed
from flatout.seam.epoch_iterators import iterator_class
from flatout.seam.trainers import trainer_module

BACKEND = keras.config.backend()
EXTRA: dict[str, Any] = {}
if BACKEND == "tensorflow":
    import tensorflow as tf

    EXTRA = {"distribute_strategy": tf.distribute.get_strategy()}
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.turns]


def generator(batches: int | None, rows: int = 2) -> Iterator[Any]:
    for index in itertools.count() if batches is None else range(batches):
        yield np.full((rows, 3), index, np.float32), np.full((rows, 1), index, np.float32)


class Numbers(keras.utils.PyDataset):
    """Batch i holds i, and a random number as an augmentation would draw it."""

    def __init__(self, length: int | None = 6, **options: Any):
        super().__init__(**options)
        # Workers have random states of their own, and stock tensorflow makes more batches than it uses.
        self.is_noisy = not options and BACKEND != "tensorflow"
        self.length = length
        self.order = list(range(length or 0))

    @property
    def num_batches(self) -> int | None:
        return self.length

    def __getitem__(self, index: int) -> Any:
        noise = np.random.random() / 2 if self.is_noisy else 0.0
        number = self.order[index] if self.order else index
        return np.full((2, 3), number + noise, np.float32), np.full((2, 1), number % 2, np.int32)

    def on_epoch_end(self) -> None:
        self.order.reverse()


def tf_data() -> Any:
    import tensorflow as tf

    return (
        tf.data.Dataset.range(12).map(lambda i: (tf.fill([3], tf.cast(i, "float32")), i)).shuffle(12, seed=1).batch(2)
    )


def data_loader() -> Any:
    import torch

    x = torch.arange(13, dtype=torch.float32).reshape(13, 1)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x + 1), batch_size=2, shuffle=True)


def grain_data() -> Any:
    grain = pytest.importorskip("grain.python")
    rows = [(np.full(3, i, np.float32), np.full(1, i, np.float32)) for i in range(12)]
    return grain.MapDataset.source(rows).seed(7).shuffle().batch(2)


SOURCES: dict[str, Callable[[], Any]] = {
    "generator": lambda: generator(7),
    "py_dataset": Numbers,
    "py_dataset_threads": lambda: Numbers(workers=3),
    "py_dataset_processes": lambda: Numbers(workers=2, use_multiprocessing=True),
    "tf_data": tf_data,
    "data_loader": data_loader,
    "grain": grain_data,
}


def epochs_of(adapter: Any, epochs: int, steps: int | None = None) -> Any:
    """All batches that the backend's own epoch iterator takes from an adapter."""
    iterator = iterator_class(trainer_module(BACKEND))(x=adapter, steps_per_epoch=steps, **EXTRA)
    iterator.reset()
    seen = []
    for _ in range(epochs):
        epoch: list[Any] = []
        with iterator.catch_stop_iteration():
            for _, _, data in iterator:
                batch = data[0] if BACKEND == "torch" else next(data)
                epoch.append(keras.tree.map_structure(lambda leaf: np.asarray(leaf).tolist(), batch))
        seen.append(epoch)
    return seen


def seed(number: int) -> None:
    """Also torch's generator, from which DataLoaders draw on every backend."""
    import torch

    keras.utils.set_random_seed(number)
    torch.manual_seed(number)


def random_states() -> Any:
    states = [random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]]
    if BACKEND == "torch":
        import torch

        states.append(torch.get_rng_state().tolist())
    return states


def threads() -> int:
    return sum(thread.name.startswith("flatout") for thread in threading.enumerate())


def model() -> Any:
    """Not built, so that Keras looks at the first batch."""
    made = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    made.compile("sgd", "mse")
    return made


class Seen(keras.callbacks.Callback):
    """Counts the steps of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    # To collect takes half a second in a process that has loaded three backends.
    if threads() or multiprocessing.active_children():
        gc.collect()
    deadline = time.monotonic() + 10
    while (threads() or multiprocessing.active_children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == 0
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", SOURCES)
def test_batches_and_random_states_equal_those_of_stock_keras(name: str, shuffle: bool) -> None:
    # Stock Keras gives a generator's first two batches again in each epoch.
    epochs = 1 if name == "generator" else 3
    seed(3)
    expected, states = epochs_of(get_data_adapter(SOURCES[name](), shuffle=shuffle), epochs), random_states()
    seed(3)
    with feed(SOURCES[name](), shuffle=shuffle) as source:
        assert epochs_of(source, epochs) == expected
    assert random_states() == states


@pytest.mark.parametrize("name", SOURCES)
def test_numpy_batches_are_keras_own(name: str) -> None:
    seed(3)
    expected = list(get_data_adapter(SOURCES[name]()).get_numpy_iterator())
    seed(3)
    with feed(SOURCES[name]()) as source:
        got = list(source.batches())
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert type(ours) is type(theirs)
        keras.tree.map_structure(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("name", SOURCES)
def test_what_keras_asks_of_an_adapter_is_answered(name: str) -> None:
    adapter = get_data_adapter(SOURCES[name]())
    with feed(SOURCES[name]()) as source:
        assert source.num_batches == adapter.num_batches
        assert source.batch_size == adapter.batch_size
        assert source.has_partial_batch in (None, getattr(adapter, "_partial_batch_size", 0) != 0)
        assert source.partial_batch_size == getattr(adapter, "_partial_batch_size", None)
        assert get_data_adapter(source) is source


@pytest.mark.parametrize("name", ["py_dataset", "py_dataset_threads", "py_dataset_processes"])
def test_class_weights_become_sample_weights(name: str) -> None:
    weights = {0: 0.5, 1: 2.0}
    with feed(SOURCES[name](), class_weight=weights) as source:
        for _, y, sample_weight in source.batches():
            assert sample_weight.tolist() == [weights[int(label)] for label in y[:, 0]]


@pytest.mark.parametrize("name", SOURCES)
def test_fit_evaluate_and_predict_equal_stock_keras(name: str) -> None:
    stock = SOURCES[name]
    # With workers stock Keras trains on batches left over from building the model (ready_queue of its enqueuer).
    if name in ("py_dataset_threads", "py_dataset_processes"):
        stock = lambda: Numbers(workers=1)  # noqa: E731
    arguments = {"epochs": 1 if name == "generator" else 2, "verbose": 0, "shuffle": False}
    outcomes = []
    for make in (stock, lambda: feed(SOURCES[name]())):
        seed(5)
        trained = model()
        history = trained.fit(make(), **arguments).history
        outcome = {**history, "evaluate": trained.evaluate(make(), verbose=0)}
        outcomes.append({**outcome, "predict": trained.predict(make(), verbose=0)})
    keras.tree.map_structure(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-5), *outcomes)


def test_a_generator_goes_on_over_epochs_with_steps_per_epoch() -> None:
    with feed(generator(None), steps_per_epoch=3) as source:
        epochs = epochs_of(source, 3, steps=3)
    assert [[batch[1][0][0] for batch in epoch] for epoch in epochs] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_batch_that_keras_built_the_model_on_is_trained_on() -> None:
    seen: list[float] = []

    class Spy(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append(logs["loss"])

    trained = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    trained.compile(keras.optimizers.SGD(0.0), "mse")
    with feed(generator(None)) as source:
        trained.fit(source, steps_per_epoch=2, epochs=2, verbose=0, callbacks=[Spy()])
    # Means over the epoch of 0, 1, then of 4, 9: each batch once.
    np.testing.assert_allclose(seen, [0, 0.5, 4, 6.5])


@pytest.mark.parametrize("length", [1, 2, 6])
def test_a_finite_generator_is_never_replayed_and_training_stops(length: int) -> None:
    counter = Seen()
    with feed(generator(length)) as source, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model().fit(source, epochs=3, verbose=0, callbacks=[counter, source.stop_when_exhausted()])
    # jax and tensorflow announce a step before they find that there is no batch for it.
    assert counter.steps == [length]
    assert sum("Your input ran out of data" in str(warning.message) for warning in caught) == 1


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"workers": 2, "use_multiprocessing": True}])
def test_a_pass_over_a_dataset_goes_on_over_epochs_with_steps_per_epoch(options: Any) -> None:
    dataset = Numbers(6, **options)
    dataset.on_epoch_end = lambda: None
    with feed(dataset, steps_per_epoch=2) as source:
        epochs = epochs_of(source, 4, steps=2)
    assert [[int(batch[0][0][0]) for batch in epoch] for epoch in epochs] == [[0, 1], [2, 3], [4, 5], [0, 1]]


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"workers": 2, "use_multiprocessing": True}])
def test_an_endless_dataset_is_read_as_far_as_it_is_used(options: Any) -> None:
    with feed(Numbers(None, **options), steps_per_epoch=3) as source:
        epochs = epochs_of(source, 2, steps=3)
    assert [[int(batch[0][0][0]) for batch in epoch] for epoch in epochs] == [[0, 1, 2], [3, 4, 5]]


@settings(max_examples=10, deadline=None)
@given(
    length=st.integers(1, 9),
    workers=st.integers(0, 3),
    ahead=st.none() | st.integers(0, 5),
    limit=st.none() | st.integers(0, 20),
    shuffle=st.booleans(),
)
def test_order_does_not_depend_on_workers_look_ahead(
    length: int, workers: int, ahead: int | None, limit: int | None, shuffle: bool
) -> None:
    def read(source: Feed) -> list[int]:
        seen: list[int] = []
        for _ in range(2):
            source.on_epoch_begin()
            seen += [int(x[0, 0]) for x, _ in source.batches()]
            source.on_epoch_end()
        return seen

    seed(1)
    with feed(Numbers(length), shuffle=shuffle, ahead=0) as source:
        expected = read(source)
    seed(1)
    with feed(Numbers(length, workers=workers), shuffle=shuffle, ahead=ahead, limit=limit) as source:
        assert read(source) == expected


def test_nothing_is_pulled_beyond_the_limit_or_the_end_of_an_epoch() -> None:
    asked = itertools.count()
    pulled: list[int] = []

    def counting() -> Iterator[Any]:
        for index in asked:
            pulled.append(index)
            yield np.full((2, 3), index, np.float32), np.zeros((2, 1), np.float32)

    with feed(counting(), steps_per_epoch=4, limit=7) as source:
        batches = source.batches()
        source.on_epoch_begin()
        for expected in (4, 7):
            for _ in range(expected - len(pulled) if expected == 7 else 4):
                next(batches)
            time.sleep(0.05)
            assert len(pulled) == expected
            source.on_epoch_end()
            source.on_epoch_begin()


def test_what_was_pulled_and_not_used_is_for_the_next_feed_of_the_generator() -> None:
    endless = generator(None)
    seen: list[int] = []
    for count in (1, 4, 3):
        with feed(endless) as source:
            seen += [int(x[0, 0]) for x, _ in itertools.islice(source.batches(), count)]
            time.sleep(0.02)
    assert seen == list(range(8))
    assert endless.gi_frame is not None, "the generator is the user's to close"


def test_a_source_that_uses_a_model_is_not_made_ahead() -> None:
    trained = model()
    made: list[int] = []

    def self_play() -> Iterator[Any]:
        for index in itertools.count():
            made.append(index)
            assert trained.optimizer is not None
            yield np.full((2, 3), index, np.float32), np.zeros((2, 1), np.float32)

    with feed(self_play()) as source:
        batches = source.batches()
        for _ in range(4):
            next(batches)
        assert threads() == 0
    assert len(made) == 4


def test_threads_and_processes_end_with_a_feed_that_nobody_holds() -> None:
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(trained, "stop_training", True)
    )
    for name in ("generator", "py_dataset", "py_dataset_threads", "py_dataset_processes"):
        trained = model()
        trained.fit(feed(SOURCES[name]()), epochs=3, verbose=0, callbacks=[stop])


class NoLength(keras.utils.PyDataset):
    def __getitem__(self, index: int) -> Any:
        return (np.zeros((2, 3)),)


def ragged() -> Iterator[Any]:
    yield [[1.0, 2.0], [3.0]], np.zeros((2, 1))


def objects() -> Iterator[Any]:
    yield np.array([[1.0, 2.0], [3.0]], dtype=object), np.zeros((2, 1))


def empty_tf_data() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((np.zeros((4, 3)), np.zeros(4))).filter(lambda x, y: y > 0).batch(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: generator(0), "empty generator"),
        (lambda: Numbers(0), "`Numbers` is empty. Received: 0 batches"),
        (NoLength, "`NoLength` does not say how many batches it has"),
        (lambda: tf_data().take(0), "is empty. Received: 0 batches"),
        (empty_tf_data, "The source gave no batch"),
        (ragged, "ragged data"),
        (objects, "ragged data"),
        (lambda: np.zeros((4, 3)), "x of type ndarray"),
        (lambda: "rows.csv", "Unrecognized data type"),
    ],
)
def test_bad_sources_get_one_clear_error(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message), feed(make()) as source:
        next(source.batches())


def test_a_negative_look_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="Received: ahead=-1"):
        feed(generator(3), ahead=-1)


class Reused(keras.utils.PyDataset):
    """Writes its batches into the same arrays in turn."""

    def __init__(self, buffers: int = 1):
        super().__init__()
        self.buffers = [np.zeros((2, 3), np.float32) for _ in range(buffers)]
        self.labels = np.zeros((2, 1), np.float32)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        x = self.buffers[index % len(self.buffers)]
        x[:] = self.labels[:] = index
        return x[:, 1:], self.labels


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_batches_that_a_dataset_overwrites_are_copied(buffers: int) -> None:
    with feed(Reused(buffers)) as source:
        for _ in range(2):
            batches = source.batches()
            # Nothing is looked at before everything has been made.
            pulled = next(batches), next(batches), *batches
            assert [(int(x[0, 0]), int(y[0, 0])) for x, y in pulled] == [(i, i) for i in range(12)]
