"""The torch engine changes nothing before step 0, bakes nothing in, and says what it could not capture."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref

import numpy as np
import pytest

keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip("needs KERAS_BACKEND=torch", allow_module_level=True)

import torch  # noqa: E402
from keras import layers  # noqa: E402

import flatout  # noqa: E402
from flatout.data.stream import chunks  # noqa: E402
from flatout.engines.torch import engine as engine_module  # noqa: E402
from flatout.engines.torch.capture import captured_step as torch_capture  # noqa: E402
from flatout.engines.torch.capture.side_effects import Watch  # noqa: E402
from flatout.engines.torch.engine import TorchEngine  # noqa: E402
from flatout.engines.torch.replay.host_seeds import HostSeeds  # noqa: E402
from flatout.engines.torch.replay.step_loop import EagerLoop, ReplayLoop  # noqa: E402

# A step that takes long, also on a busy machine, would not be recorded.
pytestmark = pytest.mark.usefixtures("forced")

ROWS, BATCH = 40, 16
X = np.random.default_rng(0).normal(size=(ROWS, 6)).astype("float32")
Y = np.random.default_rng(1).integers(0, 3, ROWS)


def make(cls=keras.Sequential, *extra, optimizer="adam", metrics=("accuracy",)):
    keras.utils.set_random_seed(5)
    model = cls([keras.Input((6,)), layers.Dense(8, activation="relu"), *extra, layers.Dense(3, activation="softmax")])
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=list(metrics))
    model._symbolic_build(data_batch=(X[:2], Y[:2]))
    model.optimizer.build(model.trainable_variables)
    return model


def prepare(model, task="train", x=X, y=Y, rows=ROWS):
    engine = TorchEngine()
    return engine.prepare(model, task, engine.place((x, y)), rows, BATCH)


def everything(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [v.value.detach().clone() for v in variables]


def run_pass(program, steps=3, every_step=True, order=None):
    program.loop.model.reset_metrics()
    TorchEngine().begin_epoch(program.loop.model, program.loop.task)
    program.begin_pass(order)
    logs = program.run(0, steps, every_step)
    program.end_pass()
    TorchEngine().end_epoch(program.loop.model, program.loop.task)
    return logs


def test_a_step_that_takes_long_is_not_recorded_unless_forced(monkeypatch):
    monkeypatch.setattr(torch_capture, "_MOST_ARITHMETIC", 0.0)
    assert isinstance(prepare(make()).loop, ReplayLoop)
    monkeypatch.delenv("FLATOUT_FORCE")
    program = prepare(make())
    assert isinstance(program.loop, EagerLoop)
    assert [why.code for why in program.reasons] == ["no_gain"]


def test_preparing_changes_nothing():
    model = make(keras.Sequential, layers.Dropout(0.5), layers.BatchNormalization(), layers.GaussianNoise(0.1, seed=3))
    model.train_on_batch(X[:4], Y[:4])
    model.eval()
    before, gradients = everything(model), [v.value.grad.clone() for v in model.trainable_variables]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    program = prepare(model)
    assert isinstance(program.loop, ReplayLoop)
    assert all(torch.equal(a, b) for a, b in zip(before, everything(model), strict=True))
    assert all(torch.equal(a, v.value.grad) for a, v in zip(gradients, model.trainable_variables, strict=True))
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert np.array_equal(states[2], np.random.get_state()[1])
    assert not any(module.training for module in model.modules())


def test_logs_of_each_step_keep_their_values():
    program = prepare(make())
    logs = run_pass(program)
    values = [{k: float(v) for k, v in log.items()} for log in logs]
    run_pass(program)
    assert values == [{k: float(v) for k, v in log.items()} for log in logs]
    assert len({log["loss"] for log in values}) == 3
    assert not any(v.requires_grad for log in logs for v in log.values())


def test_last_logs_alone_are_those_of_the_last_step():
    a, b = make(), make()
    assert float(run_pass(prepare(a))[-1]["loss"]) == float(run_pass(prepare(b), every_step=False)[0]["loss"])


def test_order_decides_the_rows():
    order = np.random.default_rng(2).permutation(ROWS)
    a, b = make(), make()
    run_pass(prepare(a), order=order)
    run_pass(prepare(b, x=X[order], y=Y[order]))
    assert all(torch.equal(u, v) for u, v in zip(everything(a), everything(b), strict=True))


@pytest.mark.parametrize("order", [None, np.arange(ROWS)])
def test_evaluates_and_predicts_as_keras_does(order):
    model = make(keras.Sequential, layers.Dropout(0.5), layers.BatchNormalization())
    expected = model.evaluate(X, Y, batch_size=BATCH, verbose=0, return_dict=True)
    logs = run_pass(prepare(model, "test"), every_step=False, order=order)
    assert {k: float(v) for k, v in logs[0].items()} == pytest.approx(expected, rel=1e-6)
    outputs = run_pass(prepare(model, "predict"), order=order)
    assert [type(o) for o in outputs] == [np.ndarray] * 3
    np.testing.assert_allclose(np.concatenate(outputs), model.predict(X, batch_size=BATCH, verbose=0), rtol=1e-6)


class Annealed(keras.Sequential):
    beta = 1.0

    def compute_loss(self, *args, **kwargs):
        return self.beta * super().compute_loss(*args, **kwargs)


def test_a_step_that_is_recorded_again_and_again_is_not_compiled_behind_the_run():
    model = make(Annealed)
    model.beta = 1.0
    program = prepare(model)
    program.expect(1000)
    to_come = []
    for beta in (1.0, 1.0, 0.5, 0.25, 0.25):
        model.beta = beta
        run_pass(program)
        to_come.append(program.loop.steps_to_come)
    assert to_come == [1000, 997, 994, 0, 0]


@pytest.mark.parametrize("flag", ["deterministic algorithms", "cudnn"])
def test_who_wants_the_same_bits_again_keeps_the_recorded_step(flag, monkeypatch):
    program = prepare(make())
    if flag == "cudnn":
        monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    else:
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    program.expect(1000)
    run_pass(program)
    assert program.loop.steps_to_come == 0


class Counting(keras.Sequential):
    count = 0

    def train_step(self, data):
        self.count += 1
        return super().train_step(data)


class Reading(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "double": 2 * float(logs["loss"])}


class ReadingArrays(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        logs["array"] = torch.as_tensor(logs["loss"].detach().numpy() * 2)
        return logs


class Drawing(keras.Sequential):
    def train_step(self, data):
        x, y = data
        return super().train_step((x * random.random(), y))


class Printing(keras.Sequential):
    def train_step(self, data):
        print("step")
        return super().train_step(data)


class Rebinding(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        with torch.no_grad():
            self._total = getattr(self, "_total", torch.zeros(())) + logs["loss"].detach()
        return {**logs, "total": self._total}


class Masking(keras.Sequential):
    def train_step(self, data):
        x, y = data
        keep = x[:, 0] > 0
        return super().train_step((x[keep], y[keep]))


class Swallowing(keras.Sequential):
    def train_step(self, data):
        logs = super().train_step(data)
        try:
            positive = bool(logs["loss"] > 1.0)
        except Exception:
            positive = False
        return {**logs, "positive": float(positive)}


STEPS_WITH_PYTHON = {
    "side_effects": [Counting, Drawing, Printing, Rebinding],
    "data_dependent": [Reading, ReadingArrays, Masking, Swallowing],
}


@pytest.mark.parametrize(("code", "cls"), [(code, cls) for code, some in STEPS_WITH_PYTHON.items() for cls in some])
def test_steps_with_python_in_them_run_as_they_are(code, cls, capsys):
    a = make(cls)
    random.seed(1)
    program = prepare(a)
    assert isinstance(program.loop, EagerLoop)
    assert [why.code for why in program.reasons] == [code]
    assert capsys.readouterr().out == ""
    assert getattr(a, "count", 0) == 0
    logs = run_pass(program)

    b = make(cls)
    random.seed(1)
    b.train()
    expected = [b.train_step((torch.tensor(X[i : i + BATCH]), torch.tensor(Y[i : i + BATCH]))) for i in (0, 16, 32)]
    assert [sorted(log) for log in logs] == [sorted(log) for log in expected]
    assert all(torch.equal(u, v) for u, v in zip(everything(a), everything(b), strict=True))
    assert getattr(a, "count", 0) == getattr(b, "count", 0)


def test_a_step_that_fails_says_why_and_fails_again_when_run():
    class Failing(keras.Sequential):
        def train_step(self, data):
            raise KeyError("no such thing")

    program = prepare(make(Failing))
    assert program.reasons[0].code == "untraceable"
    assert "no such thing" in program.reasons[0].message
    program.begin_pass(None)
    with pytest.raises(KeyError):
        program.run(0, 1, True)


def test_steps_are_captured_once_per_model_and_compile(monkeypatch):
    captures = []
    original = engine_module.capture
    monkeypatch.setattr(engine_module, "capture", lambda *a: captures.append(a[1]) or original(*a))
    model = make()
    prepare(model)
    assert captures == ["train", "train"]
    run_pass(prepare(model))
    model.optimizer.learning_rate = 0.5
    prepare(model)
    assert len(captures) == 2
    model.layers[0].trainable = False
    prepare(model)
    assert len(captures) == 4
    model.compile("sgd", "sparse_categorical_crossentropy")
    model._symbolic_build(data_batch=(X[:2], Y[:2]))
    model.optimizer.build(model.trainable_variables)
    prepare(model)
    assert len(captures) == 6


@pytest.mark.parametrize(("loss", "times"), [("mse", 1), (lambda y, p: keras.ops.mean(keras.ops.abs(y - p)), 3)])
def test_keras_own_code_is_watched_once_for_all_shapes_of_batch(loss, times, monkeypatch):
    entered = []
    original = Watch.__enter__
    monkeypatch.setattr(Watch, "__enter__", lambda watch: entered.append(watch) or original(watch))
    model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
    model.compile("adam", loss)

    class Anneal(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            model.layers[0].activation = keras.activations.tanh

    flatout.fit(model, X, X[:, :1], batch_size=BATCH, verbose=0)
    assert len(entered) == times
    # Of both shapes, the guards still see what a callback changes.
    flatout.fit(model, X, X[:, :1], batch_size=BATCH, epochs=2, verbose=0, callbacks=[Anneal()])
    assert len(entered) == 2 * times


def test_saving_a_model_after_each_epoch_is_no_reason_to_record_its_step_anew(monkeypatch, tmp_path):
    captures = []
    original = engine_module.capture
    monkeypatch.setattr(engine_module, "capture", lambda *a: captures.append(a[1]) or original(*a))
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
    model = make()
    flatout.fit(model, X[:32], Y[:32], batch_size=BATCH, epochs=6, verbose=0, callbacks=[checkpoint])
    # Saving a Dense layer for the first time gives it attributes that its `call` may read.
    assert len(captures) <= 2


def test_an_attribute_that_a_step_sets_once_is_set_again_after_it_was_reset():
    class Marking(keras.Sequential):
        def train_step(self, data):
            self.seen = True
            return super().train_step(data)

    model = make(Marking)
    seen = []
    for _ in range(4):
        model.seen = False
        program = prepare(model, rows=2 * BATCH)
        assert not program.reasons
        run_pass(program, steps=2)
        seen.append(model.seen)
    assert seen == [True] * 4


def test_a_changed_hyperparameter_is_captured_anew():
    model = make(keras.Sequential, layers.Dropout(0.5))
    prepare(model)
    model.layers[1].rate = 0.0
    run_pass(prepare(model))
    plain = make(keras.Sequential, layers.Dropout(0.5))
    plain.layers[1].rate = 0.0
    run_pass(prepare(plain))
    assert all(torch.equal(u, v) for u, v in zip(everything(model), everything(plain), strict=True))


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor


class ForWholeBatches(layers.Layer):
    """With Python that a batch of fewer rows does not come to."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x) if x.shape[0] == BATCH else x


