"""Each of many models comes out as it does alone, however they were run, and leaves no trace in the others."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.many import fit_many as conductor
from flatout.many.waves import interleaved_wave
from flatout.many.waves import run_candidates as waves
from flatout.many.waves.guarded_callbacks import draw_nothing

BACKEND = keras.config.backend()
ROWS, BATCH = 44, 16
X = np.random.default_rng(5).normal(size=(ROWS, 6)).astype("float32")
Y = np.argmax(X[:, :3], axis=1)
HELD_OUT = (X[:20], Y[:20])
# Rounded in another order, and amplified by a few steps.
TOLERANCE = {"rtol": 0, "atol": 1e-5 if BACKEND == "jax" else 1e-6}


def build(learning_rate: float = 1e-2, decay: float = 0.5, units: int = 8) -> Any:
    model = keras.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(units, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )
    rate = keras.optimizers.schedules.ExponentialDecay(learning_rate, 2, decay)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def alone(make: Any, point: dict[str, Any], rows: Any = slice(None), **arguments: Any) -> tuple[Any, dict[str, Any]]:
    point = dict(point)
    keras.utils.set_random_seed(point.pop("seed"))
    model = make(**{name: value for name, value in point.items() if name != "fold"})
    with flatout.options(force=True):
        history = flatout.fit(model, X[rows], Y[rows], batch_size=BATCH, verbose=0, **arguments)
    return model, history.history


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return {}


@pytest.fixture
def alone_once(request: pytest.FixtureRequest, known: dict[str, Any]) -> Callable[..., Any]:
    """By itself a model comes out the same, whichever way the others run."""

    def once(make: Any, point: dict[str, Any], *rows: Any, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        key = f"{request.node.originalname} {point}"
        if key not in known:
            known[key] = alone(make, point, *rows, **arguments)
        return known[key]

    return once


def assert_same(many: flatout.Many, number: int, model: Any, history: dict[str, Any]) -> None:
    assert many.histories[number].keys() == history.keys()
    for name, values in history.items():
        np.testing.assert_allclose(many.histories[number][name], values, err_msg=name, **TOLERANCE)
    ours, theirs = many.models[number], model
    for one, other in zip(
        [*ours.variables, *ours.optimizer.variables], [*theirs.variables, *theirs.optimizer.variables], strict=True
    ):
        got, expected = map(keras.ops.convert_to_numpy, (one.value, other.value))
        np.testing.assert_allclose(got, expected, err_msg=one.path, **TOLERANCE)


WAYS = {"jax": ["as it comes", "mapped", "interleaved"], "torch": ["as it comes", "interleaved"]}.get(
    BACKEND, ["as it comes"]
)
every_way = pytest.mark.parametrize("way", WAYS, indirect=True)
# Pieces are those of the same loop on every backend, which torch compiles the soonest.
most_ways = pytest.mark.parametrize("way", WAYS[:2], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """How models run; on a CPU they are neither mapped nor interleaved but by this."""
    expected = waves.SIDE_BY_SIDE if BACKEND == "jax" else waves.IN_TURNS
    if request.param == "interleaved":
        interleave(monkeypatch)
        expected = waves.INTERLEAVED
    elif request.param == "mapped":
        monkeypatch.setattr(conductor, "run_candidates", waves.run_on_device)
        monkeypatch.setattr(waves, "_slots", lambda nbytes, candidates: 3)
        expected = waves.MAPPED
    # So little work would be left to stock Keras where nothing is gained by doing it together.
    with flatout.options(force=True):
        yield expected


def interleave(monkeypatch: pytest.MonkeyPatch) -> None:
    if BACKEND == "jax":
        from flatout.engines.jax.engine import JaxProgram as Program
    else:
        from flatout.engines.torch.engine import TorchProgram as Program  # type: ignore[assignment]
    monkeypatch.setattr(Program, "runs_beside_others", True)
    monkeypatch.setattr(waves, "_traced_to_be_mapped", lambda _: None)
    monkeypatch.setattr(interleaved_wave, "_MOST_AT_ONCE", 3)
    monkeypatch.setattr(conductor, "run_candidates", waves.run_on_device)


def stopping(seed: int, **_: Any) -> list[Any]:
    """Never content: stops after as many epochs as the seed says, and has the weights of the first one restored."""
    return [keras.callbacks.EarlyStopping("val_loss", min_delta=10.0, patience=seed, restore_best_weights=True)]


@every_way
def test_models_of_other_seeds_and_rates_come_out_as_alone(way: str, alone_once: Callable[..., Any]) -> None:
    points = [
        {"seed": 1, "learning_rate": 0.1},
        {"seed": 2, "learning_rate": 0.01},
        {"seed": 3, "learning_rate": 0.2, "decay": 0.9},
        {"seed": 3, "learning_rate": 0.3},
    ]
    arguments = {"epochs": 4, "validation_data": HELD_OUT}
    before = np.random.get_state()[1], random.getstate()
    many = flatout.fit_many(build, points, X, Y, batch_size=BATCH, verbose=0, seed=0, callbacks=stopping, **arguments)
    assert (np.random.get_state()[1] == before[0]).all()
    assert random.getstate() == before[1]
    assert many.ways == {way: 4}
    lengths = []
    for number, point in enumerate(points):
        model, history = alone_once(build, point, callbacks=stopping(**point), **arguments)
        assert_same(many, number, model, history)
        lengths.append(len(history["loss"]))
    assert lengths == [2, 3, 4, 4]


@pytest.mark.backend("jax", "torch")
@most_ways
def test_folds_share_the_rows_and_hold_out_their_own(way: str, alone_once: Callable[..., Any]) -> None:
    points = flatout.grid(seed=[4], units=[4, 8])
    many = flatout.fit_many(build, points, X, Y, batch_size=BATCH, epochs=2, folds=2, verbose=0)
    assert [point["fold"] for point in many.points] == [0, 1, 0, 1]
    for number, (train, held_out) in enumerate(2 * flatout.many.splits.KFold(2).split(X)):
        model, history = alone_once(
            build, many.points[number], train, epochs=2, validation_data=(X[held_out], Y[held_out])
        )
        assert_same(many, number, model, history)


class Writing(keras.callbacks.Callback):
    """Draws from NumPy's generator and from Keras' own, and writes to the weights, after every epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        bias = self.model.layers[-1].bias
        drawn = np.random.uniform(0, 0.1, 3) + keras.ops.convert_to_numpy(keras.random.uniform((3,), 0, 0.1))
        bias.assign(keras.ops.convert_to_numpy(bias.value) + drawn.astype("float32"))


