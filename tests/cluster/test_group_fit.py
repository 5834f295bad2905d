"""A fit by several processes of this machine comes out as one by this process: weights, History, callbacks, seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import group_cases as cases
import keras
import numpy as np
import pytest
from keras import layers
from scripts import run

import flatout

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forced", "one_device")]


def trained(model: Any, workers: int, callbacks: list[Any], **arguments: Any) -> Any:
    keras.utils.set_random_seed(7)
    launcher = "local" if workers > 1 else None
    with flatout.options(launcher=launcher):
        flatout.fit(model, verbose=0, workers=workers, callbacks=callbacks, **arguments)
    assert ("group" in [why.code for why in flatout.explain()[-1].reasons]) == (workers > 1)
    return model, callbacks, np.random.rand()


def assert_same(one: Any, other: Any) -> None:
    (model, _, drawn), (their_model, _, their_drawn) = one, other
    assert list(model.history.history) == list(their_model.history.history)
    for name, values in model.history.history.items():
        np.testing.assert_allclose(their_model.history.history[name], values, rtol=0, atol=1e-5, err_msg=name)
    ours, theirs = ([*it.variables, *it.optimizer.variables] for it in (model, their_model))
    for variable, their_variable in zip(ours, theirs, strict=True):
        values = [keras.ops.convert_to_numpy(one.value) for one in (variable, their_variable)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-5, err_msg=variable.path)
    assert drawn == their_drawn


def test_arrays_with_weights_validation_and_weights_restored() -> None:
    def fit(workers: int) -> Any:
        model = cases.network(optimizer=keras.optimizers.SGD(0.003))
        stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
        plateau = keras.callbacks.ReduceLROnPlateau(patience=1)
        return trained(
            model,
            workers,
            [stop, plateau],
            x=cases.X,
            y=cases.Y,
            sample_weight=cases.WEIGHTS,
            batch_size=cases.BATCH,
            epochs=6,
            validation_data=(cases.X[:33], -cases.Y[:33]),
        )

    one, two = fit(1), fit(2)
    assert_same(one, two)
    assert one[1][0].stopped_epoch == two[1][0].stopped_epoch
    assert two[1][0].model is two[0]
    two[0].fit(cases.X, cases.Y, verbose=0)  # It can be used as before.


@pytest.mark.turns
@pytest.mark.cluster
def test_fewer_rows_than_processes_in_the_last_batch() -> None:
    def fit(workers: int) -> Any:
        return trained(cases.network(), workers, [], x=cases.X[:62], y=cases.Y[:62], batch_size=20, epochs=2)

    assert_same(fit(1), fit(4))


@pytest.mark.turns
def test_a_pydataset_with_a_callback_for_each_batch() -> None:
    sources = {workers: cases.Batches() for workers in (1, 2)}

    def fit(workers: int) -> Any:
        return trained(cases.network(), workers, [cases.Schedule(stop_after=7)], x=sources[workers], epochs=4)

    one, two = fit(1), fit(2)
    assert sources[2].epoch == sources[1].epoch > 0
    assert_same(one, two)
    assert one[1][0].seen == two[1][0].seen == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.turns
@pytest.mark.cluster
@pytest.mark.parametrize("sees_x", [False, True])
def test_streamed_rows_of_which_each_process_reads_its_own(sees_x: bool) -> None:
    def fit(workers: int) -> Any:
        model = cases.network() if not sees_x else cases.seeing_x()
        held_out = cases.X[:33], cases.Y[:33]  # Whose last batch cannot be divided.
        return trained(
            model,
            workers,
            [],
            x=cases.X,
            y=cases.Y,
            batch_size=cases.BATCH,
            epochs=2,
            validation_data=held_out,
            data="streamed",
        )

    assert_same(fit(1), fit(2))


@pytest.mark.turns
@pytest.mark.cluster
def test_files_with_checkpoints_by_the_first_process_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", cases.X)
    np.save(tmp_path / "y.npy", cases.Y)

    def fit(workers: int) -> Any:
        kept, log = tmp_path / f"{workers}-{{epoch}}.keras", tmp_path / f"{workers}.csv"
        callbacks = [keras.callbacks.ModelCheckpoint(kept), keras.callbacks.CSVLogger(log)]
        x, y = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
        return trained(cases.network(), workers, callbacks, x=x, y=y, batch_size=cases.BATCH, epochs=2)

    one, two = fit(1), fit(2)
    assert_same(one, two)
    assert len((tmp_path / "2.csv").read_text().splitlines()) == 3
    saved = keras.models.load_model(tmp_path / "2-2.keras", custom_objects={"spread": cases.spread})
    np.testing.assert_array_equal(saved.get_weights()[0], two[0].get_weights()[0])


@pytest.mark.turns
@pytest.mark.cluster
def test_an_unbuilt_model_with_an_embedding_and_a_mask() -> None:
    words = np.random.default_rng(1).integers(0, 20, (cases.ROWS, 7))

    def fit(workers: int) -> Any:
        keras.utils.set_random_seed(5)
        model = cases.Words()
        model.compile("adam", "mse")
        return trained(model, workers, [], x=words, y=np.repeat(cases.Y[:, :, None], 7, 1), batch_size=cases.BATCH)

    assert_same(fit(1), fit(2))


@pytest.mark.turns
@pytest.mark.cluster
def test_normalization_and_noise_are_those_of_each_process(capfd: pytest.CaptureFixture[str]) -> None:
    """On jax those of the whole batch. The processes stay equal: what they would log is compared."""
    model = cases.network(layers.BatchNormalization(), layers.Dropout(0.5))
    with flatout.options(launcher="local"):
        history = flatout.fit(model, cases.X, cases.Y, epochs=2, validation_split=0.2, verbose=2, workers=2)
    assert np.isfinite(history.history["val_loss"]).all()
    assert np.abs(keras.ops.convert_to_numpy(model.layers[1].moving_mean.value)).max() > 0
    # The progress of one process, in the place where that of a fit would be.
    assert capfd.readouterr().out.count("Epoch 1/2") == 1


@pytest.mark.turns
def test_callbacks_ask_the_model_and_swap_its_weights() -> None:
    def fit(workers: int) -> Any:
        rate = keras.optimizers.AdamW(0.01, weight_decay=0.5, use_ema=True, ema_momentum=0.5)
        model = cases.network(optimizer=rate)
        rate.exclude_from_weight_decay(var_list=[model.layers[0].kernel])
        callbacks = [cases.Curious(), keras.callbacks.SwapEMAWeights(), keras.callbacks.TerminateOnNaN()]
        held_out = cases.X[:33], cases.Y[:33]
        return trained(
            model, workers, callbacks, x=cases.X, y=cases.Y, batch_size=cases.BATCH, epochs=2, validation_data=held_out
        )

    one, two = fit(1), fit(2)
    assert_same(one, two)
    np.testing.assert_allclose(one[1][0].found, two[1][0].found, rtol=0, atol=1e-4)


@pytest.mark.turns
@pytest.mark.cluster
@pytest.mark.backend("tensorflow")
def test_outputs_of_any_length_in_each_batch() -> None:
    def fit(workers: int) -> Any:
        keras.utils.set_random_seed(5)
        model = keras.Sequential([layers.Input((None, 2)), layers.Dense(3, "relu"), layers.Dense(1)])
        model.compile("sgd", "mse")
        return trained(model, workers, [], x=cases.Sentences(), epochs=2)

    assert_same(fit(1), fit(2))


@pytest.mark.turns
@pytest.mark.backend("torch", "tensorflow")
def test_gradients_that_another_step_uses_are_refused() -> None:
    class OwnStep(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return super().train_step(data)

    model = OwnStep([layers.Input((6,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    with flatout.options(launcher="local"), pytest.raises(flatout.InvalidOption, match="OwnStep with a train_step"):
        flatout.fit(model, cases.X, cases.Y, verbose=0, workers=2)


@pytest.mark.turns
@pytest.mark.cluster
@pytest.mark.backend("torch", "tensorflow")
def test_a_loss_that_a_layer_adds_is_refused() -> None:
    with flatout.options(launcher="local"), pytest.raises(flatout.GroupFailed, match="add_loss in 'penalized'"):
        flatout.fit(cases.network(cases.Penalized()), cases.X, cases.Y, verbose=0, workers=2)


# A traced step would not see it either: stock Keras on TensorFlow does not.
@pytest.mark.turns
@pytest.mark.cluster
@pytest.mark.backend("torch", "tensorflow")
def test_python_that_a_callback_changes_in_one_process_is_noticed() -> None:
    model = cases.network()
    model.compile("sgd", cases.WeightedLoss(), run_eagerly=True)
    with flatout.options(launcher="local"), pytest.raises(flatout.GroupFailed, match="do not compute the same"):
        flatout.fit(model, cases.X, cases.Y, epochs=3, verbose=0, workers=2, callbacks=[cases.Annealed()])


@pytest.mark.turns
@pytest.mark.backend("jax")
@pytest.mark.parametrize("x", ["generator", "dataset"])
def test_data_that_cannot_be_sent_are_refused_before_anything_starts(x: str) -> None:
    data: Any = ((cases.X, cases.Y) for _ in range(3))
    if x == "dataset":
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices((cases.X, cases.Y)).batch(8)
    with flatout.options(launcher="local"), pytest.raises(flatout.InvalidOption, match="cannot be sent"):
        flatout.fit(cases.network(), data, verbose=0, workers=2)


@pytest.mark.turns
@pytest.mark.backend("jax")
def test_a_callback_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    callback = keras.callbacks.Callback()
    callback.file = (tmp_path / "log").open("w")
    with flatout.options(launcher="local"), pytest.raises(flatout.InvalidOption, match="callbacks cannot be sent"):
        flatout.fit(cases.network(), cases.X, cases.Y, verbose=0, workers=2, callbacks=[callback])


_SCRIPT = """
import keras, numpy as np

class Double(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs

keras.utils.set_random_seed(1)
x = np.random.normal(size=(100, 4)).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), Double(), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), lambda y, p: keras.ops.mean((y - p) ** 2))
history = model.fit(x, x[:, :1], epochs=2, batch_size=30, verbose=0)
print(f"{history.history['loss'][-1]:.6f} {float(model.get_weights()[0].sum()):.6f}")
"""


@pytest.mark.turns
@pytest.mark.backend("jax")
def test_a_script_with_classes_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    plain = run(tmp_path, "train.py")
    ours = run(tmp_path, "-m", "flatout", "--workers", "2", "--launcher", "local", "train.py", XLA_FLAGS="")
    assert ours.returncode == 0, ours.stderr
    one, two = (np.array(done.stdout.split(), float) for done in (plain, ours))
    np.testing.assert_allclose(one, two, rtol=0, atol=2e-6)
