"""Streamed data give stock Keras' results: sources of batches, and arrays in chunks (`chunk_stream`). Every backend."""

from __future__ import annotations

import itertools
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flatout
from flatout.data.stream import chunks
from flatout.data.workers import background

pytestmark = pytest.mark.turns

ROWS, BATCH = 107, 16
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = RANDOM.normal(size=(ROWS, 1)).astype("float32")
WEIGHTS = RANDOM.random(ROWS).astype("float32")


def build_completely() -> keras.Model:
    """With metrics built too, so that stock Keras does not read a batch to build them.

    The workers of stock Keras go on with what they made for that batch's epoch, and give some batches twice.
    """
    model = build()
    model.train_on_batch(X[:BATCH], Y[:BATCH])
    return model


def build() -> keras.Model:
    keras.utils.set_random_seed(11)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile("adam", "mse", metrics=["mae"], weighted_metrics=[])
    return model


def assert_same_as_stock(run: Callable[[keras.Model], Any], make: Callable[[], keras.Model] = build) -> None:
    """Train from the same seed with stock Keras and with flatout, and compare everything.

    On torch results are equal up to rounding.
    """
    results = []
    for settings_ in ({"engine": "stock"}, {"force": True, "strict": True}):
        with flatout.options(**settings_), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make()
            outcome = run(model)
            results.append((getattr(outcome, "history", outcome), model.get_weights(), np.random.random()))
    report = flatout.explain()[-1]
    assert report.accelerated
    assert report.data == "streamed"
    (expected, expected_weights, expected_draw), (got, weights, draw) = results
    tolerance = 1e-5 if keras.config.backend() == "torch" else 0

    def compare(before: Any, after: Any) -> None:
        np.testing.assert_allclose(after, before, rtol=tolerance, atol=tolerance)

    keras.tree.map_structure(compare, expected, got)
    keras.tree.map_structure(compare, expected_weights, weights)
    assert draw == expected_draw


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1500)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 90),
    batch_size=st.integers(1, 40),
    shuffle=st.booleans(),
    dtype=st.sampled_from(["float32", "float64", "uint8", "int64", "float16"]),
    chunk_bytes=st.sampled_from([1, 400, 2000, 10**6]),
)
def test_arrays_of_any_size_and_dtype(
    monkeypatch: pytest.MonkeyPatch, rows: int, batch_size: int, shuffle: bool, dtype: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    x, y = (X[:rows] * 9).astype(dtype), Y[:rows]
    run = {"epochs": 2, "batch_size": batch_size, "shuffle": shuffle, "verbose": 0, "data": "streamed"}
    assert_same_as_stock(lambda model: flatout.fit(model, x, y, **run))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"sample_weight": WEIGHTS},
        {"validation_split": 0.2},
        pytest.param({"shuffle": "batch"}, marks=pytest.mark.backend("jax", "tensorflow")),
        # These concern the conductor, which is the same for all of them; torch compiles nothing.
        pytest.param({"steps_per_epoch": 3, "epochs": 4}, marks=pytest.mark.backend("torch")),
        pytest.param({"validation_data": (X[:50], Y[:50]), "validation_steps": 2}, marks=pytest.mark.backend("torch")),
        pytest.param({"callbacks": [keras.callbacks.TerminateOnNaN()]}, marks=pytest.mark.backend("torch")),
    ],
    ids="-".join,
)
def test_arguments_of_fit(small_chunks: None, arguments: dict[str, Any]) -> None:
    arguments = {"epochs": 2, "batch_size": BATCH, "verbose": 0, "data": "streamed", **arguments}
    assert_same_as_stock(lambda model: flatout.fit(model, X, Y, **arguments))


def build_named() -> keras.Model:
    keras.utils.set_random_seed(2)
    one, other = keras.Input((6,), name="one"), keras.Input((1,), name="other")
    joined = keras.layers.concatenate([one, other])
    outputs = {"a": keras.layers.Dense(1, name="a")(joined), "b": keras.layers.Dense(1, name="b")(joined)}
    model = keras.Model({"one": one, "other": other}, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"})
    return model


@pytest.mark.slow
def test_files_in_a_dict(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype("float16"))
    np.save(tmp_path / "y.npy", Y)
    # Not in sorted order, in which Keras flattens them.
    x, y = {"other": str(tmp_path / "y.npy"), "one": str(tmp_path / "x.npy")}, {"b": -Y, "a": Y}
    histories = []
    for settings_ in ({"engine": "stock"}, {"force": True, "strict": True, "data": "direct"}):
        with flatout.options(**settings_):
            histories.append(flatout.fit(build_named(), x, y, epochs=2, batch_size=32, verbose=0).history)
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-6)


