"""A diagnosis of real fits: everything is put back, the script can go on, and what was planted is found."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from scripts import run

import flatout
from flatout.doctor import diagnose
from flatout.doctor.diagnose import examine
from flatout.doctor.measuring import ablation, flatout_runs
from flatout.training.arguments import bound

pytestmark = pytest.mark.slow

BACKEND = keras.config.backend()
BUDGET = 4.0


def network() -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([layers.Dense(8, "relu"), layers.Dropout(0.3), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


def rows() -> tuple[np.ndarray, np.ndarray]:
    made = np.random.default_rng(1)
    return made.normal(size=(120, 5)).astype("float32"), made.normal(size=(120, 1)).astype("float32")


def batches() -> Iterator[Any]:
    """Draws from NumPy's generator, as users do."""
    x, y = rows()
    while True:
        chosen = np.random.randint(0, len(x), 12)
        yield x[chosen] + np.random.normal(size=(12, 5)), y[chosen]


class Batches(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        self.asked += 1
        x, y = rows()
        return x[number * 12 : number * 12 + 12], y[number * 12 : number * 12 + 12]


class Counted(keras.callbacks.Callback):
    """Of the user's own, with state, and slow."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds, self.seen = seconds, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        time.sleep(self.seconds)


def arguments(kind: str) -> dict[str, Any]:
    if kind == "generator":
        return {"x": batches(), "steps_per_epoch": 6}
    if kind == "PyDataset":
        return {"x": Batches()}
    x, y = rows()
    return {"x": x, "y": y, "batch_size": 16, "validation_split": 0.2}


def state(model: Any) -> list[Any]:
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable.value) for variable in variables]


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast flatout's own steps are is not asked; with a callback that sleeps, they are most of the time."""
    monkeypatch.setattr(flatout_runs, "_REPEATS", 1)


@pytest.fixture
def in_brief(once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are lines looked for, or parts told from each other."""
    monkeypatch.setattr(diagnose, "_SECONDS_SAMPLED", 0.3)
    monkeypatch.setattr(ablation, "_SECONDS_OF_A_SEGMENT", 0.03)


@pytest.mark.usefixtures("in_brief")
@pytest.mark.parametrize("kind", ["arrays", "generator", "PyDataset"])
def test_a_fit_goes_on_as_if_nothing_had_happened(kind: str) -> None:
    expected = network()
    expected.fit(epochs=2, verbose=0, **arguments(kind))
    drawn = np.random.rand(), random.random()
    model, given = network(), arguments(kind)
    diagnosis, x = examine(model, bound("fit", (), {"epochs": 2, "verbose": 0, **given}), BUDGET)
    assert not any("Going back" in line for line in diagnosis.unchecked)
    model.fit(epochs=2, verbose=0, **{**given, "x": x})
    for ours, theirs in zip(state(model), state(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.history.history == expected.history.history
    if kind != "generator" or BACKEND != "tensorflow":  # TensorFlow reads ahead, as far as it gets.
        assert (np.random.rand(), random.random()) == drawn
    if kind == "PyDataset":
        assert given["x"].asked < 40


@pytest.mark.turns
@pytest.mark.usefixtures("in_brief")
def test_the_model_and_its_callbacks_are_left_alone() -> None:
    model, callback = network(), Counted()
    x, y = rows()
    model.fit(x, y, verbose=0)
    history, function, before = model.history, model.train_function, copy.deepcopy(state(model))
    reports = flatout.explain()
    flatout.diagnose(model, x, y, budget=BUDGET, callbacks=[callback])
    assert callback.seen == 0
    assert model.history is history
    assert model.train_function is function
    for ours, theirs in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert flatout.explain() == reports


@pytest.mark.turns
@pytest.mark.usefixtures("once")
def test_a_slow_callback_is_found_with_its_line() -> None:
    x, y = rows()
    # Many steps, beside which nothing counts that Keras does between two epochs.
    given = {"batch_size": 4, "epochs": 200, "verbose": 0}
    diagnosis = flatout.diagnose(network(), x, y, budget=BUDGET, callbacks=[Counted(0.2)], **given)
    assert diagnosis.kind == "callback-bound"
    finding = next(one for one in diagnosis.findings if one.code == "FO907")
    assert finding.path == __file__
    assert "time.sleep" in finding.before
    assert finding.gain is not None
    assert finding.gain.is_measured
    assert finding.gain.times > 2
    assert {span.lane for span in diagnosis.timeline} >= {"step", "callbacks"}


@pytest.mark.turns
@pytest.mark.usefixtures("once")
def test_a_slow_generator_is_found_with_its_line() -> None:
    def slow() -> Iterator[Any]:
        x, y = rows()
        while True:
            for _ in range(4):
                time.sleep(0.02)
            yield x[:16], y[:16]

    diagnosis = flatout.diagnose(network(), slow(), steps_per_epoch=10, budget=BUDGET, epochs=200, verbose=0)
    assert diagnosis.kind == "input-bound"
    finding = next(one for one in diagnosis.findings if one.code == "FO901" and one.path)
    assert "time.sleep" in finding.before


class AtTheEnd(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        time.sleep(0.6)  # slow


@pytest.mark.turns
@pytest.mark.usefixtures("once")
def test_a_slow_end_of_an_epoch_is_found_with_its_line() -> None:
    x, y = rows()
    found = flatout.diagnose(network(), x, y, budget=BUDGET, callbacks=[AtTheEnd()], epochs=200, verbose=0)
    assert found.kind == "callback-bound"
    assert next(part.share for part in found.epoch if part.name == "epoch-callbacks") > 0.2
    change = next(one for one in found.findings if one.code == "FO907")
    assert "# slow" in change.before
    assert change.gain is not None
    assert change.gain.times > 1.2


@pytest.mark.turns
@pytest.mark.usefixtures("in_brief")
def test_a_file_that_a_callback_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    log = tmp_path / "log.txt"

    class Log(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            log.write_text(str(logs))

    x, y = rows()
    found = flatout.diagnose(network(), x, y, budget=BUDGET, callbacks=[Log()], verbose=0)
    assert f"Going back: Log has written {log}, which is left." in found.unchecked


@pytest.mark.turns
@pytest.mark.backend("jax")
@pytest.mark.usefixtures("in_brief")
def test_batches_of_many_shapes_are_compiled_again_and_again() -> None:
    model = keras.Sequential([layers.Embedding(10, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)])
    model.compile("sgd", "mse")

    class Sentences(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, number: int) -> Any:
            return np.ones((4, 3 + number % 5), "int32"), np.ones((4, 1))

    found = flatout.diagnose(model, Sentences(), budget=BUDGET, verbose=0)
    change = next(one for one in found.findings if one.code == "FO906")
    assert "20 batches have 5 shapes: (4, 3), (4, 1); " in change.why


@pytest.mark.turns
@pytest.mark.usefixtures("once")
def test_what_lambdas_do_at_batches_counts_and_what_libraries_do_is_left(tmp_path: Path) -> None:
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.2))

    class Kept(keras.callbacks.ModelCheckpoint):
        pass

    kept = Kept(tmp_path / "kept.keras", save_freq=1)
    x, y = rows()
    given = {"batch_size": 4, "epochs": 200, "verbose": 0}
    diagnosis = flatout.diagnose(network(), x, y, budget=BUDGET, callbacks=[slow, kept], **given)
    assert diagnosis.kind == "callback-bound"
    assert any("Kept" in line for line in diagnosis.unchecked)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.turns
def test_data_that_end_too_soon_fail_with_what_was_read_put_back() -> None:
    x, y = rows()
    given = iter([(x[:8] + number, y[:8]) for number in range(4)])
    with pytest.raises(flatout.DiagnosisFailed, match="could not be measured") as failed:
        examine(network(), bound("fit", (), {"x": given}), BUDGET)
    assert [batch[0][0, 0] for batch in failed.value.x] == [x[0, 0] + number for number in range(4)]


@pytest.mark.turns
@pytest.mark.backend("torch")
@pytest.mark.usefixtures("in_brief")
def test_another_optimizer_and_frames() -> None:
    import pandas as pd

    keras.utils.set_random_seed(3)

    class TwoOptimizers(keras.Sequential):
        """As a GAN has them."""

        def train_step(self, data: Any) -> Any:
            logs = super().train_step(data)
            self.second.apply([variable.value.grad for variable in self.trainable_variables])
            return logs

    model = TwoOptimizers([layers.Input((5,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.second = keras.optimizers.Adam()
    model.second.build(model.trainable_variables)
    x, y = rows()
    diagnosis = flatout.diagnose(model, pd.DataFrame(x), pd.Series(y[:, 0]), batch_size=16, budget=BUDGET)
    assert int(model.second.iterations.value) == 0
    assert any(one.label == "the data" and one.nbytes > x.nbytes for one in diagnosis.memory)


@pytest.mark.turns
@pytest.mark.backend("jax")
@pytest.mark.usefixtures("in_brief")
def test_several_steps_in_one_execution() -> None:
    model = network()
    model.compile("adam", "mse", steps_per_execution=4)
    x, y = rows()
    assert flatout.diagnose(model, x, y, batch_size=4, budget=BUDGET, verbose=0).step.mid > 0


@pytest.mark.turns
def test_epochs_and_flatouts_own_steps_are_told_and_written() -> None:
    x, y = rows()
    diagnosis = flatout.diagnose(network(), x, y, batch_size=32, budget=BUDGET, validation_data=(x, y))
    assert {part.name for part in diagnosis.epoch} - {"between"} == {"steps", "validation", "compile"}
    assert json.loads(json.dumps(diagnosis.to_json()))["kind"] == diagnosis.kind
    assert [one for one in diagnosis.variants if one.name.startswith("flatout")]


@pytest.mark.turns
@pytest.mark.parametrize("budget", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(budget: float) -> None:
    with pytest.raises(flatout.InvalidOption, match="budget"):
        flatout.diagnose(network(), *rows(), budget=budget)


@pytest.mark.turns
def test_an_uncompiled_model_gets_keras_own_error() -> None:
    with pytest.raises(ValueError, match="compile"):
        flatout.diagnose(keras.Sequential([layers.Dense(1)]), *rows())


_SCRIPT = """
import sys
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.rand(400, 6).astype("float32")
model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("adam", "mse")
if len(sys.argv) > 1:
    model.fit(x, x[:, :1], epochs=2, verbose=0, batch_size=20)
    print(repr(float(model.get_weights()[0].sum())), np.random.rand())
"""


@pytest.mark.turns
@pytest.mark.backend("jax")
def test_the_command_ends_the_script_or_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    plain = run(tmp_path, "train.py", "go")
    doctor = ("-m", "flatout", "doctor", "--budget", "1", "--json", "d.json", "--html", "d.html", "--trace", "t.json")
    stopped = run(tmp_path, *doctor, "train.py", "go")
    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert "-bound" in stopped.stderr or "Not separable" in stopped.stderr
    assert json.loads((tmp_path / "d.json").read_text())["facts"]["script"] == "train.py"
    assert "<html" in (tmp_path / "d.html").read_text()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    gone_on = run(tmp_path, *doctor, "--continue", "train.py", "go")
    assert gone_on.stdout == plain.stdout
    without_fit = run(tmp_path, *doctor, "train.py")
    assert without_fit.returncode == 1
    assert "without a call of model.fit" in without_fit.stderr
    nowhere = run(tmp_path, "-m", "flatout", "doctor", "--html", "no/such/folder/d.html", "train.py", "go")
    assert nowhere.returncode == 2
    assert "there is no folder" in nowhere.stderr
