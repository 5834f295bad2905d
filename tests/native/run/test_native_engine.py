"""`flatout.fit(engine="native")`: the same History, variables and callbacks as stock Keras, on the emulated GPU."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.data.stream import chunks
from flatout.native.launch.launcher import why_not_here
from flatout.native.run.native_engine import NativeProgram
from flatout.native.run.state_transfer import State
from flatout.training.planning.engine_choice import engine_named

pytestmark = [pytest.mark.slow, pytest.mark.turns]

_X = np.random.default_rng(0).standard_normal((150, 12)).astype("float32")
_Y = np.random.default_rng(1).integers(0, 4, 150)


# Nothing here depends on the backend but what the other tests show.
NOT_EVERYWHERE = pytest.mark.backend("jax", "torch")


def _model(*extra: Any, **compiled: Any) -> Any:
    keras.utils.set_random_seed(5)
    chain = [layers.Dense(16, activation="relu"), *extra, layers.Dense(4, activation="softmax")]
    model = keras.Sequential(chain)
    model.compile(
        **{"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"], **compiled}
    )
    return model


def _fit(engine: str, model: Any = None, **arguments: Any) -> tuple[Any, Any, flatout.RunReport]:
    model = model or _model()
    settings = {"batch_size": 32, "epochs": 3, "validation_split": 0.2, "verbose": 0, **arguments}
    history = flatout.fit(model, _X, _Y, engine=engine, **settings)
    return model, history.history, flatout.explain()[-1]


def _assert_same(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


@pytest.mark.turns(0)
@pytest.mark.usefixtures("emulated")
def test_history_and_weights_equal_stock_keras() -> None:
    model, history, report = _fit("native")
    stock, expected, _ = _fit("stock")
    assert (report.engine, report.data, report.steps) == ("native", "resident", 12)
    assert [why.code for why in report.reasons] == ["native_form"]
    assert list(history) == list(expected)
    _assert_same(history.values(), expected.values())
    _assert_same(model.get_weights(), stock.get_weights())
    assert int(model.optimizer.iterations) == 12


def _fit_whole_batches(engine: str, model: Any, **arguments: Any) -> tuple[Any, Any, flatout.RunReport]:
    """Epochs of 4 steps, one kernel each; nobody but Keras' History hears of them."""
    settings = {"batch_size": 32, "epochs": 5, "verbose": 0, "validation_data": (_X[100:], _Y[100:]), **arguments}
    history = flatout.fit(model, _X[:128], _Y[:128], engine=engine, **settings)
    return model, history, flatout.explain()[-1]


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_rows_of_a_fold_are_trained_on_wherever_they_lie() -> None:
    def trained(engine: str) -> Any:
        settings = {"folds": 2, "epochs": 2, "batch_size": 32, "verbose": 0, "engine": engine}
        return flatout.fit_many(lambda: _model(), [{"seed": 5}], _X[:128], _Y[:128], **settings)

    stock, ours = trained("stock"), trained("native")
    assert [why.code for why in flatout.explain()[-1].reasons] == ["native_form"]
    for number, model in enumerate(ours.models):
        _assert_same(ours.histories[number].values(), stock.histories[number].values())
        _assert_same(model.get_weights(), stock.models[number].get_weights())


