"""Calls at the edge of what Keras takes: flatout does, or fails, as stock Keras does. Every backend."""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

import flatout
from flatout.engines.contract import Engine

from .test_fit import BATCH, ROWS, STEPS, X, Y, assert_same, both, fit, make_model

BACKEND = keras.config.backend()
# Keras' torch backend refuses steps_per_execution.
GROUPS = [1] if BACKEND == "torch" else [1, 4]


def call(method: str, model: keras.Model, engine: str, **arguments: Any) -> Any:
    data = {"x": X} if method == "predict" else {"x": X, "y": Y}
    with flatout.options(force=True):
        return getattr(flatout, method)(
            model, **{**data, "batch_size": BATCH, "verbose": 0, **arguments}, engine=engine
        )


def outcome(run: Callable[[], Any]) -> Any:
    """What a call returns, or the error that it raises."""
    try:
        result = run()
    except Exception as error:
        return type(error), str(error)
    # TensorFlow makes a ragged tensor of batches that differ in width.
    return result.to_list() if hasattr(result, "to_list") else getattr(result, "history", result)


def assert_same_outcome(run: Callable[[str], Any]) -> None:
    expected, got = outcome(lambda: run("stock")), outcome(lambda: run("auto"))
    if isinstance(expected, tuple):
        assert got == expected
    else:
        assert keras.tree.map_structure(np.shape, got) == keras.tree.map_structure(np.shape, expected)
        assert_same(expected, got)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_predict_of_more_batches_than_its_buffer_holds(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_size, longest = 4, 6
    any_length, output_bytes = False, longest * batch_size * 4 * 4
    monkeypatch.setattr(Engine.prepare, "__defaults__", (any_length, output_bytes))
    model = make_model(steps_per_execution=group)
    assert_same(*both(lambda engine: call("predict", model, engine, batch_size=batch_size)))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("is_async_safe", [False, True])
def test_a_batch_hook_of_predict_gets_every_output(is_async_safe: bool, group: int) -> None:
    class Reader(keras.callbacks.Callback):
        async_safe = is_async_safe

        def __init__(self) -> None:
            super().__init__()
            self.begun: list[int] = []
            self.outputs: dict[int, Any] = {}

        def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begun.append(batch)

        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            self.outputs[batch] = keras.tree.map_structure(ops.convert_to_numpy, logs)

    def run(engine: str) -> Any:
        reader = Reader()
        call("predict", make_model(steps_per_execution=group), engine, callbacks=[reader])
        # Keras may tell those that are async safe in any order.
        return reader.begun, sorted(reader.outputs), [reader.outputs[batch] for batch in sorted(reader.outputs)]

    expected, got = both(run)
    assert got[:2] == expected[:2]
    assert [logs.keys() for logs in got[2]] == [{"outputs"}] * len(got[1])
    assert_same(expected[2], got[2])


def unknown_rank(outputs: Any) -> Any:
    if BACKEND != "tensorflow":
        return outputs
    import tensorflow as tf

    return tf.py_function(lambda tensor: tensor, [outputs], tf.float32)


SHAPES = {
    "rows that differ in number": lambda outputs: ops.take(outputs, ops.nonzero(outputs[:, 0] > 0)[0], axis=0),
    "columns that differ in number": lambda outputs: ops.take(outputs, ops.nonzero(outputs[0] > 0)[0], axis=1),
    "a number": lambda outputs: ops.sum(outputs),
    "rows and a number": lambda outputs: {"rows": outputs, "number": ops.sum(outputs)},
    "unknown rank": unknown_rank,
}


@pytest.mark.parametrize("rows", [ROWS, ROWS // BATCH * BATCH])
@pytest.mark.parametrize("shape", SHAPES)
def test_predict_of_outputs_whose_shape_nobody_knows(shape: str, rows: int) -> None:
    class Shaped(keras.Sequential):
        def predict_step(self, *arguments: Any) -> Any:
            result = super().predict_step(*arguments)
            if BACKEND == "jax":
                return SHAPES[shape](result[0]), result[1]
            return SHAPES[shape](result)

    def run(engine: str) -> Any:
        # A model of its own: one whose predict failed on jax has lost its weights.
        keras.utils.set_random_seed(3)
        return call("predict", Shaped([layers.Input((12,)), layers.Dense(4)]), engine, x=X[:rows])

    assert_same_outcome(run)


@pytest.mark.parametrize("classes", [4, 1])
def test_class_weight_of_labels_with_time_steps(classes: int) -> None:
    labels = np.random.default_rng(5).integers(0, 2, (ROWS, 6, classes))

    def run(engine: str) -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((6, 2)), layers.Dense(classes)])
        model.compile("sgd", "mse")
        return fit(model, engine, x=X.reshape(ROWS, 6, 2), y=labels, class_weight={0: 1.0, 1: 2.0})

    assert_same_outcome(run)


# Counting up to a negative number takes for ever.
@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("batch_size", [BATCH, None])
@pytest.mark.parametrize(
    ("method", "name"),
    [("fit", "steps_per_epoch"), ("fit", "validation_steps"), ("evaluate", "steps"), ("predict", "steps")],
)
def test_a_negative_number_of_steps(method: str, name: str, batch_size: int | None) -> None:
    arguments = {"epochs": 2, "validation_data": (X[:40], Y[:40])} if method == "fit" else {}
    arguments.update({"batch_size": batch_size, name: -3})
    assert_same_outcome(lambda engine: call(method, make_model(), engine, **arguments))


@pytest.mark.slow
def test_validation_data_without_rows() -> None:
    def run(engine: str) -> Any:
        model = make_model()
        with pytest.warns(UserWarning, match="ran out of data"):
            history = fit(model, engine, epochs=2, validation_data=(X[:0], Y[:0]))
        return [history.history, model.get_weights()]

    expected, got = both(run)
    assert got[0].keys() == expected[0].keys()
    assert_same(expected, got)


@pytest.mark.slow
@pytest.mark.parametrize("verbose", [1, 2])
@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_the_last_line_that_is_printed(method: str, verbose: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(engine: str) -> str:
        call(method, make_model(), engine, verbose=verbose)
        # Bars before the last one, and how wide those were, depend on the time that has gone by.
        last = re.split("[\r\b]", capsys.readouterr().out)[-1]
        return re.sub(r"\d+(m|u)?s\b", "TIME", last).rstrip(" \n")

    expected, got = both(run)
    assert got == expected
    assert f"{STEPS}/{STEPS}" in got


class DrawingCallback(keras.callbacks.Callback):
    """Draws from NumPy's generator after every step, as augmenting or sampling code of a user does."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.drawn.append(float(np.random.rand()))


def test_draws_of_a_batch_hook_between_those_of_shuffled_batches() -> None:
    def run(engine: str) -> Any:
        callback = DrawingCallback()
        history = fit(make_model(), engine, epochs=2, shuffle="batch", callbacks=[callback])
        return history.history, callback.drawn, np.random.rand()

    assert_same(run("stock"), run("auto"))


def test_batches_shuffled_within_until_training_stops() -> None:
    x = X.copy()
    x[3 * BATCH] = np.nan

    def run(engine: str) -> Any:
        history = fit(make_model(), engine, x=x, shuffle="batch", callbacks=[keras.callbacks.TerminateOnNaN()])
        return history.params, np.random.rand()

    assert_same(run("stock"), run("auto"))


@pytest.mark.backend("jax")
def test_a_batch_hook_of_a_callback_without_a_list_acts_at_its_step() -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.02)
            self.model.stop_training = batch == 2

    model = make_model()
    # Keras serves such a callback on another thread, and would stop some steps later.
    fit(model, callbacks=Stop())
    assert int(model.optimizer.iterations.value) == 3


def test_no_epoch_is_left_and_nothing_is_drawn_or_read() -> None:
    def read(method: str) -> Any:
        reads = []

        class Rows(keras.utils.PyDataset):
            def __len__(self) -> int:
                return 4

            def __getitem__(self, index: int) -> Any:
                reads.append(index)
                return X[:BATCH], Y[:BATCH]

        model = make_model()
        fit(model, method)
        reads.clear()
        history = fit(model, method, x=Rows(), y=None, batch_size=None, epochs=2, initial_epoch=3)
        return history.epoch, reads, random.random()

    assert read("stock") == read("auto")


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_an_argument_that_does_not_exist_is_refused_in_keras_words(method: str) -> None:
    model = make_model()
    expected = outcome(lambda: getattr(model, method)(X, bogus=3))
    assert expected[0] in (TypeError, ValueError)
    assert outcome(lambda: getattr(flatout, method)(model, X, bogus=3)) == expected


def _empty(kind: str) -> dict[str, Any]:
    if kind == "arrays":
        return {"x": X[:0], "y": Y[:0]}
    if kind == "validation":
        return {"validation_data": (X[:0], Y[:0])}
    if kind == "split":
        return {"x": X[:1], "y": Y[:1], "validation_split": 0.5}
    return {"x": iter_of_nothing(), "y": None, "batch_size": None}


def iter_of_nothing() -> Any:
    yield from ()


@pytest.mark.parametrize("kind", ["arrays", "validation", "split", "generator"])
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_no_rows_are_taken_as_stock_keras_takes_them(method: str, kind: str) -> None:
    if method != "fit" and kind in ("validation", "split"):
        pytest.skip("only fit validates")

    def run(engine: str) -> Any:
        arguments = _empty(kind)
        if method == "predict":
            arguments.pop("y")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = outcome(lambda: call(method, make_model(), engine, **arguments))
        if isinstance(result, tuple):
            # Tensors are numbered in the order in which they are made.
            result = result[0], re.sub(r"keras_tensor_\d+", "", result[1])
        return result, sorted({str(one.message) for one in caught if "ran out of data" in str(one.message)})

    expected, got = run("stock"), run("auto")
    assert got[1] == expected[1]
    if isinstance(expected[0], tuple):
        assert got[0] == expected[0]
    else:
        assert_same(expected[0], got[0])


class Compiles(keras.callbacks.Callback):
    """Compiles the model anew in a hook, once."""

    def __init__(self, hook: str, at: int = 0, makes: bool = False):
        super().__init__()
        self.heard: list[Any] = []
        self.done = False

        def compile_anew(index: Any = None, logs: Any = None) -> None:
            if not self.done and (index is None or not isinstance(index, int) or index == at):
                self.done = True
                self.model.compile(keras.optimizers.SGD(0.5), keras.losses.MeanSquaredError())
                if makes:
                    self.model.make_train_function()

        setattr(self, hook, compile_anew)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.heard.append(("begin", epoch))

    def on_train_end(self, logs: Any = None) -> None:
        self.heard.append("end")


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_batch_end"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_callback_that_compiles_fails_as_with_stock_keras(hook: str, epochs: int) -> None:
    def run(engine: str) -> Any:
        callback = Compiles(hook, at=2 if hook == "on_train_batch_end" else 0)
        result = outcome(lambda: fit(make_model(), engine, epochs=epochs, callbacks=[callback]))
        return result, callback.heard

    expected, got = run("stock"), run("auto")
    assert got[1] == expected[1]
    if isinstance(expected[0], tuple):
        assert got[0] == expected[0]
    else:
        assert_same(expected[0], got[0])


@pytest.mark.backend("jax", "tensorflow")
def test_a_step_function_that_a_callback_makes_anew_reads_the_models_python_again() -> None:
    class Scaled(keras.losses.Loss):
        scale = 1.0

        def call(self, y_true: Any, y_pred: Any) -> Any:
            return self.scale * ops.mean(ops.square(y_pred - ops.one_hot(y_true, 4)), axis=-1)

    class Anneals(keras.callbacks.Callback):
        def __init__(self, loss: Scaled):
            super().__init__()
            self.loss = loss

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.loss.scale = 1.0 + epoch
            self.model.make_train_function(force=True)

    def run(engine: str) -> Any:
        model, loss = make_model(), Scaled()
        model.compile(keras.optimizers.SGD(0.1), loss)
        return [fit(model, engine, epochs=3, callbacks=[Anneals(loss)]).history, model.get_weights()]

    assert_same(*both(run))


@pytest.mark.backend("tensorflow")
def test_data_that_keras_reads_on_tensorflow_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old Keras with a new grain, where what gives NumPy arrays imports a module that is gone."""
    import grain
    from keras.src.trainers.data_adapters.grain_dataset_adapter import GrainDatasetAdapter

    def gone(_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'grain._src.gone'")

    monkeypatch.setattr(GrainDatasetAdapter, "get_numpy_iterator", gone)
    rows = list(zip(X, Y, strict=True))
    histories = [
        fit(make_model(), engine, x=grain.MapDataset.source(rows).batch(BATCH), y=None, batch_size=None).history
        for engine in ("stock", "auto")
    ]
    assert_same(*histories)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["source"]
