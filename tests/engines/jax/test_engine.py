"""The jax engine: shared programs, the loop's forms, metrics read in one dispatch."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.engines.select import engine_for
from flatout.training.planning.costs import Costs

pytestmark = pytest.mark.backend("jax")

X = np.random.default_rng(1).standard_normal((200, 6)).astype("float32")
Y = np.random.default_rng(2).integers(0, 2, 200)


def make_model(rate: float = 0.1, **compiling: Any) -> keras.Model:
    model = keras.Sequential([layers.Input((6,)), layers.Dense(5), layers.Dense(1, activation="sigmoid")])
    compiling.setdefault("metrics", ["accuracy", keras.metrics.AUC(num_thresholds=10)])
    model.compile(keras.optimizers.Adam(rate), "binary_crossentropy", **compiling)
    return model


def fit(model: keras.Model, **arguments: Any) -> Any:
    with flatout.options(force=True):
        return flatout.fit(model, X, Y, **{"batch_size": 16, "verbose": 0, **arguments})


@pytest.mark.slow
def test_models_of_the_same_architecture_compile_once() -> None:
    from flatout.engines.jax import executables as jax_cache

    fit(make_model(), validation_split=0.2)
    known = set(jax_cache._executables)
    for rate in (0.01, 0.02, 0.03):
        fit(make_model(rate), validation_split=0.2)
    assert set(jax_cache._executables) == known
    fit(make_model(metrics=["mae"]), validation_split=0.2)
    assert set(jax_cache._executables) != known


@pytest.mark.slow
def test_a_constant_in_the_loss_is_part_of_the_program() -> None:
    """Two losses that differ in a captured array alone must not share an executable."""

    def loss_with(weights: np.ndarray) -> Any:
        return lambda y, p: keras.ops.mean(keras.ops.square(y - p) * weights)

    results = []
    for value in (1.0, 5.0):
        keras.utils.set_random_seed(1)
        model = make_model()
        model.compile("sgd", loss_with(np.full((1,), value, "float32")))
        results.append(fit(model).history["loss"][0])
    assert results[1] > 2 * results[0]


@pytest.mark.slow
def test_python_called_back_from_the_program_is_part_of_it() -> None:
    import jax

    def metric_with(factor: float) -> Any:
        def metric(y: Any, p: Any) -> Any:
            result = jax.ShapeDtypeStruct((), np.float32)
            return jax.pure_callback(lambda _: np.float32(factor), result, p)

        return metric

    results = []
    for factor in (1.0, 5.0):
        model = make_model(metrics=[metric_with(factor)])
        results.append(fit(model).history["metric"][0])
    assert results == [1.0, 5.0]


@pytest.mark.slow
def test_moving_averages_survive_evaluate_after_fit() -> None:
    """Stock Keras 3.15.1 fails here: a weight and its average share a buffer that is donated twice."""
    keras.utils.set_random_seed(5)
    model = make_model()
    optimizer = keras.optimizers.AdamW(0.01, use_ema=True, gradient_accumulation_steps=2)
    model.compile(optimizer, "binary_crossentropy")
    fit(model, epochs=2)
    with flatout.options(force=True):
        assert np.isfinite(flatout.evaluate(model, X, Y, verbose=0)).all()
    assert len(fit(model).history["loss"]) == 1


@pytest.mark.slow
def test_metrics_read_and_reset_in_one_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an accelerator does, done on the CPU."""
    from flatout.engines.jax import metric_dispatch as jax_metrics

    class NotACpu:
        @staticmethod
        def default_backend() -> str:
            return "gpu"

        device_get = staticmethod(jax_metrics.jax.device_get)

    model = make_model()
    fit(model)
    expected = {name: float(value) for name, value in model.get_metrics_result().items()}
    # Keras' own steps return the results as logs, which need not be computed again.
    monkeypatch.setattr(jax_metrics, "_returns_results", lambda model: False)
    monkeypatch.setattr(jax_metrics, "jax", NotACpu)
    got = jax_metrics.result(model, dict.fromkeys(expected))
    assert got.keys() == expected.keys()
    np.testing.assert_allclose([got[name] for name in expected], list(expected.values()), rtol=1e-6)
    assert jax_metrics.result(model, {"other": np.float32(1)}) == {"other": 1}
    jax_metrics.reset(model)
    assert all(float(np.sum(variable.numpy())) == 0 for variable in model.metrics_variables)
    # compile() makes new metrics, which must be found.
    model.compile("sgd", "mse", metrics=["mae"])
    fit(model)
    assert jax_metrics.result(model, dict.fromkeys(model.get_metrics_result())).keys() == {"loss", "mae"}


def test_logs_stand_for_results_only_if_the_steps_are_keras_own() -> None:
    from flatout.engines.jax import metric_dispatch as jax_metrics

    class Scaled(keras.Sequential):
        def compute_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            return {name: 2 * value for name, value in super().compute_metrics(*args, **kwargs).items()}

    model = make_model()
    assert jax_metrics._returns_results(model)
    model.train_step = lambda state, data: ({}, state)
    assert not jax_metrics._returns_results(model)
    assert not jax_metrics._returns_results(Scaled([keras.Input((2,)), keras.layers.Dense(1)]))