def _metrics(model: Any) -> list[float]:
    return [float(variable) for metric in model.metrics for variable in metric.variables]


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
@pytest.mark.parametrize("every", [1, 2])
def test_a_validation_takes_the_weights_where_they_are(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[str] = []
    store = State.store

    def stores(self: State, steps: int) -> None:
        stored.append(self._task)
        store(self, steps)

    monkeypatch.setattr(State, "store", stores)
    model, history, report = _fit_whole_batches("native", _model(), validation_freq=every)
    assert report.engine == "native"
    # Once until it is known how to validate, and once at the end.
    assert stored.count("train") <= 2
    assert stored.count("test") <= 2
    stock, expected, _ = _fit_whole_batches("stock", _model(), validation_freq=every)
    assert list(history.history) == list(expected.history)
    assert history.epoch == expected.epoch
    _assert_same(history.history.values(), expected.history.values())
    _assert_same(model.get_weights(), stock.get_weights())
    # Those of the last validation, or of the last epoch if that was not validated.
    assert _metrics(model) == pytest.approx(_metrics(stock), rel=1e-5)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_an_epoch_is_launched_before_the_last_one_is_known_where_nobody_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    run, settle = NativeProgram.run, NativeProgram.settle

    def runs(self: NativeProgram, *arguments: Any) -> Any:
        told.append(self._task)
        return run(self, *arguments)

    def settles(self: NativeProgram, logs: Any) -> bool:
        told.append("settled")
        return settle(self, logs)

    monkeypatch.setattr(NativeProgram, "run", runs)
    monkeypatch.setattr(NativeProgram, "settle", settles)
    _fit_whole_batches("native", _model(), epochs=6)
    assert told[-7:] == [*(2 * ["train", "test", "settled"]), "settled"]
    told.clear()
    _fit_whole_batches("native", _model(), epochs=6, callbacks=[keras.callbacks.EarlyStopping(patience=9)])
    assert told[-7:] == ["settled", *(2 * ["train", "test", "settled"])]


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        (9, {"epochs": 3}),
        (9, {}),
        (9, {"validation_freq": [1, 3]}),
        (9, {"validation_freq": 2}),
        (1, {"validation_data": None}),
        (2, {"steps_per_epoch": 3}),
    ],
    ids=["last", "all", "not the next", "only the next", "first", "unequal"],
)
def test_epochs_behind_steps_that_had_to_be_taken_again_come_out_as_ever(
    steps: int, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights leave the range of half precision after so many steps, when other epochs may be launched already."""
    orders: list[np.ndarray] = []
    begin_pass = NativeProgram.begin_pass

    def begins_pass(self: NativeProgram, order: np.ndarray | None) -> None:
        if order is not None:
            orders.append(order)
        begin_pass(self, order)

    def wild() -> Any:
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([steps, steps + 1], [0.1, 2e4, 0.0])
        return _model(optimizer=keras.optimizers.SGD(rate))

    monkeypatch.setattr(NativeProgram, "begin_pass", begins_pass)
    model, history, report = _fit_whole_batches("native", wild(), **settings)
    of_the_wild = orders.copy()
    orders.clear()
    _fit_whole_batches("native", _model(optimizer="sgd"), **settings)
    assert orders
    _assert_same(of_the_wild, orders)
    stock, expected, _ = _fit_whole_batches("stock", wild(), **settings)
    (form,) = (why.message for why in report.reasons if why.code == "native_form")
    assert "have left the range of half precision" in form
    assert np.max(np.abs(model.get_weights()[0])) > 255
    for name, values in expected.history.items():
        np.testing.assert_allclose(history.history[name], values, rtol=1e-4, err_msg=name)
    for one, other in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert _metrics(model) == pytest.approx(_metrics(stock), rel=1e-4)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
@pytest.mark.parametrize(("method", "epochs"), [("run", 2), ("settle", 4)])
def test_all_epochs_that_were_launched_are_told_of_although_somebody_interrupts(
    method: str, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the third is launched, or the last but one is waited for."""
    original, calls = getattr(NativeProgram, method), itertools.count(1)

    def interrupted(self: NativeProgram, *arguments: Any) -> Any:
        if self._task == "train" and (method == "settle" or arguments[0] == 0) and next(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    model = _model()
    monkeypatch.setattr(NativeProgram, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        _fit_whole_batches("native", model)
    monkeypatch.undo()
    assert model.history.epoch == [*range(epochs)]
    stock, expected, _ = _fit_whole_batches("stock", _model(), epochs=epochs)
    _assert_same(model.history.history["val_loss"], expected.history["val_loss"])
    _assert_same(model.get_weights(), stock.get_weights())


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_rows_in_chunks_are_trained_by_one_kernel_that_keeps_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 32 * 12 * 4)
    stored: list[int] = []
    store = State.store
    monkeypatch.setattr(State, "store", lambda self, steps: (stored.append(steps), store(self, steps)))
    model, history, report = _fit_whole_batches("native", _model(), data="streamed", validation_data=None)
    assert (report.engine, report.data) == ("native", "streamed")
    # All steps of the epochs, after each of which nobody looks.
    assert stored == [20]
    stock, expected, _ = _fit_whole_batches("stock", _model(), validation_data=None)
    _assert_same(history.history.values(), expected.history.values())
    _assert_same(model.get_weights(), stock.get_weights())
    assert _metrics(model) == pytest.approx(_metrics(stock), rel=1e-5)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
@pytest.mark.parametrize("kind", ["arrays in chunks", "PyDataset", "resident"])
def test_a_validation_sees_the_weights_of_its_epoch_whatever_its_data_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 16 * 12 * 4)

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, number: int) -> Any:
            rows = slice(100 + 15 * number, min(150, 115 + 15 * number))
            return _X[rows], _Y[rows]

    if kind == "arrays in chunks":
        monkeypatch.setattr("flatout.training.validation.Options", functools.partial(flatout.Options, vram="1kB"))
    histories = []
    for engine in ("native", "stock"):
        data = Batches() if kind == "PyDataset" else (_X[100:], _Y[100:])
        _, history, _ = _fit_whole_batches(engine, _model(), validation_data=data, validation_batch_size=15)
        histories.append(history.history)
    for name, values in histories[1].items():
        np.testing.assert_allclose(histories[0][name], values, rtol=1e-5, err_msg=name)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_what_lies_behind_the_rows_of_a_chunk_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seven steps, in chunks of three.
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * 16 * 60)

    class Dirty(chunks.FreshMemory):
        def __call__(self, arrays: Any) -> list[np.ndarray]:
            return [np.full(shape, 1e9 if dtype.kind == "f" else 99, dtype) for shape, dtype in arrays]

    monkeypatch.setattr("flatout.data.stream.sender.FreshMemory", Dirty)
    results = []
    for engine in ("native", "stock"):
        model = _model()
        flatout.fit(model, _X[:112], _Y[:112], batch_size=16, verbose=0, engine=engine, data="streamed", shuffle=False)
        results.append((flatout.explain()[-1], model.get_weights()))
    (report, found), (_, expected) = results
    assert report.engine == "native"
    assert [why.message for why in report.reasons if "range" in why.message] == []
    _assert_same(found, expected)