@pytest.mark.slow
def test_nested_structures(small_chunks: None) -> None:
    x, y = {"other": Y, "one": X}, {"b": -Y, "a": Y}
    assert_same_as_stock(
        lambda m: flatout.fit(m, x, y, epochs=2, batch_size=32, verbose=0, data="streamed"), build_named
    )
    assert_same_as_stock(lambda m: flatout.evaluate(m, x, y, verbose=0, data="streamed"), build_named)
    assert_same_as_stock(lambda m: flatout.predict(m, x, verbose=0, data="streamed"), build_named)

    def pairs() -> Iterator[Any]:
        for start in range(0, ROWS, BATCH):
            rows = slice(start, start + BATCH)
            yield {"other": Y[rows], "one": X[rows]}, {"b": -Y[rows], "a": Y[rows]}

    # Fewer than there are: at the end of a data set stock Keras on TensorFlow counts a batch too many for each output.
    steps = ROWS // BATCH
    assert_same_as_stock(lambda m: flatout.fit(m, pairs(), steps_per_epoch=steps, verbose=0), build_named)


class Dataset(keras.utils.PyDataset):
    def __len__(self) -> int:
        return -(-ROWS // BATCH)

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows] + np.random.random(), Y[rows]


class WorkerDataset(Dataset):
    """Workers draw from generators of their own, so this one draws nothing."""

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows] * index, Y[rows]


def batches(count: int | None = None) -> Iterator[Any]:
    for number in itertools.count() if count is None else range(count):
        rows = np.arange(number * 5, number * 5 + (BATCH if number % 4 else 9)) % ROWS
        yield X[rows], Y[rows], WEIGHTS[rows]


def tf_dataset() -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(50, seed=3).batch(BATCH)


def data_loader() -> Any:
    torch = pytest.importorskip("torch")
    # `keras.utils.set_random_seed` seeds torch on the torch backend alone.
    torch.manual_seed(4)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(rows, batch_size=BATCH, shuffle=True)


SOURCES: dict[str, Callable[[], Any]] = {
    "generator": batches,
    "PyDataset": Dataset,
    "PyDataset with threads": lambda: WorkerDataset(workers=2),
    "PyDataset with processes": lambda: WorkerDataset(workers=2, use_multiprocessing=True),
    "tf.data": tf_dataset,
    "DataLoader": data_loader,
}


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("source", SOURCES)
def test_sources_of_batches(source: str) -> None:
    steps = {"steps_per_epoch": 7} if source == "generator" else {}
    make = build_completely if "with" in source else build
    assert_same_as_stock(lambda model: flatout.fit(model, SOURCES[source](), epochs=3, verbose=0, **steps), make)


@pytest.mark.parametrize("source", ["PyDataset", "tf.data", "DataLoader"])
def test_sources_in_evaluate_and_predict(source: str) -> None:
    assert_same_as_stock(lambda model: flatout.evaluate(model, SOURCES[source](), verbose=0))
    assert_same_as_stock(lambda model: flatout.predict(model, SOURCES[source](), verbose=0))


def test_sources_as_validation_data() -> None:
    assert_same_as_stock(
        lambda model: flatout.fit(model, Dataset(), validation_data=WorkerDataset(), epochs=3, verbose=0)
    )


def test_a_finite_generator_without_steps_ends_the_training() -> None:
    with flatout.options(force=True), pytest.warns(UserWarning, match="ran out of data"):
        history = flatout.fit(build(), batches(6), epochs=3, verbose=0).history
    assert len(history["loss"]) == 1
    assert flatout.explain()[-1].steps == 6


def test_a_generator_is_not_pulled_beyond_what_is_used() -> None:
    pulled = []

    def counted() -> Iterator[Any]:
        for batch in batches():
            pulled.append(1)
            yield batch

    with flatout.options(force=True):
        flatout.fit(build(), counted(), steps_per_epoch=4, epochs=3, shuffle=False, verbose=0)
    assert len(pulled) == 12