def test_what_only_steps_of_some_chunks_read_is_looked_at_before_each_of_them(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", BATCH * 6 * 4)
    losses = []
    for engine in ("stock", "auto"):
        times = Times(1.0)
        stronger = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_, times=times: setattr(times, "factor", 9.0))
        settings = {"batch_size": BATCH, "epochs": 3, "shuffle": False, "verbose": 0, "callbacks": [stronger]}
        model = make(keras.Sequential, ForWholeBatches(times), optimizer=keras.optimizers.SGD(1e-9))
        losses.append(flatout.fit(model, X, Y, engine=engine, data="streamed", **settings).history["loss"])
    assert flatout.explain()[-1].data == "streamed"
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert losses[0][1] != pytest.approx(losses[0][0], rel=1e-3)


class Weaker(keras.Sequential):
    """Its loss counts less after each step of a validation."""

    weight = 1.0

    def compute_loss(self, *args, **kwargs):
        return self.weight * super().compute_loss(*args, **kwargs)

    def test_step(self, data):
        self.weight *= 0.5
        return super().test_step(data)


@pytest.mark.parametrize("settings", [{"data": "streamed"}, {"steps_per_epoch": 1}])
def test_python_is_looked_at_also_where_an_epoch_begins_inside_a_pass(settings):
    losses = []
    for engine in ("stock", "auto"):
        call = {"batch_size": 10, "epochs": 3, "shuffle": False, "verbose": 0, "validation_data": (X[:16], Y[:16])}
        losses.append(flatout.fit(make(Weaker), X, Y, engine=engine, **call, **settings).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_new_learning_rate_counts_without_a_new_capture():
    model = make(optimizer="sgd")
    program = prepare(model)
    model.optimizer.learning_rate = 0.0
    before = [v.value.detach().clone() for v in model.trainable_variables]
    run_pass(program)
    assert all(torch.equal(a, v.value) for a, v in zip(before, model.trainable_variables, strict=True))


def test_captured_steps_do_not_keep_the_model():
    model = make()
    program = prepare(model)
    run_pass(program)
    reference = weakref.ref(model)
    del model, program
    gc.collect()
    assert reference() is None


def test_seeds_computed_on_the_host_are_those_of_the_step():
    model = make(keras.Sequential, layers.Dropout(0.5, seed=3), layers.GaussianNoise(0.1, seed=4))
    program = prepare(model)
    graph = program.loop.full.graph
    drawn = []
    for instruction in graph.instructions:
        if type(instruction.target).__name__ == "Reseed":
            instruction.target.generator.manual_seed(0)
    generators = [i.target.generator for i in graph.instructions if type(i.target).__name__ == "Reseed"]
    assert len(generators) == 2
    seeds = HostSeeds(graph, "train_step")
    seeds.load()
    program.begin_pass(None)
    for step in range(2):
        seeds.advance()
        drawn.append([g.initial_seed() for g in generators])
        program.run(step, step + 1, True)
        assert drawn[-1] == [g.initial_seed() for g in generators]
    assert drawn[0] != drawn[1]


def test_places_what_keras_would_convert():
    pandas = pytest.importorskip("pandas")
    inputs = {"a": X.astype("float64"), "b": None, "c": pandas.Series(Y), "d": torch.tensor(Y), "e": X[:, 0] > 0}
    placed = TorchEngine().place(inputs)
    assert placed["a"].dtype == torch.float32
    assert placed["b"] is None
    assert placed["c"].shape == (ROWS, 1)
    assert placed["d"].dtype == torch.int64
    assert placed["e"].dtype == torch.bool


def test_a_model_that_is_not_built_yet_is_built_by_its_first_step():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Dense(3)])
    program = prepare(model, "predict")
    assert isinstance(program.loop, EagerLoop)
    keras.utils.set_random_seed(3)
    outputs = np.concatenate(run_pass(program))
    assert outputs.shape == (ROWS, 3)
    assert isinstance(program.loop, ReplayLoop)


