"""On a GPU: one kernel for all steps ends where Keras and one kernel a stage end."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.bench import fashion_mnist
from flatout.native.run.session import Session
from flatout.native.staged.staged_program import staged_program
from tests.native.cases import Block, Case
from tests.native.fused_cases import OTHERS, SMALL, STACKS, Pixels, by_fused, case_of, hidden
from tests.native.parity import by_keras, by_kernels, distance, variables

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]


_SEED = case_of(shape=(28, 28), blocks=(Block(128, "relu", "inside", 0.0, 0.0),), batch_size=32, rows=20 * 32)
_WIDER = case_of(shape=(28, 28), blocks=(Block(256, "relu", "inside", 0.0, 0.0),), batch_size=32, rows=20 * 32)


def _stack(*widths: int, **changes: Any) -> Case:
    return case_of(**{**vars(_SEED), "blocks": hidden(*widths), **changes})


_CASES: dict[str, tuple[Case, int | None]] = {
    "seed, 16 blocks": (_SEED, 16),
    "seed, 8 blocks": (_SEED, 8),
    "pixels": (Pixels(**vars(_SEED)), None),
    "256 units": (_WIDER, 16),
    "784-128-64-10": (_stack(128, 64), None),
    "784-128-64-10, 8 blocks": (_stack(128, 64), 8),
    "784-128-64-10, pixels": (Pixels(**vars(_stack(128, 64))), None),
    "784-128-64-10, batch of 16": (_stack(128, 64, batch_size=16, rows=20 * 16), None),
    "784-256-128-10": (_stack(256, 128), None),
    "784-128-128-128-10": (_stack(128, 128, 128), None),
    "784-128-128-128-128-10, momentum": (_stack(128, 128, 128, 128, optimizer="momentum"), None),
    "784-100-50-10": (_stack(100, 50), None),
    "784-100-10": (_stack(100), None),
    "100-64-32-16-2": (_stack(64, 32, 16, shape=(100,), outputs=2), None),
    **{f"small stack, {name}": (case, cluster) for name, (cluster, case) in STACKS.items()},
    "small, 4 blocks": (SMALL, 4),
    "small, 2 blocks": (SMALL, 2),
    **{name: (case, 2 if "units a block" in name else None) for name, case in OTHERS.items()},
}


@pytest.mark.parametrize("name", _CASES)
def test_exact_ends_where_keras_and_the_stages_end(name: str, launcher: Any) -> None:
    case, cluster = _CASES[name]
    expected, expected_logs = by_keras(case)
    found, logs = by_fused(case, launcher, cluster=cluster)
    staged, staged_logs = by_kernels(case, launcher)
    for steps in (1, 20):
        for other in (expected, staged):
            in_norm, at_most = distance(found[steps], other[steps])["weights"]
            assert in_norm <= 1e-5, (steps, in_norm)
            assert at_most <= 2e-4, (steps, at_most)
    assert logs == pytest.approx(expected_logs, rel=1e-4, abs=1e-5)
    assert logs == pytest.approx(staged_logs, rel=1e-4, abs=1e-5)


def test_fast_is_near(launcher: Any) -> None:
    expected, expected_logs = by_keras(_SEED)
    found, logs = by_fused(_SEED, launcher, precision="fast")
    in_norm, _ = distance(found[20], expected[20])["weights"]
    assert 1e-7 < in_norm < 5e-3
    assert logs["loss"] == pytest.approx(expected_logs["loss"], rel=2e-3)


@pytest.mark.parametrize("case", [_SEED, _stack(128, 64), _stack(128, 128, 128)], ids=["seed", "two", "three"])
def test_the_same_bits_every_time(case: Case, launcher: Any) -> None:
    runs = [by_fused(case, launcher) for _ in range(3)]
    for found, logs in runs[1:]:
        for name, value in found[20].items():
            np.testing.assert_array_equal(value, runs[0][0][20][name], err_msg=name)
        assert logs == runs[0][1]


def _blobs(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures that can be told apart: a noisy pattern for each class."""
    random = np.random.default_rng(1)
    patterns = random.uniform(0, 1, (10, 28, 28))
    y = random.integers(0, 10, rows)
    noise = random.uniform(0, 1, (rows, 28, 28))
    return (0.3 * patterns[y] + 0.7 * noise).astype("float32"), y.astype("int32")


