"""On a GPU: the native kernels end where Keras ends, whichever library launches them."""

from __future__ import annotations

import importlib.util
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from tests.native.cases import PLAIN, Block, Case
from tests.native.parity import by_keras, by_kernels, distance

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]

_CASES = {
    "seed": PLAIN,
    "deep": Case(
        **{
            **vars(PLAIN),
            "first": "dense",
            "shape": (4, 3),
            "blocks": (Block(9, "gelu", "norm", 0.0, 1e-2), Block(300, "tanh", "after", 1e-3, 0.0)),
            "loss": "huber",
            "outputs": 3,
            "optimizer": "adamw",
            "clip": ("clipnorm", 0.5),
            "weighted": True,
        }
    ),
    "wide": Case(
        **{
            **vars(PLAIN),
            "blocks": (Block(1024, "relu", "inside", 0.0, 0.0),),
            "batch_size": 1024,
            "rows": 19 * 1024 + 7,
        }
    ),
    "momentum": Case(
        **{**vars(PLAIN), "optimizer": "nesterov", "clip": ("global_clipnorm", 0.1), "loss": "categorical"}
    ),
}


def _launcher(name: str) -> Any:
    from flatout.native.launch.launcher import make_launcher

    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    return make_launcher(name)


@pytest.mark.parametrize("name", _CASES)
def test_the_default_launcher_ends_where_keras_ends(name: str) -> None:
    case = _CASES[name]
    expected, expected_logs = by_keras(case)
    found, logs = by_kernels(case, _launcher("cuda.core"))
    # A wide model has many gradients near 0, of whose rounding Adam makes steps: after 20 of them stock Keras itself is
    # 1.9e-4 in norm, 6e-3 at most, from what it does in float64.
    limits = {1: (1e-5, 2e-4), 20: (2e-4, 1e-2) if name == "wide" else (1e-5, 2e-4)}
    for steps, (norm, most) in limits.items():
        in_norm, at_most = distance(found[steps], expected[steps])["weights"]
        assert in_norm <= norm, (steps, in_norm)
        assert at_most <= most, (steps, at_most)
    assert logs == pytest.approx(expected_logs, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("other", ["cupy", "pycuda"])
@pytest.mark.parametrize("name", ["seed", "deep"])
def test_every_launcher_gives_the_same_weights(name: str, other: str) -> None:
    found, logs = by_kernels(_CASES[name], _launcher("cuda.core"))
    others, other_logs = by_kernels(_CASES[name], _launcher(other))
    # Other compilers may contract other multiplications and additions.
    for steps in (1, 20):
        assert distance(others[steps], found[steps])["weights"][0] <= 1e-6
    assert other_logs == pytest.approx(logs, rel=1e-5)


def test_a_step_gives_the_same_bits_every_time() -> None:
    runs = [by_kernels(_CASES["deep"], _launcher("cuda.core"))[0][20] for _ in range(3)]
    for run in runs[1:]:
        for name, value in run.items():
            np.testing.assert_array_equal(value, runs[0][name], err_msg=name)


def _model() -> Any:
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Rescaling(1 / 255),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def test_fit_equals_stock_keras() -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (5000, 28, 28)).astype("uint8"), random.integers(0, 10, 5000)
    results = []
    for engine in ("native", "stock"):
        model = _model()
        history = flatout.fit(model, x, y, epochs=3, validation_split=0.1, verbose=0, engine=engine)
        results.append((history.history, model.get_weights(), flatout.explain()[-1]))
    (history, weights, report), (expected, expected_weights, _) = results
    assert (report.engine, [why.code for why in report.reasons]) == ("native", ["native_form"])
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=2e-3, atol=2e-3, err_msg=name)
    for one, other in zip(weights, expected_weights, strict=True):
        assert np.linalg.norm(one - other) <= 1e-3 * np.linalg.norm(other) + 1e-4


def test_other_libraries_read_the_buffers_where_they_are() -> None:
    model = _model()
    program = flatout.lower(model, batch_size=16)
    program.run(np.ones((64, 28, 28), "float32"), np.zeros(64, "int32"), launcher="cuda.core")
    name = "dense/kernel"
    buffer, kernel = program.buffers[name], np.array(keras.ops.convert_to_numpy(model.layers[2].kernel.value))
    if importlib.util.find_spec("cupy"):
        import cupy

        assert cupy.asarray(buffer).data.ptr == buffer.pointer
        np.testing.assert_array_equal(cupy.asarray(buffer).get(), kernel)
    if importlib.util.find_spec("torch"):
        import torch

        tensor = torch.from_dlpack(buffer)
        assert tensor.data_ptr() == buffer.pointer
        np.testing.assert_array_equal(tensor.cpu().numpy(), kernel)
    if keras.config.backend() == "jax":
        import jax

        np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(buffer)), kernel)
