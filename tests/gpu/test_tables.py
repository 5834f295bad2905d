"""Tables on a GPU: joins in the compiled step, updates without a retrace, writes from it. Skipped without a GPU."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import flatout

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
ROWS, BATCH = 1003, 32


def _data() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    ids = 2**24 + rng.permutation(ROWS)
    x = {"features": rng.normal(size=(ROWS, 12)).astype("float32"), "a_sample": ids}
    y, weights = rng.normal(size=(ROWS, 1)).astype("float32"), rng.uniform(0.5, 2.0, ROWS).astype("float32")
    return x, y, weights, {"sample": ids, "w": weights}


def _model(loss: Any, rate: float = 0.05) -> keras.Model:
    keras.utils.set_random_seed(7)
    features = keras.Input((12,), name="features")
    hidden = keras.layers.Dense(16, activation="tanh")(features)
    model = keras.Model({"features": features}, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.SGD(rate), loss)
    return model


@pytest.mark.parametrize("data", ["resident", "streamed"])
def test_a_per_sample_table_weighs_as_sample_weight_does(data: str) -> None:
    x, y, weights, frame = _data()
    table = flatout.Table(frame, key="sample")

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["a_sample"]).w[:, None] * ops.square(y_true - y_pred)

    plain = {"features": x["features"]}
    expected = _model("mse").fit(plain, y, sample_weight=weights, epochs=2, batch_size=BATCH, verbose=0)
    with flatout.options(force=True, strict=True):
        history = flatout.fit(_model(loss), x, y, epochs=2, batch_size=BATCH, verbose=0, data=data)
    np.testing.assert_allclose(history.history["loss"], expected.history["loss"], rtol=1e-3)


def test_an_update_reaches_the_captured_step() -> None:
    x, y, _, frame = _data()
    table = flatout.Table(frame, key="sample")

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        return table.at(x["a_sample"]).w[:, None] * (0.0 * y_pred + 1.0)

    class Update(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            table.update({"sample": frame["sample"], "w": np.full(ROWS, epoch + 2.0)})

    table.update({"sample": frame["sample"], "w": np.ones(ROWS)})
    with flatout.options(force=True, strict=True):
        history = flatout.fit(_model(loss), x, y, epochs=3, batch_size=BATCH, verbose=0, callbacks=[Update()])
    assert history.history["loss"] == pytest.approx([1.0, 2.0, 3.0], rel=1e-5)


def test_a_step_writes_to_a_mutable_column() -> None:
    x, y, _, frame = _data()
    table = flatout.Table({"sample": frame["sample"], "last": np.zeros(ROWS)}, key="sample", mutable=True)

    @flatout.loss
    def loss(y_true: Any, y_pred: Any, x: Any) -> Any:
        error = ops.square(y_true - y_pred)[:, 0]
        table.set(x["a_sample"], last=error)
        return error

    model = _model(loss, rate=0.0)
    with flatout.options(force=True, strict=True):
        flatout.fit(model, x, y, batch_size=BATCH, verbose=0)
    predicted = model.predict({"features": x["features"]}, verbose=0)
    np.testing.assert_allclose(table.to_dict()["last"], np.square(y - predicted)[:, 0], rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("keys", [[-5, 0, 3, 10**6], [-1, 1, 2, 2**31 - 1]])
def test_keys_out_of_range_read_the_default(keys: list[int]) -> None:
    """On a GPU an out-of-range gather is 0 on tensorflow, NaN on jax and an assertion in a kernel on torch."""
    frame = {"k": [0, 1, 2, 3], "w": [1.0, 2.0, 3.0, 4.0]}
    for join in ("dense", "searchsorted", "codes"):
        table = flatout.Table(frame, key="k", missing={"w": -7.0}, join=join)
        got = ops.convert_to_numpy(table.at(ops.convert_to_tensor(np.array(keys, "int32"))).w)
        assert got.tolist() == [{0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}.get(key, -7.0) for key in keys]


def test_explain_measures_on_the_gpu() -> None:
    report = flatout.Table({"k": np.arange(1_000_000), "w": np.ones(1_000_000)}, key="k").explain(batch_size=4096)
    assert report.microseconds > 0
    assert report.device.lower() != "cpu"