@pytest.mark.backend("jax", "torch")
@most_ways
def test_callbacks_have_the_model_and_the_generators_of_a_fit_of_its_own(
    way: str, alone_once: Callable[..., Any]
) -> None:
    points = flatout.grid(seed=range(4))
    plateau = {"monitor": "loss", "patience": 0, "min_delta": 10.0, "factor": 0.1}

    def callbacks(seed: int = 0) -> list[Any]:
        return [keras.callbacks.ReduceLROnPlateau(**plateau), Writing()]

    def constant_rate() -> Any:
        model = build()
        model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        return model

    many = flatout.fit_many(constant_rate, points, X, Y, batch_size=BATCH, epochs=3, callbacks=callbacks, verbose=0)
    for number, point in enumerate(points):
        assert_same(many, number, *alone_once(constant_rate, point, epochs=3, callbacks=callbacks()))


class Swapping(keras.callbacks.Callback):
    """Validates with half of each weight, and trains on with the whole."""

    def on_test_begin(self, logs: Any = None) -> None:
        self.kept = self.model.get_weights()
        self.model.set_weights([value / 2 for value in self.kept])

    def on_test_end(self, logs: Any = None) -> None:
        self.model.set_weights(self.kept)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_a_validation_sees_the_weights_that_a_callback_has_put_there(way: str) -> None:
    def averaging() -> Any:
        model = build()
        model.compile(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5), "sparse_categorical_crossentropy")
        return model

    arguments = {"epochs": 2, "validation_data": HELD_OUT}
    for callbacks in ([keras.callbacks.SwapEMAWeights()], [Swapping()]):
        points = flatout.grid(seed=[1, 2])
        many = flatout.fit_many(averaging, points, X, Y, batch_size=BATCH, verbose=0, callbacks=callbacks, **arguments)
        assert many.ways == {way: 2}
        for number, point in enumerate(points):
            assert_same(many, number, *alone(averaging, point, callbacks=copy.deepcopy(callbacks), **arguments))


