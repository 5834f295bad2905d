"""A step whose variables are joined comes to the same, whatever the optimizer; and joins what it should."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from keras import layers, optimizers

import flatout
from flatout.engines.jax import engine, joined_step
from flatout.engines.jax.engine import STATE_PARTS
from flatout.engines.jax.flat_step import FlatStep, flattened
from flatout.engines.jax.joined_step import JoinedStep, with_fewer_launches
from flatout.engines.jax.traced_step import traced_step

pytestmark = pytest.mark.backend("jax")

_ROWS = 8
_VOCABULARIES = (7, 11, 5, 7)
_OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "weight decay, clipped values": lambda: optimizers.AdamW(0.01, clipvalue=0.1),
    "nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "norms": lambda: optimizers.Lamb(0.01),
    "clipped norms": lambda: optimizers.Adam(0.01, clipnorm=0.1),
    "moving averages": lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2),
    "gradient accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
}


def _model(optimizer: Any) -> keras.Model:
    """Embeddings of two widths, one of them used twice, normalizations, biases and a layer that is frozen."""
    keras.utils.set_random_seed(3)
    words, numbers = keras.Input((6,), dtype="int32"), keras.Input((4,))
    embedded = [layers.Embedding(size, 3)(words[:, n]) for n, size in enumerate(_VOCABULARIES)]
    twice = layers.Embedding(9, 5)
    embedded += [layers.Flatten()(twice(words[:, 4:])), twice(words[:, 0]), layers.BatchNormalization()(numbers)]
    hidden = layers.Concatenate()(embedded)
    for width in (6, 7, 6):
        hidden = layers.LayerNormalization()(layers.Dense(width, activation="relu")(hidden))
        hidden = layers.Dropout(0.2)(layers.BatchNormalization()(hidden))
    model = keras.Model([words, numbers], layers.Dense(1, activation="sigmoid")(hidden))
    model.layers[-3].trainable = False
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(num_thresholds=5)])
    return model


def _batch(seed: int) -> Any:
    draw = np.random.default_rng(seed)
    words = draw.integers(-2, 13, (_ROWS, 6)).astype(np.int32)
    numbers, labels = draw.normal(size=(_ROWS, 4)), draw.integers(0, 2, (_ROWS, 1))
    return ((words, numbers.astype(np.float32)), labels.astype(np.float32), None)


def _traced(model: keras.Model, batch: Any) -> tuple[Any, Any]:
    """A step, and the state with which it begins."""
    x, y, _ = batch
    model.train_on_batch(list(x), y)
    names = STATE_PARTS["train"]
    parts = (model.optimizer.variables if name == "optimizer_variables" else getattr(model, name) for name in names)
    state = tuple([variable.value for variable in part] for part in parts)
    return traced_step(model, "train", state, batch, in_stock_function=False), state


@pytest.mark.slow
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_steps_come_to_the_same(name: str) -> None:
    step, state = _traced(_model(_OPTIMIZERS[name]()), _batch(0))
    joined = JoinedStep(flattened(step.jaxpr), step.spec)

    @jax.jit
    def both(state: Any, expected: Any, batch: Any) -> tuple[Any, Any]:
        plain = jax.core.eval_jaxpr(step.jaxpr.jaxpr, step.jaxpr.consts, *jax.tree.leaves((expected, batch)))
        return joined(state, batch), jax.tree.unflatten(jax.tree.structure(step.spec), plain)

    other, expected = joined.join(state), state
    for number in range(4):
        (logs, other), (expected_logs, expected) = both(other, expected, _batch(number))
        _assert_same(logs, expected_logs)
    _assert_same(joined.split(other), expected)
    # Norms are of a variable as a whole, and so are the branches of gradient accumulation.
    assert joined.alike == ([] if name in ("norms", "clipped norms", "gradient accumulation") else [19])


def _assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (np.shape(a), np.asarray(a).dtype) == (np.shape(b), np.asarray(b).dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def _assert_comes_to_the_same(step: Callable[..., Any], state: Any, batch: Any) -> JoinedStep:
    closed, spec = jax.make_jaxpr(step, return_shape=True)(state, batch)
    joined = JoinedStep(flattened(closed), spec)
    (value, after), expected = joined(joined.join(state), batch), step(state, batch)
    _assert_same((value, joined.split(after)), expected)
    return joined


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([1, 1, 3])), min_size=4, max_size=7),
    st.sampled_from(["clip", "fill", "promise_in_bounds"]),
    st.sampled_from([(), (2,), (2, 3)]),
    st.integers(0, 2**31),
)
def test_sums_into_rows_are_the_same(tables: list[tuple[int, int]], mode: str, shape: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    state = [jnp.asarray(draw.normal(size=table), jnp.float32) for table in tables]
    beyond = 0 if mode == "promise_in_bounds" else 3
    batch = [draw.integers(-beyond, rows + beyond, (4, *shape)).astype(np.int32) for rows, _ in tables]

    def step(state: list[Any], batch: list[Any]) -> tuple[Any, list[Any]]:
        def loss(state: list[Any]) -> Any:
            rows = (table.at[places].get(mode=mode) for table, places in zip(state, batch, strict=True))
            return sum(jnp.nan_to_num(row * row).sum() for row in rows)

        value, gradients = jax.value_and_grad(loss)(state)
        return value, [table - 0.1 * gradient for table, gradient in zip(state, gradients, strict=True)]

    joined = _assert_comes_to_the_same(step, state, batch)
    assert joined.alike == [len(tables)]
    # One sum for each width of rows.
    text = jax.jit(joined).lower(joined.join(state), batch).as_text()
    assert text.count('"stablehlo.scatter"') == len({width for _, width in tables})


def test_a_fit_comes_to_the_same(forced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[list[int]] = []

    class Noted(JoinedStep):
        def __init__(self, flat: FlatStep, spec: Any):
            super().__init__(flat, spec)
            joined.append(self.alike)

    monkeypatch.setattr(joined_step, "JoinedStep", Noted)
    monkeypatch.setattr(joined_step, "spares_launches", lambda: True)
    draw = np.random.default_rng(0)
    x = [draw.integers(0, 5, (70, 4)).astype(np.int32), draw.normal(size=(70, 8, 8, 1)).astype(np.float32)]
    y = draw.normal(size=(70, 1)).astype(np.float32)

    def trained(by: str) -> Any:
        keras.utils.set_random_seed(1)
        words, images = keras.Input((4,), dtype="int32"), keras.Input((8, 8, 1))
        parts = [layers.Embedding(5 + n, 2)(words[:, n]) for n in range(4)]
        parts.append(layers.Flatten()(layers.MaxPooling2D()(layers.Conv2D(2, 3)(images))))
        model = keras.Model([words, images], layers.Dense(1)(layers.Concatenate()(parts)))
        model.compile("adam", "mse", metrics=["mae"])
        told: list[float] = []
        tells = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: told.append(float(model.get_weights()[0].sum())))
        settings = {"engine": by, "batch_size": 8, "epochs": 3, "verbose": 0, "callbacks": [tells]}
        history = flatout.fit(model, x, y, validation_split=0.1, **settings)
        return list(history.history.values()), told, [variable.value for variable in model.optimizer.variables]

    monkeypatch.setattr(engine, "loop_pays_on_cpu", lambda cost: True)
    ours = trained("jax")
    assert joined == [[5]] * len(joined) != []
    _assert_same(ours, trained("stock"))


@pytest.mark.parametrize(
    ("rows", "tables", "is_multiplied", "alike"),
    [(3, 4, False, [4]), (3, 3, False, []), (3, 4, True, []), (2**16, 4, False, [4]), (2**16 + 1, 4, False, [])],
)
def test_what_stays_by_itself(rows: int, tables: int, is_multiplied: bool, alike: list[int]) -> None:
    """Few, large and multiplied tables."""

    def step(state: list[Any], batch: Any) -> tuple[Any, list[Any]]:
        def loss(state: list[Any]) -> Any:
            total = sum(jnp.square(table.at[batch].get(mode="clip")).sum() for table in state)
            return total + sum((table @ jnp.ones((2, 2))).sum() for table in state if is_multiplied)

        return (), [table - slope for table, slope in zip(state, jax.grad(loss)(state), strict=True)]

    state = [jnp.full((rows, 2), float(number)) for number in range(tables)]
    assert _assert_comes_to_the_same(step, state, jnp.ones(2, int)).alike == alike


def _sums(rows: int, batch: Any) -> Any:
    """As the gradient of an embedding."""
    return jnp.zeros(rows).at[batch].add(1.0)


def test_formulas_as_long_as_a_loop() -> None:
    def step(state: list[Any], batch: Any) -> tuple[Any, list[Any]]:
        total, states = batch.sum() * 1.0, list(state)
        for number in range(1500):
            total = total * 0.999 + number
            states = [value * 0.999 + number for value in states]
        return (), [value - total * _sums(len(value), batch) for value in states]

    state = [jnp.ones(number + 2) for number in range(4)]
    assert _assert_comes_to_the_same(step, state, jnp.ones(2, int)).alike == [4]


_RANDOM_KEY = jax.random.key(3)
_ROW = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def _two_of_three(table: Any, rows: Any) -> Any:
    return lax.gather(table, rows[:, None], _ROW, (1, 2), mode="clip")


def _unsigned(table: Any, rows: Any) -> Any:
    return lax.gather(table, rows[:, None].astype(jnp.uint32), _ROW, (1, 3), mode="fill")


def _beyond(table: Any, rows: Any) -> Any:
    """What the mode promises not to do."""
    return lax.gather(table, rows[:, None] + 3, _ROW, (1, 3), mode="promise_in_bounds")


def _drawn_otherwise(table: Any, rows: Any) -> Any:
    with jax.threefry_partitionable(False):
        return table[rows] * jax.random.normal(jax.random.PRNGKey(7), (5,))[0]


def _drawn_from_a_constant(table: Any, rows: Any) -> Any:
    return table[rows] * jax.random.normal(_RANDOM_KEY)


def _divided(table: Any, rows: Any) -> Any:
    mesh = jax.make_mesh((1,), ("one",), axis_types=(jax.sharding.AxisType.Auto,))
    part = jax.sharding.PartitionSpec("one")
    return jax.shard_map(jnp.square, mesh=mesh, in_specs=part, out_specs=part)(table)[rows]


@pytest.mark.parametrize(
    "takes", [_two_of_three, _unsigned, _beyond, _drawn_otherwise, _drawn_from_a_constant, _divided]
)
def test_unusual_operations(takes: Callable[..., Any]) -> None:
    def step(state: list[Any], batch: Any) -> tuple[Any, list[Any]]:
        def loss(state: list[Any]) -> Any:
            return sum(jnp.nan_to_num(jnp.square(takes(table, batch))).sum() for table in state)

        value, gradients = jax.value_and_grad(loss)(state)
        return value, [table - 0.1 * slope for table, slope in zip(state, gradients, strict=True)]

    state = [jnp.arange(3.0 * (number + 3)).reshape(-1, 3) for number in range(4)]
    _assert_comes_to_the_same(jax.jit(step), state, jnp.array([0, 2, 1, 2]))


def test_each_variable_is_joined_once() -> None:
    def step(state: list[Any], batch: Any) -> tuple[Any, list[Any]]:
        # What is kept of the last step does not come from what it was; the weights come from it.
        weights, kept = state[:4], state[4:]
        return (), [*map(jnp.subtract, weights, kept), *(_sums(len(value), batch) for value in kept)]

    state = [jnp.full(2, float(number)) for number in range(8)]
    joined = _assert_comes_to_the_same(step, state, jnp.ones(2, int))
    assert [np.shape(leaf) for leaf in jax.tree.leaves(joined.join(state))] == [(8,), (8,)]


def test_what_has_nothing_to_spare_keeps_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(takes: Callable[..., Any], state: Any, rows: Any) -> Any:
        def loss(state: Any) -> Any:
            return sum(takes(table.at[rows].get(mode="clip")).sum() for table in state)

        return (), [table - gradient for table, gradient in zip(state, jax.grad(loss)(state), strict=True)]

    def found(takes: Callable[..., Any], tables: int) -> JoinedStep | None:
        state = [jnp.ones((5, 2))] * tables
        return with_fewer_launches(*jax.make_jaxpr(partial(step, takes), return_shape=True)(state, jnp.ones(3, int)))

    monkeypatch.setattr(joined_step, "spares_launches", lambda: True)
    assert found(jnp.sin, 4) is not None
    assert found(jnp.sin, 3) is None
    # What shall be computed twice is not taken apart.
    assert found(jax.checkpoint(lambda rows: jnp.sin(jnp.sin(rows))), 4) is None