def _model(seed: int, widths: tuple[int, ...] = (128,)) -> Any:
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Flatten(),
            *(layers.Dense(width, activation="relu") for width in widths),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_an_epoch_of_fit(precision: str, launcher: Any) -> None:
    # The last batch has 8 rows, and is for the stages.
    x, y = _blobs(1875 * 32 + 8)
    histories, weights = [], []
    for engine in ("native", "stock"):
        model = _model(5)
        history = flatout.fit(
            model,
            x,
            y,
            batch_size=32,
            epochs=1,
            validation_data=(x[:1000], y[:1000]),
            verbose=0,
            engine=engine,
            precision=precision,
        )
        histories.append(history.history)
        weights.append(np.concatenate([one.reshape(-1) for one in model.get_weights()]))
        if engine == "native":
            report = flatout.explain()[-1]
            assert report.engine == "native"
            forms = [why.message for why in report.reasons if why.code == "native_form"]
            assert len(forms) == 1
            assert "one kernel, 16 blocks" in forms[0]
            assert precision in forms[0]
    limit = 0.002 if precision == "exact" else 0.003
    for name in ("accuracy", "val_accuracy"):
        assert histories[0][name][0] == pytest.approx(histories[1][name][0], abs=limit)
    assert histories[0]["loss"][0] == pytest.approx(histories[1]["loss"][0], rel=1e-3 if precision == "exact" else 2e-2)
    if precision == "exact":
        # Rounding to 11 bits takes another way to as good an end: there only the accuracy counts.
        apart = np.linalg.norm(weights[0] - weights[1]) / np.linalg.norm(weights[1])
        assert apart <= 5e-3, apart


def _fit(
    seed: int, x: Any, y: Any, epochs: int, widths: tuple[int, ...] = (128,), **options: Any
) -> tuple[Any, dict[str, list[float]]]:
    model = _model(seed, widths)
    rows = len(x) * 5 // 6
    held_out = (x[rows:], y[rows:])
    history = flatout.fit(
        model, x[:rows], y[:rows], batch_size=32, epochs=epochs, validation_data=held_out, verbose=0, **options
    )
    return model, history.history


@pytest.mark.parametrize("widths", [(128,), (128, 64), (128, 128, 128)])
def test_five_epochs_go_where_those_of_the_backends_engine_go(widths: tuple[int, ...], launcher: Any) -> None:
    x, y = _blobs(600 * 32)
    model, history = _fit(1, x, y, 5, widths, engine="native")
    report = flatout.explain()[-1]
    assert report.engine == "native"
    assert any("one kernel" in why.message and "a stage" not in why.message for why in report.reasons)
    other, expected = _fit(1, x, y, 5, widths, engine=keras.config.backend())
    assert list(history) == list(expected)
    for name, values in history.items():
        assert values == pytest.approx(expected[name], rel=1e-3, abs=2e-3), name
    assert int(model.optimizer.iterations) == int(other.optimizer.iterations) == 5 * 500


@pytest.mark.parametrize("freq", [1, 3])
def test_a_validation_behind_the_steps_sees_what_it_would_see_after_them(freq: int, launcher: Any) -> None:
    """To the last bit: with a callback nothing is launched before all that came before it is done, and stored."""
    x, y = _blobs(600 * 32)
    looks = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)
    found = []
    for callbacks in ([], [looks]):
        model, history = _fit(3, x, y, 20, callbacks=callbacks, validation_freq=freq, engine="native")
        assert flatout.explain()[-1].engine == "native"
        metrics = [float(variable) for metric in model.metrics for variable in metric.variables]
        found.append((history, model.get_weights(), metrics))
    (history, weights, metrics), (expected, others, others_metrics) = found
    assert history == expected
    assert metrics == others_metrics
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_in_chunks_end_where_resident_ones_end(launcher: Any) -> None:
    x, y = _blobs(6000 * 32)
    found = [_fit(4, x, y, 2, engine="native", data=data) for data in ("streamed", "resident")]
    for name, values in found[0][1].items():
        assert values == pytest.approx(found[1][1][name], rel=1e-3, abs=2e-3), name
    one, other = (np.concatenate([part.reshape(-1) for part in model.get_weights()]) for model, _ in found)
    assert np.linalg.norm(one - other) <= 5e-3 * np.linalg.norm(other)