@pytest.mark.usefixtures("emulated")
def test_evaluate_and_predict() -> None:
    model, _, _ = _fit("native")
    results = flatout.evaluate(model, _X, _Y, batch_size=32, verbose=0, engine="native")
    assert flatout.explain()[-1].engine == "native"
    assert results == pytest.approx(model.evaluate(_X, _Y, batch_size=32, verbose=0), rel=1e-5)
    predictions = flatout.predict(model, _X, batch_size=32, verbose=0, engine="native")
    assert flatout.explain()[-1].engine == "native"
    np.testing.assert_allclose(predictions, model.predict(_X, batch_size=32, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_callbacks_see_the_weights_of_their_moment_and_may_change_the_learning_rate() -> None:
    class Watcher(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen += [float(np.sum(self.model.get_weights()[0])), logs["loss"]]

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.01 / (epoch + 1)

    seen = []
    for engine in ("native", "stock"):
        watcher = Watcher()
        _fit(engine, callbacks=[watcher], epochs=2)
        seen.append(watcher.seen)
    assert seen[0] == pytest.approx(seen[1], rel=1e-4, abs=1e-5)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_class_weights_streamed_data_and_steps_per_execution(backend: str) -> None:
    compiled = {} if backend == "torch" else {"steps_per_execution": 2}
    weights = {0: 1.0, 1: 2.0, 2: 0.5, 3: 1.5}
    options: dict[str, Any] = {"class_weight": weights, "validation_split": 0.0}
    model, history, report = _fit("native", _model(**compiled), data="streamed", **options)
    stock, expected, _ = _fit("stock", _model(**compiled), **options)
    assert (report.engine, report.data) == ("native", "streamed")
    _assert_same(history.values(), expected.values())
    _assert_same(model.get_weights(), stock.get_weights())


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_dropout_runs_when_asked_for_and_is_repeatable() -> None:
    # The layer draws its seed where it is made, before the model sets one.
    runs = [_fit("native", _model(layers.Dropout(0.5, seed=3))) for _ in range(2)]
    assert [report.engine for _, _, report in runs] == ["native", "native"]
    histories = [history for _, history, _ in runs]
    assert histories[0] == histories[1]
    # Keras' own counter went on, so a second fit draws other masks.
    model = runs[0][0]
    assert float(np.array(model.layers[1].seed_generator.state.value)[1]) == 12
    off = _fit("native")[1]
    assert histories[0]["loss"] != off["loss"]
    # An unbiased mask leaves the loss about where it was.
    assert histories[0]["loss"][0] == pytest.approx(off["loss"][0], rel=0.5)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_a_frozen_layer_stays_as_it_is() -> None:
    def frozen() -> Any:
        model = _model(layers.BatchNormalization())
        model.build((None, 12))
        model.layers[0].trainable = model.layers[1].trainable = False
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    model, history, report = _fit("native", frozen())
    stock, expected, _ = _fit("stock", frozen())
    assert report.engine == "native"
    _assert_same(model.get_weights(), stock.get_weights())
    _assert_same(history.values(), expected.values())


@pytest.mark.usefixtures("emulated")
# On jax stock Keras fails in such a fit.
@pytest.mark.backend("torch")
def test_the_function_of_a_scheduler_may_change_the_model() -> None:
    trained = []
    for engine in ("native", "stock"):
        model = _model()

        def freezes(epoch: int, rate: float, model: Any = model) -> float:
            model.layers[0].trainable = epoch < 1
            return rate

        _fit(engine, model, epochs=4, callbacks=[keras.callbacks.LearningRateScheduler(freezes)])
        trained.append(model.get_weights())
    _assert_same(*trained)


@pytest.mark.usefixtures("emulated")
@pytest.mark.backend("torch")
def test_data_of_a_validation_may_change_the_model() -> None:
    """On torch alone: stock Keras traces it once elsewhere."""

    class Freezing(keras.utils.PyDataset):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def __len__(self) -> int:
            return 1

        def __getitem__(self, number: int) -> Any:
            return _X[100:], _Y[100:]

        def on_epoch_end(self) -> None:
            self.model.layers[0].trainable = False

    trained = []
    for engine in ("native", "stock"):
        model = _model()
        _fit_whole_batches(engine, model, validation_data=Freezing(model))
        trained.append(model.get_weights())
    _assert_same(*trained)


@pytest.mark.usefixtures("emulated", "forced")
@NOT_EVERYWHERE
def test_a_metric_that_is_reset_in_its_own_way_is_the_backends(backend: str) -> None:
    model = _model(metrics=[keras.metrics.SparseCategoricalAccuracy()])
    model.fit(_X[:32], _Y[:32], verbose=0)
    model.metrics[-1].metrics[0].reset_state = lambda: None
    _fit("native", model, epochs=1)
    assert flatout.explain()[-1].engine == backend


@pytest.mark.usefixtures("emulated", "forced")
@NOT_EVERYWHERE
@pytest.mark.parametrize("name", ["reset_metrics", "get_metrics_result"])
def test_methods_put_onto_the_model_are_called(name: str, backend: str) -> None:
    histories = []
    for engine in ("native", "stock"):
        model = _model()
        replaced = {"reset_metrics": lambda: None, "get_metrics_result": lambda: {"accuracy": 7.0, "loss": 3.0}}
        setattr(model, name, replaced[name])
        histories.append(_fit(engine, model)[1])
        if engine == "native":
            assert flatout.explain()[-1].engine == backend
    _assert_same(*(history.values() for history in histories))


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_a_nan_is_kept_where_keras_keeps_it() -> None:
    def risky() -> Any:
        keras.utils.set_random_seed(3)
        # A row whose outputs are all 0 has no probabilities.
        model = keras.Sequential([layers.Dense(4, activation="relu")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    _, history, report = _fit("native", risky())
    _, expected, _ = _fit("stock", risky())
    assert report.engine == "native"
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
def test_dropout_drops_its_share() -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([layers.Input((100,)), layers.Dropout(0.3), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    program = flatout.lower(model, batch_size=200)
    program.run(np.ones((400, 100), "float32"), np.ones((400, 1), "float32"), launcher="cpu")
    masked = program.buffers["dropout/y"].numpy()
    assert set(np.unique(masked).tolist()) == {0.0, float(np.float32(1) / np.float32(0.7))}
    assert np.mean(masked == 0) == pytest.approx(0.3, abs=0.02)
    # Neither rows nor columns of the mask are alike.
    assert len(np.unique(masked, axis=0)) == 200
    assert len(np.unique(masked, axis=1).T) == 100


@pytest.mark.usefixtures("emulated")
def test_auto_does_not_choose_it() -> None:
    _, _, report = _fit("auto", epochs=1)
    assert report.engine != "native"


@pytest.mark.usefixtures("emulated")
@NOT_EVERYWHERE
@pytest.mark.parametrize(("fuses", "data"), [(True, "resident"), (True, "streamed"), (False, "resident")])
def test_where_one_kernel_is_better_all_of_the_fit_is_the_native_engines(
    forced: None, monkeypatch: pytest.MonkeyPatch, backend: str, fuses: bool, data: str
) -> None:
    """Its plan, report, epoch logs and validation; or, if the kernel turns out not to fit, nothing of it."""
    monkeypatch.setattr("flatout.native.run.native_engine.one_kernel_is_better", lambda *arguments: True)
    monkeypatch.setattr(NativeProgram, "is_fused", property(lambda self: fuses))
    logs_of: list[str] = []
    for engine in (engine_named("native"), engine_named(backend)):
        monkeypatch.setattr(engine, "epoch_logs", _named(engine, engine.epoch_logs, logs_of), raising=False)
    model, history, report = _fit("auto", epochs=2, data=data)
    stock, expected, _ = _fit("stock", epochs=2)
    name = "native" if fuses else backend
    assert (report.engine, report.data) == (name, data)
    # Of each epoch, and of each validation.
    assert logs_of == 4 * [name]
    _assert_same(history.values(), expected.values())
    _assert_same(model.get_weights(), stock.get_weights())


@pytest.mark.usefixtures("emulated", "forced")
@pytest.mark.backend("jax")
@pytest.mark.parametrize(("label", "engine"), [(3, "native"), (-1, "jax")])
def test_rows_in_chunks_are_not_the_native_engines_if_it_would_refuse_a_later_one(
    label: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flatout.native.run.native_engine._has_clusters", lambda: True)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * 32 * 12 * 4)
    labels = _Y.copy()
    labels[-1] = label
    flatout.fit(_model(), _X, labels, batch_size=32, verbose=0, data="streamed", shuffle=False)
    assert flatout.explain()[-1].engine == engine


def _named(engine: Any, epoch_logs: Any, told: list[str]) -> Any:
    def tells(model: Any, logs: Any) -> Any:
        told.append(engine.name)
        return epoch_logs(model, logs)

    return tells


def test_without_a_gpu_the_backends_engine_runs_and_says_why(
    forced: None, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.delenv("FLATOUT_NATIVE", raising=False)
    if why_not_here() is None:
        pytest.skip("this machine has a GPU")
    _, _, report = _fit("native", epochs=1)
    assert report.engine == backend
    assert "native_device" in {why.code for why in report.reasons}
    monkeypatch.setenv("FLATOUT_STRICT", "1")
    with pytest.raises(flatout.FallbackRefused, match="native_device"):
        _fit("native", epochs=1)


@pytest.mark.usefixtures("emulated", "forced")
def test_what_it_cannot_run_runs_on_the_backends_engine(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, history, report = _fit("native", _model(layers.LayerNormalization()))
    _, expected, _ = _fit("stock", _model(layers.LayerNormalization()))
    assert report.engine == backend
    assert "native_layer" in {why.code for why in report.reasons}
    _assert_same(history.values(), expected.values())
    monkeypatch.setenv("FLATOUT_STRICT", "1")
    with pytest.raises(flatout.FallbackRefused, match="LayerNormalization"):
        _fit("native", _model(layers.LayerNormalization()))