@pytest.mark.backend("jax")
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_models_whose_metrics_cannot_be_mapped_run_beside_each_other(way: str) -> None:
    import jax

    class Rooted(keras.metrics.Mean):
        def result(self) -> Any:
            return jax.pure_callback(np.sqrt, jax.ShapeDtypeStruct((), "float32"), super().result())

    class Measured(keras.Sequential):
        def train_step(self, state: Any, data: Any) -> Any:
            (x, y), (trained, others, optimizer, metrics) = data, state

            def loss_of(weights: Any) -> Any:
                outputs, _ = self.stateless_call(weights, others, x)
                return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, outputs))

            loss, gradients = jax.value_and_grad(loss_of)(trained)
            trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
            rooted = self.rooted.stateless_update_state(metrics, loss)
            return {"loss": loss}, (trained, others, optimizer, rooted)

        @property
        def metrics(self) -> list[Any]:
            return [self.rooted]

    def make() -> Any:
        model = Measured([layers.Input((6,)), layers.Dense(3, activation="softmax")])
        model.rooted = Rooted()
        model.compile("sgd")
        return model

    many = flatout.fit_many(make, flatout.grid(seed=[1, 2]), X, Y, epochs=2, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.INTERLEAVED: 2}
    for number, seed in enumerate((1, 2)):
        assert_same(many, number, *alone(make, {"seed": seed}, epochs=2))


