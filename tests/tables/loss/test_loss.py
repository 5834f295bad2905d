"""Per-sample tables: keys that travel in x, through every data source, shuffled with the rows, kept from the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from keras import ops

import flatout

pytestmark = pytest.mark.turns

ROWS, BATCH = 52, 8  # The last batch is a partial one.


def _data() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, pd.DataFrame]:
    rng = np.random.default_rng(3)
    # Neighbours above 2**24 are one number as float32.
    ids = 2**24 + rng.permutation(ROWS)
    x = {"features": rng.normal(size=(ROWS, 3)).astype("float32"), "a_sample": ids}
    y = rng.normal(size=(ROWS, 1)).astype("float32")
    frame = pd.DataFrame({"sample": ids, "w": rng.uniform(0.5, 2.0, ROWS)}).sample(frac=1.0, random_state=1)
    weights = frame.set_index("sample").w.loc[ids].to_numpy("float32")
    return x, y, weights, frame


def _model(loss: Any, rate: float = 0.05) -> keras.Model:
    keras.utils.set_random_seed(7)
    features = keras.Input((3,), name="features")
    model = keras.Model({"features": features}, keras.layers.Dense(1)(features))
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["mae"])
    return model


def _loss(table: flatout.Table) -> Any:
    @flatout.loss
    def weighted(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["a_sample"]).w[:, None] * ops.square(y_true - y_pred)

    return weighted


class _Batches(keras.utils.PyDataset):
    def __init__(self, x: Any, y: Any):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self) -> int:
        return -(-ROWS // BATCH)

    def __getitem__(self, number: int) -> Any:
        part = slice(number * BATCH, (number + 1) * BATCH)
        return {name: array[part] for name, array in self.x.items()}, self.y[part]


def _generator(x: Any, y: Any) -> Iterator[Any]:
    batches = _Batches(x, y)
    while True:
        for number in range(len(batches)):
            yield batches[number]


def _tf_data(x: Any, y: Any) -> Any:
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def _loader(x: Any, y: Any) -> Any:
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, row: int) -> Any:
            return {name: array[row] for name, array in x.items()}, y[row]

    return torch.utils.data.DataLoader(Rows(), batch_size=BATCH)


_SOURCES: dict[str, Callable[[Any, Any], Any]] = {
    "PyDataset": _Batches,
    "generator": _generator,
    "tf.data": _tf_data,
    "DataLoader": _loader,
}


def _weights_of(model: keras.Model) -> np.ndarray:
    return np.concatenate([weight.reshape(-1) for weight in model.get_weights()])


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("stock", [False, True], ids=["flatout", "stock engine"])
def test_a_table_weighs_as_sample_weight_does_with_shuffled_arrays(stock: bool) -> None:
    x, y, weights, frame = _data()
    expected = _model("mse")
    before = expected.fit({"features": x["features"]}, y, sample_weight=weights, epochs=3, batch_size=BATCH, verbose=0)
    model = _model(_loss(flatout.Table(frame, key="sample")))
    history = flatout.fit(model, x, y, epochs=3, batch_size=BATCH, verbose=0, engine="stock" if stock else "auto")
    np.testing.assert_allclose(history.history["loss"], before.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(history.history["mae"], before.history["mae"], rtol=1e-5)
    np.testing.assert_allclose(_weights_of(model), _weights_of(expected), rtol=1e-4, atol=1e-6)
    assert flatout.explain()[-1].accelerated is not stock


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("name", _SOURCES)
def test_every_source_carries_keys(name: str) -> None:
    x, y, weights, frame = _data()
    expected = _model("mse")
    stock = expected.fit(
        {"features": x["features"]}, y, sample_weight=weights, epochs=2, batch_size=BATCH, verbose=0, shuffle=False
    )
    model = _model(_loss(flatout.Table(frame, key="sample")))
    steps = {"steps_per_epoch": -(-ROWS // BATCH)} if name == "generator" else {}
    # PyDataset shuffles its batches by default.
    order = {"shuffle": False} if name == "PyDataset" else {}
    history = flatout.fit(model, _SOURCES[name](x, y), epochs=2, verbose=0, **steps, **order)
    assert flatout.explain()[-1].accelerated
    np.testing.assert_allclose(history.history["loss"], stock.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(_weights_of(model), _weights_of(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
def test_evaluate_and_validation_join_too_and_predict_needs_no_keys() -> None:
    x, y, weights, frame = _data()
    model = _model(_loss(flatout.Table(frame, key="sample")), rate=0.0)
    history = flatout.fit(model, x, y, batch_size=BATCH, verbose=0, validation_data=(x, y))
    predicted = flatout.predict(model, {"features": x["features"]}, verbose=0)
    expected = float(np.mean(weights * np.square(y - predicted)[:, 0]))
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)
    assert history.history["val_loss"] == pytest.approx([expected], rel=1e-5)
    assert flatout.evaluate(model, x, y, batch_size=BATCH, verbose=0)[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(flatout.predict(model, x, verbose=0), predicted)
    np.testing.assert_allclose(model.predict(x, verbose=0), predicted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("forced")
def test_validation_split_keeps_keys_with_their_rows() -> None:
    x, y, weights, frame = _data()
    model = _model(_loss(flatout.Table(frame, key="sample")), rate=0.0)
    history = flatout.fit(model, x, y, batch_size=BATCH, verbose=0, validation_split=0.25)
    error = weights * np.square(y - model.predict(x, verbose=0))[:, 0]
    assert history.history["loss"] == pytest.approx([error[:39].mean()], rel=1e-5)
    assert history.history["val_loss"] == pytest.approx([error[39:].mean()], rel=1e-5)


def test_stock_fit_with_a_declared_key() -> None:
    x, y, weights, frame = _data()
    expected = _model("mse")
    before = expected.fit({"features": x["features"]}, y, sample_weight=weights, epochs=2, batch_size=BATCH, verbose=0)
    keras.utils.set_random_seed(7)
    features, sample = keras.Input((3,), name="features"), keras.Input((), dtype="int32", name="a_sample")
    model = keras.Model({"features": features, "a_sample": sample}, keras.layers.Dense(1)(features))
    model.compile(keras.optimizers.SGD(0.05), _loss(flatout.Table(frame, key="sample")))
    history = model.fit(x, y, epochs=2, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(history.history["loss"], before.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(_weights_of(model), _weights_of(expected), rtol=1e-4, atol=1e-6)


def test_stock_fit_keeps_an_undeclared_key_from_the_model() -> None:
    """Keras alone would feed the model the key: `a_sample` sorts before `features`, and the shapes agree."""
    rng = np.random.default_rng(0)
    x = {"features": rng.normal(size=(16, 1)).astype("float32"), "a_sample": np.arange(16)[:, None]}
    table = flatout.Table({"sample": np.arange(16), "w": np.linspace(1, 2, 16)}, key="sample")

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["a_sample"]).w * ops.square(y_true - y_pred)

    features = keras.Input((1,), name="features")
    model = keras.Model({"features": features}, keras.layers.Dense(1, kernel_initializer="ones")(features))
    model.compile(keras.optimizers.SGD(0.0), loss)
    history = model.fit(x, np.zeros((16, 1)), batch_size=16, verbose=0)
    expected = np.mean(np.linspace(1, 2, 16)[:, None] * x["features"] ** 2)
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("kind", ["tuple", "declared key", "named input"])
def test_a_sequential_model_gets_its_one_input(kind: str) -> None:
    x, y, weights, frame = _data()
    table = flatout.Table(frame, key="sample")
    keras.utils.set_random_seed(7)
    entry: Any = 1 if kind == "tuple" else "a_sample"
    keys = ["a_sample"] if kind == "declared key" else []
    model = keras.Sequential(
        [keras.Input((3,), name="features" if kind == "named input" else "z"), keras.layers.Dense(1)]
    )

    @flatout.loss(keys=keys)
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x[entry]).w[:, None] * ops.square(y_true - y_pred)

    model.compile(keras.optimizers.SGD(0.0), loss)
    inputs: Any = (x["features"], x["a_sample"]) if kind == "tuple" else x
    history = flatout.fit(model, inputs, y, batch_size=BATCH, verbose=0)
    expected = np.mean(weights * np.square(y - model.predict(x["features"], verbose=0))[:, 0])
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)


def test_entries_that_nobody_declares_are_refused() -> None:
    model = keras.Sequential([keras.Input((3,), name="z"), keras.layers.Dense(1)])

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return ops.square(y_true - y_pred) * x["b"][:, None]

    model.compile("sgd", loss)
    with pytest.raises(flatout.TableError, match=r"entries \['a', 'b'\].*@flatout.loss\(keys="):
        flatout.fit(model, {"a": np.ones((8, 3)), "b": np.ones(8)}, np.ones((8, 1)), verbose=0)


@pytest.mark.usefixtures("forced")
def test_a_model_without_such_a_loss_sees_x_as_before() -> None:
    seen: list[Any] = []

    class Spy(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            seen.append(sorted(inputs))
            return self.dense(inputs["features"])

    model = Spy()
    model.compile("sgd", "mse")
    x, y, _, _ = _data()
    model.fit(x, y, verbose=0, batch_size=BATCH)
    assert all(names == ["a_sample", "features"] for names in seen)
    model.compile("sgd", flatout.loss(keys=["a_sample"])(lambda y_true, y_pred, x: ops.square(y_true - y_pred)))
    model(x)
    assert seen[-1] == ["features"]


@pytest.mark.usefixtures("forced")
def test_text_keys_travel_as_codes() -> None:
    x, y, weights, frame = _data()
    names = np.array([f"sample {number}" for number in x["a_sample"]])
    table = flatout.Table(frame.assign(sample=[f"sample {number}" for number in frame["sample"]]), key="sample")
    model = _model(_loss(table), rate=0.0)
    coded = {"features": x["features"], "a_sample": table.codes(names)}
    history = flatout.fit(model, coded, y, batch_size=BATCH, verbose=0)
    expected = np.mean(weights * np.square(y - model.predict(coded, verbose=0))[:, 0])
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)


@pytest.mark.usefixtures("forced")
def test_ids_of_64_bits_travel_as_codes_and_are_refused_as_they_are() -> None:
    x, y, weights, frame = _data()
    large = x["a_sample"] + 2**40
    table = flatout.Table(frame.assign(sample=frame["sample"] + 2**40), key="sample")
    assert table.join == "codes"
    model = _model(_loss(table), rate=0.0)
    coded = {"features": x["features"], "a_sample": table.codes(large)}
    history = flatout.fit(model, coded, y, batch_size=BATCH, verbose=0)
    expected = np.mean(weights * np.square(y - model.predict(coded, verbose=0))[:, 0])
    assert history.history["loss"] == pytest.approx([expected], rel=1e-5)
    again = _model(_loss(table))
    with pytest.raises(flatout.TableError, match=r"table\.codes"):
        flatout.fit(again, {"features": x["features"], "a_sample": large}, y, batch_size=BATCH, verbose=0)


@pytest.mark.usefixtures("forced")
def test_a_missing_key_in_x_is_refused_before_step_0() -> None:
    x, y, _, frame = _data()
    model = _model(_loss(flatout.Table(frame.iloc[1:], key="sample")))
    before = _weights_of(model)
    with pytest.raises(flatout.TableError, match=f"1 of {ROWS} keys are not in table.*{frame['sample'].iloc[0]}"):
        flatout.fit(model, x, y, batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(_weights_of(model), before)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("stock", [False, True], ids=["flatout", "stock"])
def test_a_missing_key_of_a_generator_is_refused_at_the_end_of_the_epoch(stock: bool) -> None:
    x, y, _, frame = _data()
    model = _model(_loss(flatout.Table(frame.iloc[1:], key="sample")))
    fit: Any = model.fit if stock else lambda *a, **k: flatout.fit(model, *a, **k)
    with pytest.raises(flatout.TableError, match="1 keys were looked up that are not in table"):
        fit(_generator(x, y), steps_per_epoch=-(-ROWS // BATCH), verbose=0)


@pytest.mark.usefixtures("forced")
def test_an_overridden_compute_loss_sees_x() -> None:
    x, y, weights, frame = _data()
    table = flatout.Table(frame, key="sample")

    class Own(keras.Model):
        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
        ) -> Any:
            return ops.mean(table.at(x["a_sample"]).w[:, None] * ops.square(y - y_pred))

    # Keras takes a batch to build a compiled loss, and draws an order for it.
    order = {"shuffle": False}
    expected = _model("mse")
    before = expected.fit(
        {"features": x["features"]}, y, sample_weight=weights, epochs=2, batch_size=BATCH, verbose=0, **order
    )
    keras.utils.set_random_seed(7)
    features = keras.Input((3,), name="features")
    model = Own({"features": features}, keras.layers.Dense(1)(features))
    model.compile(keras.optimizers.SGD(0.05))
    history = flatout.fit(model, x, y, epochs=2, batch_size=BATCH, verbose=0, **order)
    np.testing.assert_allclose(history.history["loss"], before.history["loss"], rtol=1e-5)
    np.testing.assert_allclose(_weights_of(model), _weights_of(expected), rtol=1e-4, atol=1e-6)


def test_a_column_against_predictions_with_an_axis_more_is_refused() -> None:
    x, y, _, frame = _data()
    table = flatout.Table(frame, key="sample")

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["a_sample"]).w * ops.square(y_true - y_pred)

    with pytest.raises(flatout.TableError, match=r"a \(B,\) array.*met a \(B, 1\) one"):
        flatout.fit(_model(loss), x, y, batch_size=BATCH, verbose=0)