class OwnOptimizer(keras.Model):
    """Its optimizer is built by the first step, as in most GANs."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3, activation="softmax")
        self.dense.build((None, 6))
        self.built = True
        self.own = keras.optimizers.Adam(0.01)

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self.dense(x)))
        loss.backward()
        with torch.no_grad():
            self.own.apply([weight.value.grad for weight in self.trainable_weights], self.trainable_weights)
        return {"loss": loss}


def test_what_the_first_step_builds_does_not_keep_the_others_from_being_recorded():
    def run(engine):
        keras.utils.set_random_seed(3)
        model = OwnOptimizer()
        model.compile()
        history = flatout.fit(model, X, Y, batch_size=8, epochs=3, verbose=0, engine=engine).history
        return history["loss"], model.get_weights(), flatout.explain()[-1]

    (losses, weights, _), (expected, stock_weights, _) = found = run("auto"), run("stock")
    assert not found[0][2].reasons
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for value, stock in zip(weights, stock_weights, strict=True):
        np.testing.assert_allclose(value, stock, rtol=1e-6, atol=1e-7)


def test_the_state_of_the_generators_can_be_kept():
    engine = TorchEngine()
    state = engine.generator_state()
    first = torch.rand(2)
    engine.set_generator_state(state)
    assert torch.equal(first, torch.rand(2))


def test_free_memory_is_known():
    assert TorchEngine().free_memory() > 1 << 20


_WARNS = """
import keras, numpy as np, torch
def loss(y_true, y_pred):
    return y_pred.mean() + torch.nan_to_num(torch.std(y_pred.detach()[:1], 0)).sum()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