@pytest.mark.backend("jax")
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_models_with_an_operation_that_cannot_be_mapped_run_beside_each_other(way: str) -> None:
    import jax

    class Unmapped(layers.Layer):
        def call(self, inputs: Any) -> Any:
            same = jax.ShapeDtypeStruct(inputs.shape, inputs.dtype)
            return inputs + jax.pure_callback(np.negative, same, jax.lax.stop_gradient(inputs)) / 2

    def make() -> Any:
        model = keras.Sequential([layers.Input((6,)), Unmapped(), layers.Dense(3, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    many = flatout.fit_many(make, flatout.grid(seed=[1, 2]), X, Y, epochs=2, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.INTERLEAVED: 2}
    assert [why.code for report in flatout.explain()[-2:] for why in report.reasons] == ["not_mapped"] * 2
    for number, seed in enumerate((1, 2)):
        assert_same(many, number, *alone(make, {"seed": seed}, epochs=2))


@pytest.mark.backend("jax")
def test_callbacks_with_functions_of_the_user_may_draw() -> None:
    hooked = keras.callbacks.Callback()
    hooked.on_epoch_end = lambda epoch, logs=None: None
    others = [
        keras.callbacks.LambdaCallback(on_train_end=print),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
        Writing(),
    ]
    assert draw_nothing([keras.callbacks.EarlyStopping(), keras.callbacks.TerminateOnNaN()])
    assert not any(draw_nothing([callback]) for callback in (hooked, *others))


@pytest.mark.backend("jax", "torch")
@most_ways
def test_a_model_that_diverges_hurts_no_other(way: str, alone_once: Callable[..., Any]) -> None:
    points = [{"seed": 1}, {"seed": 2, "learning_rate": float("inf")}, {"seed": 3}]
    many = flatout.fit_many(build, points, X, Y, batch_size=BATCH, epochs=2, verbose=0)
    assert np.isnan(many.histories[1]["loss"][-1])
    for number in (0, 2):
        assert_same(many, number, *alone_once(build, points[number], epochs=2))
    assert many.best("loss") in (0, 2)


class Failing(keras.callbacks.Callback):
    """Fails in the second epoch; of those that do not, tells who began and who ended."""

    def __init__(self, seed: int, told: list[str]):
        super().__init__()
        self._seed, self._told = seed, told

    def on_train_begin(self, logs: Any = None) -> None:
        self._told.append(f"{self._seed} begins")

    def on_train_end(self, logs: Any = None) -> None:
        self._told.append(f"{self._seed} ends")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._seed == 2 and epoch == 1:
            raise OSError("the disk is full")


@pytest.mark.backend("jax", "torch")
def test_an_error_in_one_of_interleaved_models_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    interleave(monkeypatch)
    told: list[str] = []
    with flatout.options(force=True), pytest.raises(OSError, match="the disk is full"):
        flatout.fit_many(
            build,
            flatout.grid(seed=[1, 2, 3]),
            X,
            Y,
            batch_size=BATCH,
            epochs=9,
            callbacks=lambda seed: [Failing(seed, told)],
            verbose=0,
        )
    assert told[:2] == ["1 begins", "2 begins"]
    assert not any("ends" in word for word in told)
    assert {run.ended_by for run in flatout.explain()[-2:]} == {"OSError"}


def test_the_frame_has_a_row_for_each_model() -> None:
    points = flatout.grid(learning_rate=[0.1, 0.01])
    many = flatout.fit_many(build, points, X, Y, epochs=2, seed=7, verbose=0, validation_data=HELD_OUT)
    frame = many.frame
    assert list(frame["seed"]) == [7, 7]
    assert list(frame["learning_rate"]) == [0.1, 0.01]
    assert list(frame["epochs"]) == [2, 2]
    best = many.best("val_accuracy")
    assert frame["best_val_accuracy"][best] == frame["best_val_accuracy"].max()
    assert frame["best_val_loss"][0] == min(many.histories[0]["val_loss"])
    with pytest.raises(flatout.InvalidOption, match="val_loss"):
        many.best("auc")


def test_a_model_that_cannot_share_anything_is_trained_by_itself() -> None:
    def eager(seed: int) -> Any:
        model = build()
        model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
        return model

    many = flatout.fit_many(eager, [{"seed": 1}], X, Y, batch_size=BATCH, subsets=[[3, 4, 5]], epochs=1, verbose=0)
    assert many.ways == {waves.IN_TURNS: 1}
    assert_same(many, 0, *alone(lambda: eager(0), {"seed": 1}, [3, 4, 5], epochs=1))


@pytest.mark.backend("jax")
def test_files_of_callbacks_have_the_number_of_their_model(tmp_path: Path) -> None:
    callbacks = [
        keras.callbacks.CSVLogger(f"{tmp_path}/{{number}}.csv"),
        keras.callbacks.BackupAndRestore(f"{tmp_path}/{{number}}", delete_checkpoint=False),
    ]
    flatout.fit_many(build, flatout.grid(seed=[1, 2]), X, Y, epochs=1, verbose=0, callbacks=callbacks)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "0.csv", "1", "1.csv"]
    assert all(any((tmp_path / name).iterdir()) for name in ("0", "1"))


def test_as_many_slots_as_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        def free_memory(self) -> int:
            return 1000

    monkeypatch.setattr(waves, "engine_for", lambda _: Device())
    assert [waves._slots(nbytes, 8) for nbytes in (10, 100, 350, 10_000)] == [8, 4, 2, 1]


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[16 * index : 16 * index + 16], Y[16 * index : 16 * index + 16]


def test_batches_are_read_anew_for_each_model() -> None:
    points = flatout.grid(seed=[1, 2])
    many = flatout.fit_many(build, points, Batches(), epochs=2, verbose=0)
    assert many.ways == {waves.IN_TURNS: 2}
    for number, point in enumerate(points):
        keras.utils.set_random_seed(point["seed"])
        model = build()
        history = model.fit(Batches(), epochs=2, verbose=0)
        assert_same(many, number, model, history.history)


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"build": None}, "function that returns"),
        ({"build": lambda: 3}, "compiled Keras model"),
        ({"build": lambda: keras.Sequential([layers.Dense(1)])}, "model.compile"),
        ({"grid": [{"depth": 3}]}, "depth"),
        ({"grid": [{"seed": 0.5}]}, "whole number"),
        ({"folds": 2, "subsets": "disjoint"}, "Give one"),
        ({"folds": 2, "validation_split": 0.5}, "hold out rows"),
        ({"callbacks": [keras.callbacks.CSVLogger("log.csv")]}, "{number}"),
        ({"callbacks": [3]}, "Keras callbacks"),
        ({"callbacks": lambda: [3]}, "Keras callbacks"),
        ({"callbacks": lambda seed: []}, "Point 0 is not what `callbacks` takes"),
        ({"build": keras.Sequential()}, "function that returns"),
        ({"folds": "5"}, "a number, a splitter"),
        ({"subsets": 5}, "row numbers for each model"),
        ({"subsets": "disjoint", "validation_split": 0.5}, "validation_data for validation_split"),
        ({"build": lambda fold: build(), "grid": [{"fold": 1}], "folds": 2}, "another name"),
        ({"x": (row for row in X), "y": None}, "read once"),
        ({"validation_data": (row for row in X)}, "read once"),
        ({"x": Batches(), "y": None, "folds": 2}, "rows have numbers"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"build": build, "grid": [{}], "x": X, "y": Y, "verbose": 0, **change}
    with pytest.raises(flatout.InvalidOption, match=said.replace("{", "\\{")):
        flatout.fit_many(**given)