@pytest.mark.slow
@pytest.mark.parametrize("every_step", [False, True])
def test_a_chunk_in_one_program_equals_step_by_step(every_step: bool) -> None:
    """What a GPU does with the chunks of a stream, done on the CPU."""
    outcomes = []
    for is_whole in (False, True):
        keras.utils.set_random_seed(1)
        model = make_model()
        fit(model)
        engine = engine_for("jax")
        program = engine.prepare(model, "train", engine.send((X[:64], Y[:64])), 64, 16)
        for start in (0, 64):
            program.replace(engine.send((X[start : start + 64], Y[start : start + 64])), 64, 16)
            program._is_chunk = is_whole
            logs = program.run(0, 4, every_step)
            assert len(logs) == (4 if every_step else 1)
        program.end_pass()
        outcomes.append((float(logs[-1]["loss"]), model.get_weights()))
    (loss, weights), (whole_loss, whole_weights) = outcomes
    assert whole_loss == pytest.approx(loss, rel=1e-6)
    for one, other in zip(weights, whole_weights, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "forms"), [(64, ["whole"]), (72, ["loop", "rest"])])
def test_a_program_for_the_whole_is_for_chunks_of_full_batches(rows: int, forms: list[str]) -> None:
    model = make_model()
    model._symbolic_build(data_batch=(X[:16], Y[:16]))
    engine = engine_for("jax")
    program = engine.prepare(model, "train", engine.send((X[:rows], Y[:rows])), rows, 16)
    program._is_chunk = True
    ran = []
    program._advance = lambda form, *position: ran.append(form[0])
    program.run(0, len(range(0, rows, 16)), every_step=False)
    assert ran == forms


def test_predicts_in_other_pieces_share_no_program() -> None:
    model = make_model()
    expected = model.predict(X[:192], batch_size=16, verbose=0)
    engine = engine_for("jax")
    for steps in (2, 12):
        program = engine.prepare(model, "predict", engine.place((X[:192],)), 192, 16, output_bytes=steps * 16 * 4)
        assert program.longest == steps
        program.begin_pass(None)
        outputs = [output for start in range(0, 12, steps) for output in program.run(start, start + steps, False)]
        program.end_pass()
        np.testing.assert_array_equal(np.concatenate(outputs), expected)


@pytest.mark.parametrize("steps", [1, 7, 200, 1875, 1876, 40_000])
def test_units_leave_few_steps_over(steps: int) -> None:
    from flatout.engines.jax.compiled_loop import Cost, choose_unit

    unit = choose_unit(steps, Cost(operations=1e7, has_loop=False, has_convolution=False))
    assert 1 <= unit <= 128
    assert steps % unit <= 3
    assert choose_unit(steps, Cost(1e15, has_loop=False, has_convolution=False)) == 1
    assert choose_unit(steps, Cost(1e7, has_loop=True, has_convolution=False)) == 1


def test_loops_on_the_cpu_only_for_short_steps_without_convolution() -> None:
    from flatout.engines.jax.compiled_loop import Cost, loop_pays_on_cpu

    assert loop_pays_on_cpu(Cost(1e7, has_loop=False, has_convolution=False))
    assert not loop_pays_on_cpu(Cost(1e7, has_loop=False, has_convolution=True))
    assert not loop_pays_on_cpu(Cost(1e7, has_loop=True, has_convolution=False))
    assert not loop_pays_on_cpu(Cost(1e10, has_loop=False, has_convolution=False))


def test_the_operations_of_a_step_are_counted() -> None:
    import jax

    from flatout.engines.jax.compiled_loop import cost_of

    product = jax.make_jaxpr(lambda a, b: a @ b)(np.zeros((3, 5)), np.zeros((5, 7)))
    assert cost_of(product.jaxpr).operations == 2 * 3 * 5 * 7
    convolution = jax.make_jaxpr(lambda a, k: jax.lax.conv(a, k, (1, 1), "SAME"))
    cost = cost_of(convolution(np.zeros((2, 3, 8, 8)), np.zeros((4, 3, 3, 3))).jaxpr)
    assert cost.operations == 2 * (2 * 4 * 8 * 8) * 3 * 3 * 3
    assert cost.has_convolution


@pytest.mark.slow
def test_a_model_whose_steps_take_long_is_left_to_stock_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Costs, "saved_by", lambda self, steps: 1.0)
    model = keras.Sequential([layers.Input((600, 6)), layers.LSTM(4), layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((80, 600, 6), "float32")
    flatout.fit(model, x, np.zeros(80), batch_size=80, verbose=0)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["no_gain"]


def test_a_step_that_cannot_be_traced_runs_on_stock_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    class Python(keras.Sequential):
        def train_step(self, state: Any, data: Any) -> Any:
            logs, state = super().train_step(state, data)
            return {**logs, "note": "a string"}, state

    model = Python([layers.Input((6,)), layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=True)
    with pytest.raises(Exception, match="str"):
        fit(model)
    with flatout.options(force=True, strict=True), pytest.raises(flatout.FallbackRefused, match="untraceable"):
        fit(model)
