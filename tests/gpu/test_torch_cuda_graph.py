"""On a GPU the captured step runs as CUDA graphs and ends where the plain steps end."""

from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")
torch = pytest.importorskip("torch")
if keras.backend.backend() != "torch" or not torch.cuda.is_available():
    pytest.skip("needs KERAS_BACKEND=torch and CUDA", allow_module_level=True)

from keras import layers  # noqa: E402

from flatout.engines.torch.engine import TorchEngine  # noqa: E402
from flatout.engines.torch.replay.cuda_graph import CudaGraphLoop  # noqa: E402

ROWS, BATCH = 16 * 21 + 5, 16
STEPS = -(-ROWS // BATCH)
X = np.random.default_rng(0).normal(size=(ROWS, 12)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, ROWS)

opt = keras.optimizers
CASES = {
    "adam": ("adam", []),
    "sgd": (lambda: opt.SGD(0.1, momentum=0.9), []),
    "adamw_clipnorm": (lambda: opt.AdamW(0.01, clipnorm=0.5), []),
    "dropout": ("adam", [lambda: layers.Dropout(0.5)]),
    "dropout_seeded": ("adam", [lambda: layers.Dropout(0.5, seed=3), lambda: layers.GaussianNoise(0.1, seed=4)]),
    "batch_norm": ("adam", [layers.BatchNormalization]),
    "accumulation": (lambda: opt.Adam(gradient_accumulation_steps=3), []),
    "ema": (lambda: opt.SGD(0.1, use_ema=True, ema_overwrite_frequency=3), []),
}


def make(case, policy="float32"):
    keras.utils.set_random_seed(5)
    optimizer, extra = CASES[case]
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(16, activation="relu", dtype=policy),
            *[layer() for layer in extra],
            layers.Dense(3, activation="softmax"),
        ]
    )
    optimizer = optimizer if isinstance(optimizer, str) else optimizer()
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    model._symbolic_build(data_batch=(X[:2], Y[:2]))
    model.optimizer.build(model.trainable_variables)
    return model


def everything(model):
    return [v.value.detach().clone() for v in [*model.variables, *model.optimizer.variables]]


@pytest.mark.gpu
@pytest.mark.parametrize("every_step", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_ends_where_plain_steps_end(case, every_step):
    order = np.random.default_rng(2).permutation(ROWS)
    plain = make(case)
    random_state = torch.cuda.get_rng_state()
    plain.train()
    for _ in range(2):
        plain.reset_metrics()
        for i in range(STEPS):
            index = order[i * BATCH : (i + 1) * BATCH]
            expected = plain.train_step(keras.tree.map_structure(keras.ops.convert_to_tensor, (X[index], Y[index])))
    plain_random_state = torch.cuda.get_rng_state()

    model, engine = make(case), TorchEngine()
    torch.cuda.set_rng_state(random_state)
    before = everything(model)
    program = engine.prepare(model, "train", engine.place((X, Y)), ROWS, BATCH)
    assert isinstance(program.loop, CudaGraphLoop), program.reasons
    assert all(torch.equal(a, b) for a, b in zip(before, everything(model), strict=True))
    assert torch.equal(random_state, torch.cuda.get_rng_state())
    for _ in range(2):
        model.reset_metrics()
        program.begin_pass(order)
        logs = program.run(0, 3, every_step) + program.run(3, STEPS, every_step)
        program.end_pass()
    assert len(logs) == (STEPS if every_step else 2)
    for name, value in expected.items():
        torch.testing.assert_close(logs[-1][name], value.detach(), rtol=1e-5, atol=1e-6)
    for a, b in zip(everything(plain), everything(model), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    assert torch.equal(plain_random_state, torch.cuda.get_rng_state())


@pytest.mark.gpu
def test_predicts_as_keras_does():
    model, engine = make("batch_norm"), TorchEngine()
    program = engine.prepare(model, "predict", engine.place((X, Y)), ROWS, BATCH)
    assert isinstance(program.loop, CudaGraphLoop), program.reasons
    program.begin_pass(None)
    outputs = np.concatenate(program.run(0, STEPS, True))
    np.testing.assert_allclose(outputs, model.predict(X, batch_size=BATCH, verbose=0), rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_is_replayed_without_a_graph_and_leaves_the_generator_usable():
    class Waits(keras.Sequential):
        def train_step(self, data):
            logs = super().train_step(data)
            return {**logs, "host": logs["loss"].detach().cpu()}

    keras.utils.set_random_seed(1)
    model = Waits([keras.Input((12,)), layers.Dropout(0.5), layers.Dense(3, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    model._symbolic_build(data_batch=(X[:2], Y[:2]))
    model.optimizer.build(model.trainable_variables)
    engine = TorchEngine()
    program = engine.prepare(model, "train", engine.place((X, Y)), ROWS, BATCH)
    assert not isinstance(program.loop, CudaGraphLoop)
    assert program.reasons
    program.begin_pass(None)
    program.run(0, STEPS, False)
    torch.rand(3, device="cuda")