@pytest.mark.parametrize("shared", ["layer", "layer without a shape", "optimizer", "model"])
def test_models_that_would_train_each_other_are_refused(shared: str) -> None:
    layer, optimizer = layers.Dense(4), keras.optimizers.SGD()
    inputs = [] if shared == "layer without a shape" else [layers.Input((6,))]

    def build() -> Any:
        first = layer if shared.startswith("layer") else layers.Dense(4)
        model = keras.Sequential([*inputs, first, layers.Dense(3, activation="softmax")])
        model.compile(optimizer if shared == "optimizer" else "sgd", "sparse_categorical_crossentropy")
        return model

    made = build()
    said = "a model of its own" if shared == "model" else "Models would train each other"
    points = [{"seed": 1}, {"seed": 2}]
    with pytest.raises(flatout.InvalidOption, match=said):
        flatout.fit_many(lambda: made if shared == "model" else build(), points, X, Y, epochs=1, verbose=0)


@most_ways
@pytest.mark.parametrize("is_in_the_point", [False, True])
def test_models_may_share_frozen_layers_and_metrics(way: str, is_in_the_point: bool) -> None:
    frozen = keras.Sequential([layers.Input((6,)), layers.Dense(5)])
    frozen.trainable = False
    # On tensorflow stock Keras begins the first epoch with what the last model has left in a metric.
    metric: Any = "accuracy" if BACKEND == "tensorflow" else keras.metrics.SparseCategoricalAccuracy()

    def on_top(learning_rate: float, given: list[Any]) -> Any:
        base, metric = given
        model = keras.Sequential([layers.Input((6,)), base, layers.Dense(3, activation="softmax")])
        model.compile(keras.optimizers.SGD(learning_rate), "sparse_categorical_crossentropy", metrics=[metric])
        return model

    points = [{"seed": seed, "learning_rate": 0.1 * seed, "given": [frozen, metric]} for seed in (1, 2)]
    if is_in_the_point:
        points = [{"seed": 3, "learning_rate": 0.1, "given": [layers.Identity(), "accuracy"]}, *points]
    many = flatout.fit_many(on_top, points, X, Y, batch_size=BATCH, epochs=2, verbose=0)
    assert many.ways[waves.IN_TURNS] >= len(points) - (2 if is_in_the_point else 0)
    for number, point in enumerate(points):
        model, history = alone(on_top, point, epochs=2)
        assert_same(many, number, model, history)


@most_ways
def test_a_model_that_runs_alone_waits_for_those_under_way(way: str, alone_once: Callable[..., Any]) -> None:
    def eager(seed: int, learning_rate: float) -> Any:
        model = build(learning_rate)
        if learning_rate == 0.2:
            model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
        return model

    points = [{"seed": seed, "learning_rate": 0.1 * seed} for seed in (1, 2, 3)]
    many = flatout.fit_many(eager, points, X, Y, batch_size=BATCH, epochs=3, verbose=0)
    for number, point in enumerate(points):
        rate = point["learning_rate"]
        assert_same(many, number, *alone_once(lambda seed=0, rate=rate, **_: eager(seed, rate), point, epochs=3))


@pytest.mark.backend("jax")
def test_models_may_be_built_before() -> None:
    built = {units: build(units=units) for units in (3, 4)}
    points = [{"seed": 1, "units": 3}, {"seed": 1, "units": 4}]
    many = flatout.fit_many(lambda units: built[units], points, X, Y, batch_size=BATCH, epochs=1, verbose=0)
    assert [model.layers[0].units for model in many.models] == [3, 4]


@pytest.mark.backend("jax")
def test_a_build_has_containers_of_its_own_and_callbacks_know_each_other() -> None:
    class Ends(keras.callbacks.Callback):
        epochs = 0

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.epochs += 1

    class Asks(keras.callbacks.Callback):
        def __init__(self, other: Ends):
            super().__init__()
            self.other = other

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["heard"] = self.other.epochs

    ends = Ends()
    point = {"seed": 1, "sizes": [4, 5, 6], "epochs": 7, "seconds": 8}
    many = flatout.fit_many(
        lambda sizes, **_: build(units=sizes.pop()),
        [point],
        X,
        Y,
        folds=2,
        epochs=2,
        verbose=0,
        callbacks=iter([ends, Asks(ends)]),
    )
    assert [model.layers[0].units for model in many.models] == [6, 6]
    assert [history["heard"] for history in many.histories] == [[1, 2], [1, 2]]
    (first, _) = many.rows()
    assert (first["epochs"], first["last_epochs"], first["seconds"]) == (7, 2, 8)
    assert ends.epochs == 0