def test_fast_reaches_the_accuracy_over_five_seeds(launcher: Any) -> None:
    data = fashion_mnist.load()
    x, y = data.x_train, data.y_train
    reached: dict[str, list[float]] = {"native": [], keras.config.backend(): []}
    for seed in range(5):
        for engine, found in reached.items():
            _, history = _fit(seed, x, y, 5, engine=engine, precision="fast" if engine == "native" else "exact")
            assert flatout.explain()[-1].engine == engine
            found.append(max(history["val_accuracy"]))
    means = [float(np.mean(found)) for found in reached.values()]
    assert means[0] == pytest.approx(means[1], abs=0.003), reached


def test_auto_chooses_it_and_callbacks_see_the_weights_of_their_moment(launcher: Any) -> None:
    class Watcher(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[np.ndarray] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.seen.append(self.model.get_weights()[0].copy())
            if epoch == 1:
                # What a callback changes, the next epoch starts from.
                self.model.layers[-1].bias.assign(np.linspace(-1, 1, 10))
                self.model.optimizer.learning_rate = 1e-4

    x, y = _blobs(120 * 32)
    seen = []
    for options in ({"engine": "auto", "force": True}, {"engine": keras.config.backend()}):
        watcher = Watcher()
        with flatout.options(**options):
            model, history = _fit(2, x, y, 4, callbacks=[watcher])
        expected = "native" if options["engine"] == "auto" else keras.config.backend()
        assert flatout.explain()[-1].engine == expected
        seen.append((watcher.seen, model.get_weights(), history["loss"], history["val_loss"]))
    (ours, final, *losses), (theirs, others, *others_losses) = seen
    for a, b in zip([*ours, *final], [*theirs, *others], strict=True):
        assert np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b)
    assert losses[0] == pytest.approx(others_losses[0], rel=1e-4)
    assert losses[1] == pytest.approx(others_losses[1], rel=1e-4)


def test_auto_chooses_it_for_several_hidden_layers(launcher: Any) -> None:
    x, y = _blobs(40 * 32)
    with flatout.options(force=True):
        _fit(1, x, y, 1, (128, 64))
    assert flatout.explain()[-1].engine == "native"


def test_auto_leaves_it_to_the_backend_where_a_callback_looks_at_every_step(launcher: Any) -> None:
    class Counter(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    x, y = _blobs(40 * 32)
    with flatout.options(force=True):
        _fit(1, x, y, 1, callbacks=[Counter()])
    assert flatout.explain()[-1].engine == keras.config.backend()


def test_auto_leaves_other_models_to_the_backend(launcher: Any) -> None:
    x, y = _blobs(40 * 32)
    model = keras.Sequential([layers.Input((28, 28)), layers.Flatten(), layers.Dropout(0.1), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    with flatout.options(force=True):
        flatout.fit(model, x, y, batch_size=32, epochs=1, verbose=0)
    assert flatout.explain()[-1].engine == keras.config.backend()


def test_out_of_range_is_noticed_and_nothing_is_lost(launcher: Any) -> None:
    weights = []
    for fused in (True, False):
        model, (x, y) = _SEED.build(), _SEED.data()
        kernel = np.array(keras.ops.convert_to_numpy(model.layers[1].kernel))
        kernel[3, 7] = 300.0
        model.layers[1].kernel.assign(kernel)
        model._symbolic_build(data_batch=(x[:32], y[:32]))
        session = Session(staged_program(model, "train", 32, "float32", "int32", False), launcher)
        if fused:
            session.fuse("exact")
        session.bind(x, y)
        session.run("train", 0, 5, _SEED.rows)
        assert session.fused is None
        weights.append(variables(model))
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value, weights[1][name], err_msg=name)
