"""On a GPU, recurrent layers as kernels train models as stock Keras does, within float32 rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.bench.models import SEQUENCE, VOCABULARY, lstm
from flatout.many.waves import run_candidates as waves

pytestmark = [pytest.mark.gpu, pytest.mark.backend("jax"), pytest.mark.usefixtures("full_precision")]

if keras.config.backend() == "jax":
    import jax
    import jax.numpy as jnp

    from flatout.engines.jax import triton_gpu
    from flatout.engines.jax.recurrent import recurrent_choice as choice
    from flatout.engines.jax.recurrent.cells import GRU, LSTM, SIMPLE, TILE
    from flatout.engines.jax.recurrent.recurrence import recurrence

    CELLS = {"lstm": LSTM, "gru": GRU, "simple": SIMPLE}
    LAYERS = {"lstm": layers.LSTMCell, "gru": layers.GRUCell, "simple": layers.SimpleRNNCell}

ROWS, BATCH, STEPS = 80, 32, 20
# The largest of each that the choice allows, and smaller ones.
WIDTHS = [
    *(("lstm", "float32", 16), ("lstm", "float32", 64), ("lstm", "float32", 128), ("lstm", "bfloat16", 128)),
    *(("gru", "float32", 32), ("gru", "float32", 64), ("gru", "float32", 128), ("gru", "bfloat16", 128)),
    *(("simple", "float32", 64), ("simple", "float32", 128), ("simple", "bfloat16", 128)),
]


# Sequences of which a program takes one, a few, or as many as the GPU multiplies at once.
SEQUENCES = [1, 800, None]


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("sequences", SEQUENCES)
@pytest.mark.parametrize(("name", "dtype", "units"), WIDTHS)
def test_kernels_equal_plain_operations(
    name: str, dtype: str, units: int, sequences: int | None, is_masked: bool
) -> None:
    chosen = choice.form_for(LAYERS[name](units, dtype=dtype), sequences)
    if chosen is None:
        pytest.skip("too wide for this GPU")
    if sequences is not None and chosen.rows == TILE:
        pytest.skip("its recurrent kernels do not fit into registers")
    cell, random = CELLS[name], np.random.default_rng(0)
    rows, steps, ways = 3 * TILE, 50, (False, True)

    def numbers(*shape: int) -> Any:
        return jnp.asarray(random.normal(0, 1, shape), dtype)

    initial = tuple(numbers(rows, 2, units) for _ in range(cell.states))
    weights = numbers(2, len(cell.products), units, units) / units**0.5
    mask = jnp.asarray(random.random((rows, steps)) < 0.7, "int32") if is_masked else None
    given = numbers(rows, steps, 2, cell.gates, units), weights, initial, mask
    scales = numbers(rows, steps, 2, units)

    def outcome(form: Any) -> Any:
        def total(*parts: Any) -> Any:
            outputs, last = recurrence(form, *parts)
            return (outputs * scales).astype("float32").sum() + sum(one.astype("float32").sum() for one in last), last

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*given)

    tolerance = 2e-5 if dtype == "float32" else 0.05
    plain = replace(chosen, backwards=ways, interpret=True, is_split=False)
    found, expected = (jax.tree.leaves(outcome(form)) for form in (replace(chosen, backwards=ways), plain))
    for one, other in zip(found, expected, strict=True):
        one, other = np.asarray(one, "float32"), np.asarray(other, "float32")
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max())))


def tokens(rows: int = ROWS, steps: int = STEPS, vocabulary: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of several lengths, filled up with 0, and a number for each."""
    random = np.random.default_rng(1)
    x = random.integers(1, vocabulary, (rows, steps)).astype("int32")
    x[np.arange(steps) >= random.integers(1, steps + 1, rows)[:, None]] = 0
    return x, random.normal(size=rows).astype("float32")


def model_of(*recurrent: Any, is_masked: bool = False, rows: int | None = None) -> Any:
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(rows, STEPS), dtype="int32"),
            layers.Embedding(50, 24, mask_zero=is_masked),
            *recurrent,
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "gru": lambda: model_of(layers.GRU(32, return_sequences=True), layers.GRU(20)),
    "simple": lambda: model_of(layers.SimpleRNN(32, return_sequences=True), layers.SimpleRNN(16, go_backwards=True)),
    "stacked": lambda: model_of(layers.LSTM(64, return_sequences=True), layers.LSTM(33)),
    "masked": lambda: model_of(layers.LSTM(32, return_sequences=True), layers.GRU(16), is_masked=True),
    "masked, both ways": lambda: model_of(
        layers.Bidirectional(layers.LSTM(24, return_sequences=True)),
        layers.Bidirectional(layers.GRU(24), merge_mode="sum"),
        is_masked=True,
    ),
    "wide": lambda: model_of(layers.LSTM(100, return_sequences=True), layers.GRU(128)),
    "dropout": lambda: model_of(layers.LSTM(32, dropout=0.2, seed=1)),
}