def test_an_error_in_build_names_the_point() -> None:
    with pytest.raises(ZeroDivisionError) as error:
        flatout.fit_many(lambda units: 1 / units, [{"units": 0}], X, Y)
    assert "'units': 0" in error.value.__notes__[0]


@pytest.mark.backend("jax")
@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_weights_are_fetched_only_for_callbacks_that_look_at_them(
    way: str, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatout.engines.jax.mapped_models import MappedModels

    fetched, take, seen = [], MappedModels.take, []

    def noted(models: Any, slot: int) -> Any:
        fetched.append(slot)
        return take(models, slot)

    monkeypatch.setattr(MappedModels, "take", noted)

    class Looking(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(self.model.get_weights()[0].copy())

    points = [{"seed": 1, "learning_rate": 0.1}, {"seed": 2, "learning_rate": 0.1}]
    callbacks = [Looking()] if looks else [keras.callbacks.EarlyStopping("loss", patience=5)]
    many = flatout.fit_many(build, points, X, Y, batch_size=BATCH, verbose=0, epochs=3, callbacks=callbacks)
    assert many.ways == {way: 2}
    # At the end each model has its own back.
    assert len(fetched) == (2 * 3 + 2 if looks else 2)
    if looks:
        np.testing.assert_array_equal(seen[-1], many.models[1].get_weights()[0])
        assert not np.array_equal(seen[1], seen[3])


@pytest.mark.backend("jax")
def test_paths_and_files_of_a_function_have_the_number_too(tmp_path: Path) -> None:
    arguments = {"batch_size": BATCH, "epochs": 1, "verbose": 0}
    points = flatout.grid(seed=[1, 2])
    kept = keras.callbacks.BackupAndRestore(tmp_path / "{number}", delete_checkpoint=False)
    flatout.fit_many(build, points, X, Y, callbacks=[kept], **arguments)
    logs = str(tmp_path / "{number}.csv")
    flatout.fit_many(build, points, X, Y, callbacks=lambda: [keras.callbacks.CSVLogger(logs)], **arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "0.csv", "1", "1.csv"]
    with pytest.raises(flatout.InvalidOption, match="All models would write"):
        flatout.fit_many(build, points, X, Y, callbacks=[keras.callbacks.BackupAndRestore(tmp_path)], **arguments)


class Noisy(layers.Layer):
    """Draws at inference, too, as what samples a latent variable does."""

    def __init__(self) -> None:
        super().__init__()
        self.draws = keras.random.SeedGenerator(7)

    def call(self, x: Any) -> Any:
        return x + 0.1 * keras.random.normal(keras.ops.shape(x), seed=self.draws)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_a_validation_changes_nothing_of_models_that_are_not_validated(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waves, "_slots", lambda nbytes, candidates: 2)

    def make() -> Any:
        model = keras.Sequential([layers.Input((6,)), layers.Dense(4), Noisy(), layers.Dense(3, activation="softmax")])
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        return model

    def stops(seed: int) -> list[Any]:
        return [keras.callbacks.EarlyStopping("loss", min_delta=10, patience=seed)]

    arguments = {"epochs": 7, "validation_data": HELD_OUT, "validation_freq": 2}
    points = flatout.grid(seed=[2, 6, 3])
    many = flatout.fit_many(make, points, X, Y, batch_size=BATCH, verbose=0, callbacks=stops, **arguments)
    assert many.ways == {way: 3}
    for number, point in enumerate(points):
        assert_same(many, number, *alone(make, point, callbacks=stops(**point), **arguments))


class HoldsALayer(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.sums: list[float] = []

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.layer = model.layers[0]

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.sums.append(float(np.sum(self.layer.get_weights()[0])))


@pytest.mark.backend("jax")
@pytest.mark.parametrize("way", ["mapped"], indirect=True)
def test_callbacks_may_hold_a_layer(way: str) -> None:
    callbacks = [HoldsALayer() for _ in range(3)]
    made = iter(callbacks)
    points = flatout.grid(seed=[1, 2, 3])
    flatout.fit_many(build, points, X, Y, batch_size=BATCH, epochs=2, verbose=0, callbacks=lambda: [next(made)])
    for point, callback in zip(points, callbacks, strict=True):
        lone = HoldsALayer()
        alone(build, point, epochs=2, callbacks=[lone])
        np.testing.assert_allclose(callback.sums, lone.sums, **TOLERANCE)