model.compile("sgd", loss)
model.fit(np.ones((40, 3), "float32"), np.ones((40, 3), "float32"), batch_size=16, epochs=3, verbose=0)
"""


def test_an_operation_warns_as_often_as_in_stock_keras(tmp_path, monkeypatch):
    """`torch.std` of one row warns at every call; a replayed step must not show it once more."""
    monkeypatch.setenv("FLATOUT_STRICT", "1")
    (tmp_path / "script.py").write_text(_WARNS)

    def warned(*command):
        ran = subprocess.run([sys.executable, *command, "script.py"], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stderr.count("degrees of freedom is")

    assert warned("-m", "flatout") == warned() == 1


class Drawing(keras.Model):
    """Draws from NumPy, and makes no use of it."""

    def call(self, x: torch.Tensor) -> torch.Tensor:
        np.random.rand()
        return x + 1.0


def test_what_a_step_draws_from_numpy_is_drawn_at_every_step() -> None:
    """NumPy's functions are no built-in ones any more, whose calls a profiler hears of."""
    found = []
    for engine in ("stock", "auto"):
        model = Drawing()
        model(np.ones((1, 4), "float32"))
        np.random.seed(3)
        with flatout.options(force=True):
            flatout.predict(model, np.ones((64, 4), "float32"), batch_size=8, verbose=0, engine=engine)
        found.append(np.random.rand())
    assert found[0] == found[1]