def trained(make: Callable[[], Any], data: Any, engine: str, **call: Any) -> Any:
    keras.utils.set_random_seed(7)
    model = make()
    with flatout.options(force=True):
        flatout.fit(model, *data, **{"batch_size": BATCH, "epochs": 3, "verbose": 0, "engine": engine, **call})
    return model


def assert_same(make: Callable[[], Any], data: Any, **call: Any) -> None:
    expected = trained(make, data, "stock", **call)
    model = trained(make, data, "jax", **call)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["recurrent_kernels"]
    np.testing.assert_allclose(model.history.history["loss"], expected.history.history["loss"], rtol=1e-4)
    for variable, other in zip(model.variables, expected.variables, strict=True):
        one, other = keras.ops.convert_to_numpy(variable), keras.ops.convert_to_numpy(other)
        scale = float(np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * scale + 1e-6, err_msg=variable.path)
    found, wanted = (one.predict(data[0], batch_size=BATCH, verbose=0) for one in (model, expected))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_small_models_end_where_stock_keras_ends(name: str) -> None:
    assert_same(MODELS[name], tokens())


def test_a_stateful_model_ends_where_stock_keras_ends() -> None:
    def make() -> Any:
        return model_of(layers.GRU(16, stateful=True), rows=BATCH)

    assert_same(make, tokens(2 * BATCH), shuffle=False)


def test_the_model_of_the_bench_ends_where_stock_keras_ends() -> None:
    def make() -> Any:
        model = lstm()
        # Adam makes a full step of the rounding of a gradient that is nearly 0.
        model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
        return model

    x, y = tokens(8 * BATCH, SEQUENCE, VOCABULARY)
    assert_same(make, (x, (y > 0).astype("float32")), epochs=1)


def test_half_precision_trains_as_well() -> None:
    def make() -> Any:
        with_both = layers.Bidirectional(layers.LSTM(64, dtype="mixed_bfloat16"), dtype="mixed_bfloat16")
        return model_of(with_both, is_masked=True)

    expected, model = (trained(make, tokens(), engine, epochs=5) for engine in ("stock", "jax"))
    np.testing.assert_allclose(model.history.history["loss"], expected.history.history["loss"], rtol=0.05)


def test_many_models_are_mapped() -> None:
    def make(learning_rate: float) -> Any:
        model = MODELS["masked"]()
        model.optimizer.learning_rate = learning_rate
        return model

    points = flatout.grid(seed=range(2), learning_rate=[0.1, 0.05])
    many = flatout.fit_many(make, points, *tokens(), epochs=2, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.MAPPED: 4}
    keras.utils.set_random_seed(1)
    alone = make(0.05)
    with flatout.options(force=True):
        flatout.fit(alone, *tokens(), epochs=2, batch_size=BATCH, verbose=0)
    for one, other in zip(many.models[3].get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_wide_models_that_cudnn_runs_are_beside_each_other() -> None:
    def make() -> Any:
        return model_of(layers.LSTM(256))

    many = flatout.fit_many(make, flatout.grid(seed=range(2)), *tokens(), epochs=2, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.INTERLEAVED: 2}
    keras.utils.set_random_seed(1)
    alone = make()
    with flatout.options(force=True):
        flatout.fit(alone, *tokens(), epochs=2, batch_size=BATCH, verbose=0)
    for one, other in zip(many.models[1].get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.fixture
def too_large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Makes models whose kernels need more shared memory than there is, of which the choice knows nothing."""
    monkeypatch.setitem(choice._MORE_SHARED_MEMORY, triton_gpu.capability(), 2**20)
    return lambda: model_of(layers.LSTM(128, return_sequences=True), layers.GRU(16))


def test_a_fit_whose_kernels_cannot_be_compiled_goes_on_without(too_large: Callable[[], Any]) -> None:
    expected = trained(too_large, tokens(), "stock")
    model = trained(too_large, tokens(), "jax")
    (why,) = flatout.explain()[-1].reasons
    assert why.code == "kernels_left"
    assert "shared memory" in why.message.lower()
    np.testing.assert_allclose(model.history.history["loss"], expected.history.history["loss"], rtol=1e-4)


def test_many_models_whose_kernels_cannot_be_compiled_go_on_without(too_large: Callable[[], Any]) -> None:
    many = flatout.fit_many(too_large, flatout.grid(seed=range(2)), *tokens(), epochs=1, batch_size=BATCH, verbose=0)
    assert many.ways == {waves.INTERLEAVED: 2}
    assert [why.code for why in flatout.explain()[-1].reasons] == ["not_mapped", "kernels_left"]
