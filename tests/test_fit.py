"""What a user sees of fit, evaluate and predict: callbacks, results, reasons, errors. Every backend."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import scipy.sparse
from keras import layers

import flatout
from flatout.base.uninterrupted import Uninterrupted
from flatout.seam.stock_methods import are_replaced
from flatout.training.planning.callback_services import services_of

ROWS, BATCH = 203, 16
STEPS = 13
X = np.random.default_rng(1).standard_normal((ROWS, 12)).astype("float32")
Y = np.random.default_rng(2).integers(0, 4, ROWS)


def make_model(**compiling: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Input((12,)), layers.Dense(8, activation="relu"), layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], **compiling)
    return model


def fit(model: keras.Model, engine: str = "auto", **arguments: Any) -> Any:
    arguments = {"x": X, "y": Y, "batch_size": BATCH, "verbose": 0, **arguments}
    with flatout.options(force=True):
        return flatout.fit(model, engine=engine, **arguments)


def both(run: Any) -> tuple[Any, Any]:
    """What `run(engine)` gives with stock Keras and with flatout, which must have been accelerated."""
    expected = run("stock")
    got = run("auto")
    assert flatout.explain()[-1].accelerated, flatout.explain()[-1]
    return expected, got


def assert_same(expected: Any, got: Any) -> None:
    for one, other in zip(keras.tree.flatten(expected), keras.tree.flatten(got), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)


class Diary(keras.callbacks.Callback):
    """Writes down every hook, with the logs and a weight as they are at that moment."""

    def __init__(self, stop_at: int | None = None):
        super().__init__()
        self.pages: list[Any] = []
        self.stop_at = stop_at

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.pages.append(("epoch begins", epoch))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.pages.append(("batch begins", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        weight = float(np.asarray(self.model.get_weights()[0]).sum())
        self.pages.append(("batch ends", batch, dict(logs), weight))
        if batch == self.stop_at:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.pages.append(("epoch ends", epoch, dict(logs)))


def compare_pages(expected: list[Any], got: list[Any]) -> None:
    assert [page[:2] for page in got] == [page[:2] for page in expected]
    for one, other in zip(expected, got, strict=True):
        assert_same(list(one[2:]), list(other[2:]))


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [None, 4])
def test_a_users_batch_hook_sees_every_step_and_may_stop(stop_at: int | None) -> None:
    def run(engine: str) -> Any:
        diary = Diary(stop_at)
        fit(make_model(), engine, epochs=2, callbacks=[diary], validation_data=(X[:40], Y[:40]))
        return diary.pages

    compare_pages(*both(run))


def test_a_batch_hook_may_change_weights() -> None:
    class Zero(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 5:
                self.model.set_weights([w * 0 for w in self.model.get_weights()])

    def run(engine: str) -> Any:
        model = make_model()
        return [fit(model, engine, callbacks=[Zero()]).history, model.get_weights()]

    assert_same(*both(run))


def test_terminate_on_nan_stops_at_its_step_inside_a_chunk() -> None:
    x = X.copy()
    x[7 * BATCH + 3, 0] = np.inf  # Not NaN, of which the relu of TensorFlow makes 0 on some processors.

    def run(engine: str) -> Any:
        model = make_model()
        callbacks = [keras.callbacks.TerminateOnNaN()]
        history = fit(model, engine, x=x, epochs=3, shuffle=False, callbacks=callbacks)
        return [len(history.epoch), int(model.optimizer.iterations)]

    expected, got = both(run)
    assert got == expected == [1, 8]


def test_model_checkpoint_saves_every_fifth_batch_what_was_there_then(tmp_path: Path) -> None:
    def run(engine: str) -> Any:
        folder = tmp_path / engine
        name = str(folder / "{epoch}-{batch}.weights.h5")
        checkpoint = keras.callbacks.ModelCheckpoint(name, save_weights_only=True, save_freq=5)
        fit(make_model(), engine, epochs=2, callbacks=[checkpoint])
        saved = {}
        for path in sorted(folder.iterdir()):
            model = make_model()
            model.load_weights(path)
            saved[path.name] = model.get_weights()
        return saved

    expected, got = both(run)
    assert got.keys() == expected.keys()
    assert len(got) == 5
    assert_same(expected, got)


def test_early_stopping_restores_the_best_weights() -> None:
    def run(engine: str) -> Any:
        model = make_model()
        stopping = keras.callbacks.EarlyStopping("loss", min_delta=0.05, patience=1, restore_best_weights=True)
        history = fit(model, engine, epochs=30, callbacks=[stopping])
        return [history.history, model.get_weights()]

    expected, got = both(run)
    assert len(got[0]["loss"]) < 30
    assert_same(expected, got)


def test_steps_per_execution_keeps_its_cadence() -> None:
    if keras.config.backend() == "torch":
        pytest.skip("Keras' torch backend refuses steps_per_execution")

    def run(engine: str) -> Any:
        diary = Diary()
        fit(make_model(steps_per_execution=4), engine, epochs=2, callbacks=[diary])
        return diary.pages

    compare_pages(*both(run))


def test_csv_logger_and_learning_rate_scheduler(tmp_path: Path) -> None:
    def run(engine: str) -> Any:
        path = tmp_path / f"{engine}.csv"
        callbacks = [
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
            keras.callbacks.CSVLogger(str(path)),
        ]
        fit(make_model(), engine, epochs=3, callbacks=callbacks)
        return path.read_text().splitlines()

    expected, got = both(run)
    assert len(got) == 4
    assert got == expected


@pytest.mark.slow
def test_evaluate_and_predict_equal_stock_keras() -> None:
    model = make_model()
    with flatout.options(force=True):
        for call in (
            lambda engine: flatout.evaluate(model, X, Y, batch_size=BATCH, verbose=0, return_dict=True, engine=engine),
            lambda engine: flatout.evaluate(model, X, Y, sample_weight=Y + 1.0, verbose=0, engine=engine),
            lambda engine: flatout.evaluate(model, X, Y, steps=3, verbose=0, engine=engine),
            lambda engine: flatout.predict(model, X, batch_size=BATCH, verbose=0, engine=engine),
            lambda engine: flatout.predict(model, X, verbose=0, steps=2, batch_size=8, engine=engine),
        ):
            expected, got = both(call)
            assert type(got) is type(expected)
            assert_same(expected, got)


def test_predict_of_several_outputs_keeps_its_structure() -> None:
    inputs = layers.Input((12,))
    model = keras.Model(inputs, {"a": layers.Dense(2)(inputs), "b": [layers.Dense(3)(inputs)]})
    with flatout.options(force=True):
        expected, got = both(lambda engine: flatout.predict(model, X, verbose=0, engine=engine))
    assert keras.tree.map_structure(np.shape, got) == keras.tree.map_structure(np.shape, expected)
    assert_same(expected, got)


@pytest.mark.slow
def test_an_overridden_evaluate_is_used_for_validation() -> None:
    class Own(keras.Sequential):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            return {name: value + 100 for name, value in super().evaluate(*args, **kwargs).items()}

    def run(engine: str) -> Any:
        keras.utils.set_random_seed(3)
        model = Own([layers.Input((12,)), layers.Dense(4, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return fit(model, engine, validation_data=(X[:40], Y[:40])).history

    expected, got = both(run)
    assert got["val_loss"][0] > 100
    assert_same(expected, got)


def test_enabled_models_run_accelerated_and_disabled_ones_do_not(forced: None) -> None:
    flatout.enable()
    make_model().fit(X, Y, verbose=0)
    assert flatout.explain()[-1].accelerated
    flatout.disable()
    before = len(flatout.explain())
    make_model().fit(X, Y, verbose=0)
    assert len(flatout.explain()) == before


def test_small_work_goes_to_stock_keras_with_a_reason() -> None:
    flatout.fit(make_model(), X[:32], Y[:32], verbose=0)
    report = flatout.explain()[-1]
    assert (report.accelerated, [why.code for why in report.reasons]) == (False, ["small"])


@pytest.mark.parametrize(("engine", "steps"), [("auto", 2), ("stock", 0)])
def test_a_run_that_is_interrupted_is_reported(engine: str, steps: int) -> None:
    def interrupt(epoch: int, logs: Any) -> None:
        if epoch == 1:
            raise KeyboardInterrupt

    model, stop = make_model(), keras.callbacks.LambdaCallback(on_epoch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(model, engine, epochs=5, batch_size=len(X), callbacks=[stop])
    report = flatout.explain()[-1]
    assert (report.accelerated, report.steps, report.ended_by) == (engine == "auto", steps, "KeyboardInterrupt")
    assert "ended by KeyboardInterrupt" in str(report)


def test_ctrl_c_is_heard_and_leaves_a_model_that_works() -> None:
    model = make_model()
    fit(model)
    pressed = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    # Not before an epoch has ended, however slow the machine.
    begun = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: pressed.start() if epoch == 1 else None)
    with pytest.raises(KeyboardInterrupt):
        fit(model, epochs=50_000, callbacks=[begun])
    pressed.join()
    assert int(model.optimizer.iterations) > STEPS
    assert np.isfinite(fit(model).history["loss"]).all()


def test_ctrl_c_is_heard_while_the_logs_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(value: Any) -> None:
        raise KeyboardInterrupt

    begun = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: monkeypatch.setattr("keras.src.backend.convert_to_numpy", press)
    )
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), callbacks=[begun])


def test_ctrl_c_waits_for_the_end_of_a_block_that_must_not_be_cut() -> None:
    done = []

    def press() -> None:
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("to its end")

    with pytest.raises(KeyboardInterrupt):
        press()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.backend("jax", "tensorflow")
def test_validation_that_only_keras_can_do_is_reported() -> None:
    history = fit(make_model(), epochs=2, validation_data=(scipy.sparse.csr_matrix(X[:20]), Y[:20]))
    assert len(history.history["val_loss"]) == 2
    report = flatout.explain()[-1]
    assert report.accelerated
    assert [why.code for why in report.reasons] == ["sparse"]
    assert "In validation" in report.reasons[0].message


def test_no_room_for_the_data_sends_them_in_chunks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from flatout.engines.select import engine_for

    engine = engine_for(keras.config.backend())
    place = engine.place

    def full(inputs: Any) -> Any:
        if len(inputs[0]) == len(X):
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes.")
        return place(inputs)

    expected = fit(make_model(), engine="stock").history
    monkeypatch.setattr(engine, "place", full)
    with pytest.warns(UserWarning, match="sent in chunks"):
        assert_same(expected, fit(make_model()).history)
    assert flatout.explain()[-1].data == "streamed"


@pytest.mark.slow
def test_a_callback_may_change_what_the_models_python_reads() -> None:
    class Weighted(keras.Sequential):
        factor = 1.0

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return self.factor * super().compute_loss(*args, **kwargs)

    class Setter(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.model.factor = 3.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.factor += epoch

    def run(engine: str) -> Any:
        keras.utils.set_random_seed(3)
        model = Weighted([layers.Input((12,)), layers.Dense(4, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return fit(model, engine, epochs=3, callbacks=[Setter()]).history

    assert_same(*both(run))


def test_flatout_fit_goes_through_the_users_own_fit() -> None:
    class Own(keras.Sequential):
        def fit(self, x: Any, y: Any, **arguments: Any) -> Any:
            return super().fit(x, y * 0, **arguments)

    def run(engine: str) -> Any:
        keras.utils.set_random_seed(3)
        model = Own([layers.Input((12,)), layers.Dense(4, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return fit(model, engine, epochs=2).history

    expected, got = both(run)
    assert_same(expected, got)
    assert not are_replaced()


def test_an_error_inside_a_chunk_leaves_the_model_at_its_step() -> None:
    x = X.copy()
    x[7 * BATCH + 3, 0] = np.inf  # Not NaN, of which the relu of TensorFlow makes 0 on some processors.

    def run(engine: str) -> int:
        model = make_model()
        callbacks = [keras.callbacks.TerminateOnNaN(raise_error=True)]
        with pytest.raises(RuntimeError, match="batch 7"):
            fit(model, engine, x=x, shuffle=False, callbacks=callbacks)
        return int(model.optimizer.iterations)

    assert run("auto") == run("stock") == 8


def test_a_step_without_logs_trains() -> None:
    class Silent(keras.Sequential):
        def train_step(self, *arguments: Any) -> Any:
            result = super().train_step(*arguments)
            return ({}, result[1]) if keras.config.backend() == "jax" else {}

    model = Silent([layers.Input((12,)), layers.Dense(4, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert fit(model, epochs=2, batch_size=2).history == {}


def test_what_a_callback_raises_is_raised() -> None:
    """Also what would end a generator."""

    class Raising(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise StopIteration("enough")

    with pytest.raises(StopIteration, match="enough"):
        fit(make_model(), callbacks=[Raising()])


def test_what_a_callback_of_evaluate_raises_is_raised() -> None:
    class Raising(keras.callbacks.Callback):
        def on_test_begin(self, logs: Any = None) -> None:
            raise StopIteration("enough")

    with flatout.options(force=True), pytest.raises(StopIteration, match="enough"):
        flatout.evaluate(make_model(), X, Y, batch_size=BATCH, verbose=0, callbacks=[Raising()])


def test_an_error_that_a_callback_makes_of_another_stays_what_it_is() -> None:
    class Raising(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            try:
                next(iter(()))
            except StopIteration as error:
                raise RuntimeError("no more rows") from error

        def on_test_begin(self, logs: Any = None) -> None:
            self.on_epoch_end(0)

    with pytest.raises(RuntimeError, match="no more rows"):
        fit(make_model(), callbacks=[Raising()])
    with flatout.options(force=True), pytest.raises(RuntimeError, match="no more rows"):
        flatout.evaluate(make_model(), X, Y, batch_size=BATCH, verbose=0, callbacks=[Raising()])


@pytest.mark.backend("torch")
def test_a_step_that_runs_as_python_sees_what_its_history_was_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Fading(keras.Sequential):
        def compute_loss(self, *arguments: Any, **named: Any) -> Any:
            print("a step")
            return super().compute_loss(*arguments, **named) * 0.5 ** len(self.history.epoch)

    def run(engine: str) -> Any:
        keras.utils.set_random_seed(3)
        model = Fading([layers.Input((12,)), layers.Dense(4, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        model.history = keras.callbacks.History()
        model.history.on_train_begin()
        return fit(model, engine, epochs=3).history

    assert_same(run("stock"), run("auto"))


@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_limit_of_steps_is_that_of_keras_and_chooses_its_batch_size(batch_size: int | None) -> None:
    def run(engine: str) -> Any:
        return fit(make_model(), engine, batch_size=batch_size).history

    keras.config.set_max_steps_per_epoch(4)
    try:
        expected, got = both(run)
    finally:
        keras.config.set_max_steps_per_epoch(None)
    assert_same(expected, got)


def test_strict_mode_also_refuses_stock_validation() -> None:
    sparse = scipy.sparse.csr_matrix(X[:20])
    with flatout.options(strict=True), pytest.raises(flatout.FallbackRefused, match="sparse"):
        fit(make_model(), validation_data=(sparse, Y[:20]))


@pytest.mark.slow
def test_strict_mode_refuses_stock_keras_before_step_0() -> None:
    model = make_model(run_eagerly=True)
    before = model.get_weights()
    with flatout.options(strict=True), pytest.raises(flatout.FallbackRefused, match="run_eagerly"):
        fit(model)
    assert_same(before, model.get_weights())
    with flatout.options(strict=True):
        fit(model, engine="stock")


def test_an_engine_of_another_backend_is_an_invalid_option() -> None:
    other = "torch" if keras.config.backend() != "torch" else "jax"
    with pytest.raises(flatout.InvalidOption, match=f"Received: engine='{other}'"):
        flatout.fit(make_model(), X, Y, engine=other)


def test_unknown_arguments_raise_type_error() -> None:
    with pytest.raises(TypeError, match="epoch"):
        flatout.fit(make_model(), X, Y, epoch=3)


def test_an_error_in_a_callback_reaches_the_user_and_leaves_a_usable_model() -> None:
    class Bad(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise RuntimeError("mine")

    model = make_model()
    with pytest.raises(RuntimeError, match="mine"):
        fit(model, callbacks=[Bad()])
    assert np.isfinite(model.get_weights()[0]).all()
    assert len(fit(model).history["loss"]) == 1


def test_the_progress_bar_looks_as_keras_does(capsys: pytest.CaptureFixture[str]) -> None:
    def run(engine: str) -> list[str]:
        fit(make_model(), engine, epochs=2, verbose=2)
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if "s/step" not in line] + [line.split(" - ")[0] for line in lines]

    expected, got = both(run)
    assert got == expected
    fit(make_model(), epochs=1, verbose=1)
    assert f"{STEPS}/{STEPS}" in capsys.readouterr().out


def test_plan_says_beforehand_what_will_happen() -> None:
    plan = flatout.plan(make_model(), X, Y, epochs=1000)
    assert (plan.engine, plan.facts.rows, plan.facts.steps) == (keras.config.backend(), ROWS, 7000)
    assert "resident" in plan.explain()


@pytest.mark.slow
def test_history_can_be_written_as_json() -> None:
    history = fit(make_model(), epochs=2, validation_split=0.2)
    assert json.loads(json.dumps(history.history)).keys() == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert history.params == {"verbose": 0, "epochs": 2, "steps": 11}


def test_which_callbacks_keep_auto_from_one_long_kernel() -> None:
    class Batches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    known = keras.callbacks
    harmless = [
        known.History(),
        known.EarlyStopping("loss"),
        known.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
    ]
    assert not services_of(None)
    assert services_of([[harmless[0]], "no callback"]) == {"none"}
    assert services_of(harmless) <= {"none", "chunk"}
    assert services_of(known.CallbackList(harmless)) <= {"none", "chunk"}
    for one in (Batches(), known.TerminateOnNaN(), known.ModelCheckpoint("x.keras", save_freq=3)):
        assert services_of([*harmless, one]) - {"none", "chunk"}
        assert services_of(one) - {"none", "chunk"}