def test_a_generator_may_write_into_the_arrays_that_it_gave() -> None:
    def reusing() -> Iterator[Any]:
        x, y = np.empty((BATCH, 6), "float32"), np.empty((BATCH, 1), "float32")
        for number in itertools.count():
            x[:], y[:] = X[number : number + BATCH], Y[number : number + BATCH]
            yield x, y

    def fresh() -> Iterator[Any]:
        # Keras looks at two batches beforehand, so that the first one has become the second by then.
        for number in itertools.chain([1], itertools.count(1)):
            yield X[number : number + BATCH].copy(), Y[number : number + BATCH].copy()

    histories = []
    for source in (reusing, fresh):
        with flatout.options(force=True):
            fitted = flatout.fit(build(), source(), steps_per_epoch=20, epochs=2, shuffle=False, verbose=0)
        histories.append(fitted.history)
    assert histories[0]["loss"] == pytest.approx(histories[1]["loss"], rel=1e-6)


def test_batches_that_cannot_be_put_together_go_to_stock_keras_complete() -> None:
    class Odd(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.seen: list[int] = []

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs[0])

    def odd() -> Iterator[Any]:
        for number in range(5):
            yield (X[:8] + number, X[:3]), Y[:8]

    losses = []
    for engine in ("stock", "auto"):
        keras.utils.set_random_seed(1)
        model = Odd()
        model.compile("sgd", "mse")
        with flatout.options(force=True, engine=engine):
            losses.append(flatout.fit(model, odd(), steps_per_epoch=5, shuffle=False, verbose=0).history["loss"])
    assert losses[0] == losses[1]
    assert not flatout.explain()[-1].accelerated


@pytest.mark.slow
@pytest.mark.turns
@pytest.mark.parametrize("source", ["arrays", "generator"])
def test_the_progress_bar_ends_with_the_last_step(
    small_chunks: None, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    """Its chunks are over sooner than a bar is drawn; nobody knows beforehand which one of a generator is the last."""
    with flatout.options(force=True, strict=True, data="streamed"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if source == "arrays":
            steps, history = -(-ROWS // BATCH), flatout.fit(build(), X, Y, batch_size=BATCH, epochs=2).history
        else:
            steps, history = 9, flatout.fit(build(), batches(9)).history
    drawn = capsys.readouterr().out.splitlines()[-1].split("\r")[-1]
    assert re.findall(r"(\d+)/(\d+)", drawn) == [(str(steps), str(steps))]
    values = [float(value) for value in re.findall(r"(?:loss|mae): ([\d.]+)", drawn)]
    assert values == pytest.approx([history[name][-1] for name in ("loss", "mae")], rel=1e-3)


@pytest.mark.backend("jax")
def test_a_step_that_cannot_be_compiled_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU the array would stay locked."""
    closed, close = [], chunks.RowReader.close
    monkeypatch.setattr(chunks.RowReader, "close", lambda reader: (closed.append(reader), close(reader)))

    class Unfit(keras.Model):
        def build(self, shape: Any) -> None:
            self.dense = keras.layers.Dense(1)
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
            return keras.ops.mean(y_pred) * float(keras.ops.convert_to_numpy(y).mean())

    model = Unfit()
    model.build((None, 6))
    model.compile("sgd")
    with flatout.options(force=True, strict=True, data="streamed"), pytest.raises(flatout.FallbackRefused):
        flatout.fit(model, X, Y, batch_size=BATCH, epochs=2, verbose=0)
    assert len(closed) == 1


class _Progress(keras.callbacks.Callback):
    """How many steps were told to the callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        with self.changed:
            self.steps += 1
            self.changed.notify_all()

    def reached(self, steps: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.steps >= steps, timeout=20)


@pytest.mark.turns
@pytest.mark.parametrize("at_once", [2, 3, 5])
@pytest.mark.parametrize("kinds", [1, 2])
def test_a_generator_may_wait_for_the_training_to_get_as_far_as_it_got(
    monkeypatch: pytest.MonkeyPatch, at_once: int, kinds: int
) -> None:
    """Stock Keras asks for a batch when it needs it; here no batch may be held back until others come."""
    progress, reached = _Progress(), []
    # A step for batches of another kind is compiled while the generator waits.
    monkeypatch.setattr(background, "PATIENCE_IN_PAUSES", 0.2)

    def waiting() -> Any:
        for number in range(15):
            if number and number % at_once == 0:
                reached.append(progress.reached(number))
            rows = slice(0, BATCH - number % kinds)
            yield X[rows], Y[rows]

    with flatout.options(force=True, strict=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flatout.fit(build(), waiting(), callbacks=[progress], verbose=0)
    assert progress.steps == 15
    assert reached == [True] * len(reached)
    assert reached
