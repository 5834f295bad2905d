"""Tables as state of a model: updates without a retrace, writes from the step, and what is saved with the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import flatout

pytestmark = pytest.mark.turns


def _frame(*weights: float) -> dict[str, Any]:
    return {"label": np.arange(len(weights)), "w": np.array(weights, "float64")}


def _ones_model(loss: Any, **settings: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones")])
    model.compile(settings.pop("optimizer", keras.optimizers.SGD(0.0)), loss, **settings)
    return model


class _Updates(keras.callbacks.Callback):
    def __init__(self, table: flatout.Table):
        super().__init__()
        self.table = table

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.table.update(_frame(epoch + 2.0, 0.0, 0.0))


def _compilations(monkeypatch: pytest.MonkeyPatch, backend: str) -> list[int]:
    """Counts how often a step is compiled: traced on jax and tensorflow, captured on torch."""
    count = [0]
    if backend == "torch":
        from flatout.engines.torch import engine

        original = engine.capture

        def capture(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(engine, "capture", capture)
        return count
    from keras.src.trainers.trainer import Trainer

    original_loss = Trainer.compute_loss

    def compute_loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return original_loss(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "compute_loss", compute_loss)
    return count


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("stock", [False, True], ids=["flatout", "stock"])
def test_an_update_is_seen_without_a_retrace(stock: bool, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = flatout.Table(_frame(1.0, 0.0, 0.0), key="label")
    model = _ones_model(lambda y_true, y_pred: table.at(y_true).w * ops.mean(y_pred, -1))
    x, y = np.ones((32, 4), "float32"), np.zeros(32, "int32")
    fit: Any = model.fit if stock else lambda *a, **k: flatout.fit(model, *a, **k)
    fit(x, y, batch_size=8, verbose=0)
    count = _compilations(monkeypatch, backend)
    once = fit(x, y, batch_size=8, verbose=0, epochs=1, callbacks=[_Updates(table)])
    of_one_epoch = count[0]
    count[0] = 0
    table.update(_frame(1.0, 0.0, 0.0))
    history = fit(x, y, batch_size=8, verbose=0, epochs=5, callbacks=[_Updates(table)])
    assert once.history["loss"] == [4.0]
    assert history.history["loss"] == [4.0, 8.0, 12.0, 16.0, 20.0]
    if not (stock and backend == "torch"):  # Stock torch compiles nothing.
        assert count[0] <= of_one_epoch
    assert stock or flatout.explain()[-1].accelerated


@pytest.mark.usefixtures("forced")
def test_an_update_within_an_epoch_is_seen_at_the_next_step() -> None:
    table = flatout.Table(_frame(1.0, 0.0, 0.0), key="label")
    model = _ones_model(lambda y_true, y_pred: table.at(y_true).w * ops.mean(y_pred, -1))

    class Now(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            table.update(_frame(batch + 2.0, 0.0, 0.0))

    history = flatout.fit(model, np.ones((32, 4)), np.zeros(32), batch_size=8, verbose=0, callbacks=[Now()])
    assert history.history["loss"] == [pytest.approx(4.0 * (1 + 2 + 3 + 4) / 4)]


@pytest.mark.usefixtures("forced")
def test_an_update_keeps_the_optimizer_state() -> None:
    table = flatout.Table(_frame(1.0, 1.0, 1.0), key="label")
    other = flatout.Table(_frame(1.0, 1.0, 1.0), key="label")
    models = []
    for own, callbacks in ((table, [_Same(table)]), (other, [])):

        def loss(y_true: Any, y_pred: Any, own: Any = own) -> Any:
            return own.at(y_true).w * ops.mean(ops.square(y_pred - 1.0), -1)

        model = _ones_model(loss, optimizer=keras.optimizers.Adam(0.1))
        flatout.fit(model, np.ones((16, 4)), np.zeros(16), batch_size=8, epochs=4, verbose=0, callbacks=callbacks)
        models.append(model)
    for one, two in zip(models[0].optimizer.variables, models[1].optimizer.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-6)
    np.testing.assert_allclose(models[0].get_weights()[0], models[1].get_weights()[0], rtol=1e-6)


class _Same(keras.callbacks.Callback):
    def __init__(self, table: flatout.Table):
        super().__init__()
        self.table = table

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.table.update(_frame(1.0, 1.0, 1.0))


_TABLE = flatout.Table(_frame(1.0, 0.0, 0.0), key="label")


def _helper(labels: Any) -> Any:
    return _TABLE.at(labels).w


class _LossObject(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return _helper(y_true) * ops.mean(y_pred, -1)


class _Holder(keras.losses.Loss):
    def __init__(self, table: flatout.Table):
        super().__init__()
        self.table = table

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.table.at(y_true).w * ops.mean(y_pred, -1)


class _Mean(keras.metrics.Mean):
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        super().update_state(_helper(y_true) * ops.mean(y_pred, -1))


def _compute_loss_model(lists_its_metrics: bool) -> keras.Model:
    class Own(keras.Model):
        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            loss = ops.mean(_helper(y) * ops.mean(y_pred, -1))
            if lists_its_metrics:
                self.tracker.update_state(loss)
            return loss

    if lists_its_metrics:
        Own.metrics = property(lambda self: [self.tracker])
    inputs = keras.Input((4,))
    model = Own(inputs, keras.layers.Dense(3, kernel_initializer="ones")(inputs))
    if lists_its_metrics:
        model.tracker = keras.metrics.Mean(name="tracked")
    model.compile(keras.optimizers.SGD(0.0))
    return model


_USES: dict[str, Any] = {
    "helper function": lambda: (_ones_model(lambda t, p: _helper(t) * ops.mean(p, -1)), "loss"),
    "Loss subclass": lambda: (_ones_model(_LossObject()), "loss"),
    "Loss attribute": lambda: (_ones_model(_Holder(_TABLE)), "loss"),
    "metric function": lambda: (_ones_model("mse", metrics=[lambda t, p: _helper(t) * ops.mean(p, -1)]), None),
    "metric class": lambda: (_ones_model("mse", metrics=[_Mean(name="joined")]), "joined"),
    "compute_loss": lambda: (_compute_loss_model(False), "loss"),
    "compute_loss with metrics of its own": lambda: (_compute_loss_model(True), "tracked"),
}


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("stock", [False, True], ids=["flatout", "stock"])
@pytest.mark.parametrize("use", _USES)
def test_wherever_a_table_is_used_updates_are_seen(use: str, stock: bool) -> None:
    _TABLE.update(_frame(1.0, 0.0, 0.0))
    model, name = _USES[use]()
    fit: Any = model.fit if stock else lambda *a, **k: flatout.fit(model, *a, **k)
    y = np.zeros((8, 3)) if name is None or name == "joined" else np.zeros(8)
    if y.ndim == 2:
        y = np.zeros((8, 1))
    history = fit(np.ones((8, 4)), y, batch_size=8, epochs=3, verbose=0, callbacks=[_Updates(_TABLE)]).history
    logs = history[name] if name else next(values for key, values in history.items() if key != "loss")
    assert logs == pytest.approx([4.0, 8.0, 12.0])
    assert "flatout_tables" not in history


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("stock", [False, True], ids=["flatout", "stock"])
def test_a_step_writes_the_loss_of_each_sample_and_reads_it_in_the_next_epoch(stock: bool) -> None:
    """Case X7 of the corpus: each sample is weighed by its own loss in the epoch before."""
    rows, rng = 20, np.random.default_rng(0)
    ids, y = rng.permutation(rows) + 100, rng.normal(size=(rows, 1)).astype("float32")
    last = flatout.Table({"id": np.sort(ids), "loss": np.zeros(rows)}, key="id", mutable=["loss"])

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        error = ops.square(y_true - y_pred)[:, 0]
        weighed = error * (1.0 + last.at(x["id"]).loss)
        last.set(x["id"], loss=error)
        return weighed

    features = keras.Input((2,), name="features")
    model = keras.Model({"features": features}, keras.layers.Dense(1, kernel_initializer="zeros")(features))
    model.compile(keras.optimizers.SGD(0.0), loss)
    x = {"features": np.ones((rows, 2)), "id": ids}
    fit: Any = model.fit if stock else lambda *a, **k: flatout.fit(model, *a, **k)
    history = fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y)).history
    error = np.square(y[:, 0].astype("float64"))
    assert history["loss"] == pytest.approx([error.mean(), (error * (1 + error)).mean()], rel=1e-5)
    assert history["val_loss"] == pytest.approx([(error * (1 + error)).mean()] * 2, rel=1e-5)
    now = last.to_dict()
    np.testing.assert_allclose(now["loss"], error[np.argsort(ids)], rtol=1e-5)
    np.testing.assert_array_equal(now["id"], np.sort(ids))
    assert stock or flatout.explain()[-1].accelerated


@pytest.mark.usefixtures("forced")
def test_evaluate_writes_nothing() -> None:
    table = flatout.Table(_frame(0.0, 0.0, 0.0), key="label", mutable=True)

    def loss(y_true: Any, y_pred: Any) -> Any:
        table.set(y_true, w=ops.ones_like(y_true))
        return ops.mean(y_pred, -1)

    model = _ones_model(loss)
    flatout.evaluate(model, np.ones((8, 4)), np.zeros(8), verbose=0)
    model.evaluate(np.ones((8, 4)), np.zeros(8), verbose=0)
    assert table.to_dict()["w"].tolist() == [0.0, 0.0, 0.0]
    flatout.fit(model, np.ones((8, 4)), np.zeros(8), verbose=0)
    assert table.to_dict()["w"].tolist() == [1.0, 0.0, 0.0]


def test_set_passes_missing_keys_over_and_refuses_what_is_not_mutable() -> None:
    frame = {"k": [1, 2, 3], "w": [1.0, 2.0, 3.0], "v": [0.0, 0.0, 0.0]}
    table = flatout.Table(frame, key="k", missing={"w": -1.0, "v": -1.0}, mutable=["w"])
    table.set(np.array([3, 7, 1]), w=np.array([30.0, 70.0, 10.0]))
    assert table.to_dict()["w"].tolist() == [10.0, 2.0, 30.0]
    assert ops.convert_to_numpy(table.at(np.array([7])).w).tolist() == [-1.0]
    with pytest.raises(flatout.TableError, match=r"'v' of table.*cannot be set. Expected one of \['w'\]"):
        table.set(np.array([1]), v=np.array([1.0]))
    with pytest.raises(flatout.TableError, match=r"shape of the keys. Received: \(1, 1\) for keys of shape \(1,\)"):
        table.set(np.array([1]), w=np.array([[1.0]]))


def _mutable_model() -> tuple[keras.Model, flatout.Table]:
    table = flatout.Table({**_frame(0.0, 0.0, 0.0), "fixed": np.ones(3)}, key="label", mutable=["w"])

    def loss(y_true: Any, y_pred: Any) -> Any:
        return table.at(y_true).w * table.at(y_true).fixed * ops.mean(y_pred, -1)

    return _ones_model(loss), table


def test_mutable_columns_are_saved_with_the_weights(tmp_path: Path) -> None:
    model, table = _mutable_model()
    table.set(np.array([0, 2]), w=np.array([5.0, 7.0]))
    model.save_weights(tmp_path / "run.weights.h5")
    fresh, empty = _mutable_model()
    empty.update({**_frame(0.0, 0.0, 0.0), "fixed": np.full(3, 2.0)})
    fresh.load_weights(tmp_path / "run.weights.h5")
    assert empty.to_dict()["w"].tolist() == [5.0, 0.0, 7.0]
    assert empty.to_dict()["fixed"].tolist() == [2.0, 2.0, 2.0]
    assert len(fresh.get_weights()) == 2


def test_a_whole_model_is_saved_and_loaded_with_its_mutable_columns(tmp_path: Path) -> None:
    model, table = _mutable_model()
    table.set(np.array([1]), w=np.array([3.0]))
    x = np.ones((4, 4), "float32")
    expected = model.evaluate(x, np.ones(4), verbose=0)
    model.save(tmp_path / "run.keras")
    table.set(np.array([1]), w=np.array([0.0]))
    loaded = keras.models.load_model(tmp_path / "run.keras", custom_objects={"<lambda>": None, "loss": model.loss})
    assert loaded.evaluate(x, np.ones(4), verbose=0) == pytest.approx(expected)
    assert table.to_dict()["w"].tolist() == [0.0, 3.0, 0.0]


def test_weights_of_a_table_with_other_keys_are_refused(tmp_path: Path) -> None:
    model, _ = _mutable_model()
    model.save_weights(tmp_path / "run.weights.h5")
    other = flatout.Table({"label": [5, 6, 7], "w": [1.0, 2.0, 3.0]}, key="label", mutable=True)
    fresh = _ones_model(lambda y_true, y_pred: other.at(y_true).w * ops.mean(y_pred, -1))
    with pytest.raises(ValueError, match="other keys"):
        fresh.load_weights(tmp_path / "run.weights.h5")


def test_tables_leave_weights_and_metric_names_alone() -> None:
    model, _ = _mutable_model()
    history = model.fit(np.ones((8, 4)), np.zeros(8), verbose=0)
    assert list(history.history) == ["loss"]
    assert len(model.weights) == 2
    assert model.evaluate(np.ones((8, 4)), np.zeros(8), verbose=0) == pytest.approx(0.0)


@pytest.mark.backend("jax")
def test_a_table_in_a_layer_is_refused_where_it_would_be_frozen() -> None:
    table = flatout.Table(_frame(1.0, 2.0, 3.0), key="label")

    class Weighs(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs * table.at(ops.zeros((), "int32")).w

    inputs = keras.Input((2,))
    model = keras.Model(inputs, Weighs()(inputs))
    model.compile("sgd", "mse", run_eagerly=False)
    with pytest.raises(flatout.TableError, match=r"no part of the model's state.*table\.attach"):
        model.evaluate(np.ones((4, 2)), np.ones((4, 2)), verbose=0)


def test_one_table_serves_two_models() -> None:
    table = flatout.Table(_frame(2.0, 0.0, 0.0), key="label")
    for _ in range(2):
        model = _ones_model(lambda y_true, y_pred: table.at(y_true).w * ops.mean(y_pred, -1))
        assert model.fit(np.ones((8, 4)), np.zeros(8), verbose=0).history["loss"] == pytest.approx([8.0])
    table.update(_frame(3.0, 0.0, 0.0))
    assert model.evaluate(np.ones((8, 4)), np.zeros(8), verbose=0) == pytest.approx(12.0)


@pytest.mark.usefixtures("forced")
@pytest.mark.backend("torch")
def test_joins_writes_and_groups_are_captured_on_torch() -> None:
    dense = flatout.Table(_frame(1.0, 2.0, 3.0), key="label", mutable=True)
    ranges = flatout.Table({"from": [0, 1, 2], "w": [1.0, 2.0, 3.0]}, key="from", intervals="left")
    sparse = flatout.Table({"k": [0, 1, 2**20], "w": [1.0, 2.0, 3.0]}, key="k", join="searchsorted")

    def loss(y_true: Any, y_pred: Any) -> Any:
        mean = ops.mean(y_pred, -1)
        weight = dense.at(y_true).w + ranges.at(y_true).w + sparse.at(y_true).w
        dense.set(y_true, w=mean)
        return weight * mean + ops.sum(flatout.group_mean(mean, y_true, 3))

    flatout.fit(_ones_model(loss), np.ones((32, 4)), np.arange(32) % 2, batch_size=8, epochs=2, verbose=0)
    assert flatout.explain()[-1].reasons == ()


def test_keys_in_x_are_checked_where_there_is_no_y() -> None:
    """Keras' adapter then holds x itself in the place of `(x, y, sample_weight)`."""
    table = flatout.Table({"id": [0, 1, 2], "w": [1.0, 2.0, 3.0]}, key="id")

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x["a"])

        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            return ops.mean(table.at(x["id"]).w * y_pred[:, 0])

    model = Own()
    model.compile("sgd")
    features, ids = np.ones((6, 2), "float32"), np.array([0, 1, 2, 0, 1, 2], "int32")
    model.fit({"a": features, "id": ids}, verbose=0)
    with pytest.raises(flatout.TableError, match="not in"):
        model.fit({"a": features, "id": ids + 1}, verbose=0)
