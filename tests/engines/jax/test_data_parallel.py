"""`workers=`: a fit whose batches several devices share comes out as on one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keras import layers

import flatout

pytestmark = [pytest.mark.backend("jax"), pytest.mark.usefixtures("forced")]

ROWS, BATCH = 134, 32
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 6)).astype("float32")
Y = (X @ RANDOM.normal(size=6) > 0).astype("int32")
WEIGHTS = RANDOM.uniform(0.5, 2.0, ROWS).astype("float32")


def network() -> Any:
    """With all that a part of a batch must not decide alone: normalization, noise, penalties, a mean by weights."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            layers.Input((6,)),
            layers.Dense(16, "relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(2, activity_regularizer="l2"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    return model


def trained(workers: int, **arguments: Any) -> Any:
    model = network()
    arguments = {"x": X, "y": Y, "sample_weight": WEIGHTS, "batch_size": BATCH} | arguments
    flatout.fit(model, epochs=3, verbose=0, workers=workers, **arguments)
    report = flatout.explain()[-1]
    assert report.accelerated
    assert ("divided" in [why.code for why in report.reasons]) == (workers > 1)
    return model


def assert_same(one: Any, other: Any) -> None:
    for name, values in one.history.history.items():
        np.testing.assert_allclose(other.history.history[name], values, rtol=0, atol=1e-5)
    for ours, expected in zip(other.variables, one.variables, strict=True):
        np.testing.assert_allclose(np.asarray(ours.value), np.asarray(expected.value), rtol=0, atol=1e-5)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return -(-ROWS // BATCH)

    def __getitem__(self, number: int) -> Any:
        rows = slice(number * BATCH, (number + 1) * BATCH)
        return X[rows], Y[rows], WEIGHTS[rows]


@pytest.mark.parametrize("workers", [2, 4])
def test_arrays_whose_last_batch_is_smaller(workers: int) -> None:
    held_out = X[:50], Y[:50]
    assert_same(trained(1, validation_data=held_out), trained(workers, validation_data=held_out))


@pytest.mark.parametrize("workers", [2, 4])
def test_a_pydataset(workers: int) -> None:
    arguments = {"x": Batches(), "y": None, "sample_weight": None, "batch_size": None}
    assert_same(trained(1, **arguments), trained(workers, **arguments))


@pytest.mark.parametrize("placement", ["resident", "streamed"])
def test_files(placement: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    arguments = {"x": str(tmp_path / "x.npy"), "data": placement}
    assert_same(trained(1, **arguments), trained(4, **arguments))


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(1, 40), batch=st.integers(1, 20), workers=st.integers(2, 4))
def test_any_numbers_of_rows_batches_and_devices(rows: int, batch: int, workers: int) -> None:
    models = []
    for count in (1, workers):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([layers.Input((6,)), layers.Dense(2), layers.BatchNormalization()])
        model.compile("sgd", "mse")
        flatout.fit(model, X[:rows], X[:rows, :2], batch_size=batch, epochs=2, verbose=0, workers=count)
        models.append(model)
    assert_same(*models)


def test_evaluate_and_predict() -> None:
    model = trained(1)
    expected = model.evaluate(X, Y, batch_size=BATCH, verbose=0), model.predict(X, batch_size=BATCH, verbose=0)
    with flatout.options(workers="auto"):
        np.testing.assert_allclose(flatout.evaluate(model, X, Y, batch_size=BATCH, verbose=0), expected[0], atol=1e-5)
        np.testing.assert_allclose(flatout.predict(model, X, batch_size=BATCH, verbose=0), expected[1], atol=1e-5)
    assert all("divided" in [why.code for why in report.reasons] for report in flatout.explain()[-2:])


def test_callbacks_see_the_weights_of_every_step_and_can_stop_there() -> None:
    class Look(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.seen.append(self.model.layers[0].get_weights()[0])
            if len(self.seen) == 7:
                self.model.stop_training = True

    looks = Look(), Look()
    for look, workers in zip(looks, (1, 4), strict=True):
        flatout.fit(network(), X, Y, batch_size=BATCH, epochs=3, verbose=0, workers=workers, callbacks=[look])
    assert len(looks[0].seen) == len(looks[1].seen)
    np.testing.assert_allclose(looks[1].seen, looks[0].seen, rtol=0, atol=1e-5)


def test_afterwards_the_model_is_one_of_one_device(tmp_path: Path) -> None:
    model = trained(4)
    assert {len(variable.value.sharding.device_set) for variable in model.variables} == {1}
    one = trained(1)
    for going_on in (one, model):
        keras.utils.set_random_seed(9)
        flatout.fit(going_on, X, Y, batch_size=BATCH, verbose=0, engine="stock")
    assert_same(one, model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(X, verbose=0), model.predict(X, verbose=0), atol=1e-6)


def test_who_asks_for_several_devices_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLATOUT_FORCE")
    assert [why.code for why in flatout.plan(network(), X, Y).reasons] == ["small"]
    flatout.fit(network(), X, Y, batch_size=BATCH, verbose=0, workers=2)
    assert flatout.explain()[-1].accelerated


def test_other_devices_have_programs_of_their_own() -> None:
    devices = keras.distribution.list_devices()
    for chosen in (devices[:2], devices[2:]):
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=chosen, auto_shard_dataset=False))
        try:
            flatout.fit(network(), X[:64], Y[:64], batch_size=BATCH, verbose=0)
        finally:
            keras.distribution.set_distribution(None)
        assert flatout.explain()[-1].accelerated


def test_an_error_in_a_step_is_the_users_own() -> None:
    # Not that what the failed step had used up is gone.
    with jax.debug_nans(True), pytest.raises(Exception, match="nan"):
        flatout.fit(network(), np.full_like(X, np.nan), Y, batch_size=BATCH, verbose=0, workers=2)


def test_a_step_that_prints_is_left_to_stock_keras() -> None:
    class Prints(layers.Layer):
        def call(self, x: Any) -> Any:
            jax.debug.print("mean {}", x.mean(), ordered=True)
            return x

    model = keras.Sequential([layers.Input((6,)), Prints(), layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    flatout.fit(model, X, Y, batch_size=BATCH, verbose=0, workers=2)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["untraceable"]


def test_many_models_under_a_distribution_go_by_themselves(distribution: Any) -> None:
    many = flatout.fit_many(lambda: network(), [{"seed": 1}, {"seed": 2}], X[:64], Y[:64], batch_size=BATCH, verbose=0)
    assert len(many.histories) == 2
    assert all(len(history["loss"]) == 1 for history in many.histories)


def test_wishes_that_cannot_be_granted() -> None:
    with pytest.raises(flatout.InvalidOption, match=r"Received: workers=6400. .* on this machine"):
        flatout.fit(network(), X, Y, workers=6400)
    for wrong in (0, -1, 1.5, "many"):
        with pytest.raises(flatout.InvalidOption, match=r"Received: workers="):
            flatout.fit(network(), X, Y, workers=wrong)
    assert not flatout.plan(network(), X, Y, engine="native", workers=2).facts.native
    # What children are told must be source code.
    with flatout.options(workers=np.int64(2)) as chosen:
        assert repr(chosen.workers) == "2"


def test_a_script_with_no_code_changed(tmp_path: Path) -> None:
    training = (
        "import keras, numpy as np\n"
        "keras.utils.set_random_seed(1)\n"
        "model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((80, 3)), np.ones((80, 2)), epochs=2, verbose=0)\n"
    )
    script = tmp_path / "train.py"
    script.write_text(f"{training}import sys\nprint(sys.argv[1:], model.get_weights()[0].sum())\n")
    command = ["-m", "flatout", "--explain", "--workers", "4", str(script), "--workers", "of its own"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    expected: dict[str, Any] = {}
    exec(training, expected)
    assert done.stdout == f"['--workers', 'of its own'] {expected['model'].get_weights()[0].sum()!s}\n"
    assert "divided among 4 devices" in done.stderr


@pytest.fixture
def distribution() -> Any:
    made = keras.distribution.DataParallel(devices=keras.distribution.list_devices()[:2], auto_shard_dataset=False)
    keras.distribution.set_distribution(made)
    yield made
    keras.distribution.set_distribution(None)


@pytest.mark.usefixtures("distribution")
def test_a_distribution_of_the_users_own_is_followed() -> None:
    models = []
    for engine in ("stock", "auto"):
        model = network()
        flatout.fit(model, X[:128], Y[:128], batch_size=BATCH, epochs=3, verbose=0, engine=engine)
        assert flatout.explain()[-1].accelerated == (engine == "auto")
        assert {len(variable.value.sharding.device_set) for variable in model.variables} == {2}
        models.append(model)
    assert_same(*models)
    ours, expected = (model.get_weights() for model in models)
    assert all(map(np.array_equal, ours, expected))


@pytest.mark.usefixtures("distribution")
def test_what_stock_keras_refuses_to_divide_is_left_to_it() -> None:
    model = network()
    assert [why.code for why in flatout.plan(model, X[:127], Y[:127], batch_size=BATCH).reasons] == ["indivisible"]
    with pytest.raises(Exception, match="evenly divide"):
        flatout.fit(model, X[:127], Y[:127], batch_size=BATCH, verbose=0)
    assert [why.code for why in flatout.plan(model, Batches()).reasons] == ["distribution"]
