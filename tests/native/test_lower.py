"""`flatout.lower`: what it refuses and why, how it prints, and the buffers that other libraries read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.seam.trainers import build_on_batch


def _seed() -> Any:
    chain = [layers.Input((28, 28)), layers.Flatten(), layers.Dense(128, activation="relu", name="hidden")]
    model = keras.Sequential([*chain, layers.Dense(10, activation="softmax", name="classes")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _compiled(*chain: Any, shape: tuple[int | None, ...] = (8,), **arguments: Any) -> Any:
    model = keras.Sequential([layers.Input(shape), *chain])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **arguments})
    return model


def _two_inputs() -> Any:
    inputs = [keras.Input((3,)), keras.Input((3,))]
    model = keras.Model(inputs, layers.Dense(1)(layers.Concatenate()(inputs)))
    model.compile("sgd", "mse")
    return model


def _residual() -> Any:
    inputs = keras.Input((4,))
    hidden = layers.Dense(4)(inputs)
    model = keras.Model(inputs, layers.Dense(1)(layers.Add()([inputs, hidden])))
    model.compile("sgd", "mse")
    return model


class _OwnStep(keras.Sequential):
    def train_step(self, *arguments: Any) -> Any:
        return super().train_step(*arguments)


class _OwnDense(layers.Dense):
    def call(self, inputs: Any, training: Any = None) -> Any:
        return 2 * super().call(inputs)


def _own_step() -> Any:
    model = _OwnStep([layers.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def _own_loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "a convolution": ("native_layer", lambda: _compiled(layers.Conv1D(2, 3), layers.Flatten(), shape=(8, 1))),
    "a layer of the user": ("native_layer", lambda: _compiled(_OwnDense(1))),
    "a step of the user": ("native_model", _own_step),
    "two inputs": ("native_model", _two_inputs),
    "a residual connection": ("native_model", _residual),
    "no fixed shape": ("native_model", lambda: _compiled(layers.Dense(1), shape=(None, 3))),
    "an output of rank 3": ("native_model", lambda: _compiled(layers.Dense(2), shape=(4, 3))),
    "half precision": ("native_layer", lambda: _compiled(layers.Dense(1, dtype="mixed_bfloat16"))),
    "a constraint": ("native_layer", lambda: _compiled(layers.Dense(1, kernel_constraint="non_neg"))),
    "an activity regularizer": ("native_layer", lambda: _compiled(layers.Dense(1, activity_regularizer="l2"))),
    "another regularizer": (
        "native_layer",
        lambda: _compiled(
            layers.Dense(2, kernel_regularizer=keras.regularizers.OrthogonalRegularizer()), layers.Dense(1)
        ),
    ),
    "another activation": ("native_layer", lambda: _compiled(layers.Dense(1, activation="softplus"))),
    "a function as activation": ("native_layer", lambda: _compiled(layers.Dense(1, activation=lambda x: 2 * x))),
    "another loss": ("native_loss", lambda: _compiled(layers.Dense(1), loss="log_cosh")),
    "a loss of the user": ("native_loss", lambda: _compiled(layers.Dense(1), loss=_own_loss)),
    "another reduction": (
        "native_loss",
        lambda: _compiled(layers.Dense(1), loss=keras.losses.MeanSquaredError("none")),
    ),
    "another metric": ("native_metric", lambda: _compiled(layers.Dense(1), metrics=[keras.metrics.AUC()])),
    "another optimizer": ("native_optimizer", lambda: _compiled(layers.Dense(1), optimizer="adagrad")),
    "averaged weights": (
        "native_optimizer",
        lambda: _compiled(layers.Dense(1), optimizer=keras.optimizers.SGD(use_ema=True)),
    ),
    "accumulated gradients": (
        "native_optimizer",
        lambda: _compiled(layers.Dense(1), optimizer=keras.optimizers.Adam(gradient_accumulation_steps=2)),
    ),
    "uncompiled": ("native_model", lambda: keras.Sequential([layers.Input((3,)), layers.Dense(1)])),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_kernel_is_refused_with_a_reason(what: str) -> None:
    code, build = REFUSED[what]
    with pytest.raises(flatout.CannotLower) as caught:
        flatout.lower(build())
    assert caught.value.reason.code == code, caught.value


@pytest.mark.backend("jax", "torch")
def test_constants_of_a_layer_that_was_built_in_passing_are_not_there() -> None:
    """Keras leaves what it traced with in the layer: a meta tensor, or a tracer."""
    model = keras.Sequential([layers.Normalization(mean=0.3, variance=2.0), layers.Dense(1)])
    model.compile("sgd", "mse")
    build_on_batch(model, (np.zeros((2, 8), np.float32), np.zeros((2, 1), np.float32)))
    with pytest.raises(flatout.CannotLower, match="its constants have no values yet"):
        flatout.lower(model)


@pytest.mark.backend("jax")
def test_a_program_prints_as_a_list_of_buffers_and_kernels() -> None:
    program = flatout.lower(_seed())
    text = str(program)
    lines = text.splitlines()
    assert lines[0].startswith("staged train step, batch of 32: 11 kernels, 101,770 trained weights")
    assert any(line.split()[:2] == ["hidden/kernel", "float32"] and "401,408 B" in line for line in lines)
    numbered = [line for line in lines if line.strip()[:1].isdigit() and ". " in line]
    assert [line.split()[1].rstrip(":") for line in numbered] == list(program.steps["train"])
    assert "     reads  batch, hidden/kernel" in lines
    # 2 * 32 * 784 * 128: multiply and add.
    assert "6,422,528 FLOP" in text
    assert repr(program) == f"<Program: staged, batch of 32, {len(program.kernels)} kernels>"


@pytest.mark.backend("jax")
def test_every_kernel_is_in_the_source_and_names_what_it_touches() -> None:
    program = flatout.lower(_seed())
    for name, kernel in program.kernels.items():
        assert f"KERNEL({name})(" in program.source
        assert {one.buffer for one in kernel.parameters if one.buffer} == {*kernel.reads, *kernel.writes}
    assert "#include" not in program.source


@pytest.mark.slow
def test_run_trains_the_model_as_fit_does(emulated: Any) -> None:
    random = np.random.default_rng(0)
    x, y = random.random((70, 28, 28)).astype("float32"), random.integers(0, 10, 70)
    order = random.permutation(70)
    weights = []
    for native in (True, False):
        keras.utils.set_random_seed(2)
        model = _seed()
        if native:
            program = flatout.lower(model, batch_size=16)
            logs = program.run(x, y, order=order, launcher="cpu")
            again = program.run(steps=2, launcher="cpu")
        else:
            history = model.fit(x[order], y[order], batch_size=16, shuffle=False, verbose=0).history
            assert logs == pytest.approx({name: values[0] for name, values in history.items()}, rel=1e-5)
            expected = model.fit(x[:32], y[:32], batch_size=16, shuffle=False, verbose=0).history
            assert again == pytest.approx({name: values[0] for name, values in expected.items()}, rel=1e-5)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-6)


@pytest.mark.backend("jax")
def test_awkward_names_of_layers(emulated: Any) -> None:
    names = ["weights", "update", "3 d", "a-b", "a.b", "x", "log", "class"]
    chain = [layers.Dense(4, activation="tanh", name=name) for name in names]
    model = _compiled(*chain, layers.Dense(1, name="loss"), optimizer="adam")
    before = model.get_weights()
    x, y = np.random.default_rng(0).random((6, 8)).astype("float32"), np.ones((6, 1), "float32")
    program = flatout.lower(model, batch_size=6)
    logs = program.run(x, y, launcher="cpu")
    model.set_weights(before)
    assert logs["loss"] == pytest.approx(model.evaluate(x, y, verbose=0), rel=1e-5)


@pytest.mark.backend("jax")
def test_bad_arguments_of_run(emulated: Any) -> None:
    program = flatout.lower(_seed(), batch_size=4)
    x, y = np.zeros((8, 28, 28), "float32"), np.zeros(8, "int32")
    with pytest.raises(ValueError, match="no data yet"):
        program.run(launcher="cpu")
    with pytest.raises(ValueError, match="labels go from 0 to 10, with 10 classes"):
        program.run(x, np.array([0, 10] * 4), launcher="cpu")
    with pytest.raises(ValueError, match="rows of 784 values"):
        program.run(x[:, :27], y, launcher="cpu")
    with pytest.raises(ValueError, match="row numbers from 0 to 7"):
        program.run(x, y, order=[8], launcher="cpu")
    with pytest.raises(flatout.InvalidOption, match="launcher='opencl'"):
        program.run(x, y, launcher="opencl")


@pytest.mark.backend("jax")
def test_buffers_speak_numpy_and_dlpack(emulated: Any) -> None:
    model = _seed()
    program = flatout.lower(model, batch_size=4)
    program.run(np.ones((8, 28, 28), "float32"), np.zeros(8, "int32"), launcher="cpu")
    kernel = program.buffers["hidden/kernel"]
    np.testing.assert_array_equal(kernel.numpy(), model.layers[1].kernel.numpy())
    np.testing.assert_array_equal(np.from_dlpack(kernel), kernel.numpy())
    kernel.assign(np.zeros((784, 128)))
    assert not np.asarray(program.buffers["weights"])[: 784 * 128].any()
    assert not hasattr(kernel, "__cuda_array_interface__")
