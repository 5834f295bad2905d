"""Keras' recurrent layers by our kernels return what they return by Keras' own code, and so do their gradients."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import flatout
from flatout.engines.jax import executables, triton_gpu
from flatout.engines.jax.recurrent import recurrent_choice, recurrent_layers
from flatout.engines.jax.recurrent.recurrent_layers import reasons_of, recurrent_kernels
from flatout.seam.trainers import stock_has_traced

pytestmark = pytest.mark.backend("jax")

STEPS, INPUTS = 5, 3
RIGHT_PADDED, ARBITRARY = "right-padded", "arbitrary"


def sequences(rows: int, steps: int = STEPS) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, steps, INPUTS)).astype("float32")


def make_mask(kind: str | None, rows: int) -> Any:
    random = np.random.default_rng(2)
    if kind == RIGHT_PADDED:
        return np.arange(STEPS) < random.integers(0, STEPS + 1, rows)[:, None]
    return random.random((rows, STEPS)) < 0.5 if kind == ARBITRARY else None


def outcome(layer: Any, x: Any, **call: Any) -> Any:
    """Outputs and states of a call, gradients of inputs, initial states and weights, and what variables become."""
    trained, others = ([variable.value for variable in found] for found in _variables(layer))
    states = call.pop("initial_state", None)

    def total(trained: Any, x: Any, states: Any) -> Any:
        more = {} if states is None else {"initial_state": states}
        results, after = layer.stateless_call(trained, others, x, **more, **call)
        leaves = jax.tree.leaves(results)
        parts = [leaf * jnp.cos(jnp.arange(leaf.size).reshape(leaf.shape)).astype(leaf.dtype) for leaf in leaves]
        return sum(part.astype("float32").sum() for part in parts), (results, after)

    differentiated = (0, 1) if states is None else (0, 1, 2)
    return jax.jit(jax.value_and_grad(total, argnums=differentiated, has_aux=True))(trained, x, states)


def _variables(layer: Any) -> tuple[list[Any], list[Any]]:
    return layer.trainable_variables, layer.non_trainable_variables


def assert_same(layer: Any, x: Any, tolerance: float = 1e-5, **call: Any) -> None:
    expected = outcome(layer, x, **call)
    with recurrent_kernels(interpret=True) as decided:
        found = outcome(layer, x, **call)
    assert decided
    assert set(decided.values()) == {""}
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        one, other = np.asarray(one, "float32"), np.asarray(other, "float32")
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max())))


def built(make: Callable[[], Any], rows: int) -> Any:
    keras.utils.set_random_seed(3)
    layer = make()
    layer.build((rows, STEPS, INPUTS))
    random = np.random.default_rng(4)
    # Biases that are not 0 tell where they were added.
    layer.set_weights([weight + random.normal(0, 0.3, weight.shape) for weight in layer.get_weights()])
    return layer


ALL: dict[str, Any] = {"return_sequences": True, "return_state": True}
CASES: dict[str, tuple[Callable[[], Any], int, str | None, int]] = {
    # Each with its rows, its mask, and how many initial states it is given.
    "lstm": (lambda: layers.LSTM(5), 3, None, 0),
    "lstm, all": (lambda: layers.LSTM(16, go_backwards=True, **ALL), 16, ARBITRARY, 2),
    "lstm, no bias": (lambda: layers.LSTM(17, use_bias=False, return_sequences=True), 18, RIGHT_PADDED, 0),
    "lstm cell": (lambda: layers.RNN(layers.LSTMCell(4), **ALL), 2, None, 2),
    "gru": (lambda: layers.GRU(5, **ALL), 3, RIGHT_PADDED, 0),
    "gru, all": (lambda: layers.GRU(6, go_backwards=True, **ALL), 17, ARBITRARY, 1),
    "gru, no bias": (lambda: layers.GRU(4, use_bias=False, go_backwards=True), 2, None, 0),
    "simple": (lambda: layers.SimpleRNN(5, **ALL), 3, None, 1),
    "simple, all": (lambda: layers.SimpleRNN(3, go_backwards=True, return_state=True), 4, ARBITRARY, 1),
    "both ways": (lambda: layers.Bidirectional(layers.LSTM(5, **ALL)), 3, None, 4),
    "both ways, masked": (lambda: layers.Bidirectional(layers.GRU(5, **ALL), merge_mode="sum"), 17, ARBITRARY, 0),
    "both ways, unlike": (
        lambda: layers.Bidirectional(layers.LSTM(4), backward_layer=layers.LSTM(6, go_backwards=True)),
        *(2, RIGHT_PADDED, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_return_what_they_return_by_keras_own_code(name: str) -> None:
    make, rows, kind, count = CASES[name]
    layer = built(make, rows)
    call: dict[str, Any] = {"mask": make_mask(kind, rows)}
    if count:
        units = getattr(layer, "forward_layer", layer).cell.units
        call["initial_state"] = [np.full((rows, units), 0.1 * n + 0.1, "float32") for n in range(count)]
    assert_same(layer, sequences(rows), **call)


@pytest.mark.parametrize("backwards", [False, True])
def test_outputs_of_masked_steps_are_zeros_where_the_layer_says_so(backwards: bool) -> None:
    more = {"go_backwards": backwards, "zero_output_for_mask": True, **ALL}
    layer = built(lambda: layers.RNN(layers.GRUCell(4), **more), 3)
    assert_same(layer, sequences(3), mask=make_mask(ARBITRARY, 3))


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_stateful_layers_go_on_where_they_stopped(kind: Any) -> None:
    layer = built(lambda: kind(4, stateful=True, return_sequences=True), 2)
    layer.states[0].assign(np.full((2, 4), 0.2))
    assert_same(layer, sequences(2))


def test_stateful_layers_go_on_both_ways() -> None:
    layer = built(lambda: layers.Bidirectional(layers.GRU(4, stateful=True)), 2)
    layer.backward_layer.states[0].assign(np.full((2, 4), 0.2))
    assert_same(layer, sequences(2))


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_half_precision_is_near_keras_own(kind: Any) -> None:
    layer = built(lambda: layers.Bidirectional(kind(6, dtype="mixed_bfloat16"), dtype="mixed_bfloat16"), 3)
    assert_same(layer, sequences(3), tolerance=0.05, mask=make_mask(RIGHT_PADDED, 3))


def test_inputs_are_dropped_as_keras_drops_them() -> None:
    for make in (lambda: layers.LSTM(4, dropout=0.5, seed=1), lambda: layers.SimpleRNN(4, dropout=0.5, seed=1)):
        assert_same(built(make, 3), sequences(3), training=True)


def test_layers_can_be_computed_again_for_their_gradients() -> None:
    def make() -> Any:
        with keras.RematScope(mode="full"):
            return layers.Bidirectional(layers.LSTM(4, return_sequences=True))

    assert_same(built(make, 3), sequences(3))


def test_both_directions_are_one_kernel() -> None:
    layer = built(lambda: layers.Bidirectional(layers.LSTM(4)), 2)
    with recurrent_kernels(interpret=True):
        traced = jax.jit(lambda x: layer(x)).trace(sequences(2))
    assert str(traced.jaxpr).count("pallas_call") == 1


def test_other_layers_are_left_to_keras_with_the_reason() -> None:
    layer = built(lambda: layers.LSTM(4, activation="relu", name="odd"), 2)
    expected = outcome(layer, sequences(2))
    with recurrent_kernels(interpret=True) as decided:
        found = outcome(layer, sequences(2))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert [str(why) for why in reasons_of(decided)] == [
        "recurrent_layer: Keras' own code runs the layer odd: its activation is not tanh."
    ]


def test_keras_is_as_it_was_afterwards_and_for_other_threads_meanwhile() -> None:
    before = {cls: vars(cls)["inner_loop"] for cls in (layers.RNN, layers.LSTM, layers.GRU)}
    layer, traced = built(lambda: layers.LSTM(4), 2), []

    def trace() -> None:
        traced.append(str(jax.jit(lambda x: layer(x)).trace(sequences(2)).jaxpr))

    with contextlib.suppress(ZeroDivisionError), recurrent_kernels(interpret=True):
        other = threading.Thread(target=trace)
        other.start()
        other.join()
        raise ZeroDivisionError
    assert "pallas_call" not in traced[0]
    assert all(vars(cls)["inner_loop"] is method for cls, method in before.items())


def trained(fit: Callable[..., Any]) -> Any:
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            layers.Embedding(7, 3, mask_zero=True),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            layers.GRU(3),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5), "mse")
    random = np.random.default_rng(6)
    fit(model, random.integers(0, 7, (11, 4)), random.normal(size=11), batch_size=4, epochs=2, verbose=0)
    return model


def test_a_fit_takes_the_kernels_and_leaves_keras_own_function_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = trained(keras.Model.fit)
    interpreted(monkeypatch)
    with flatout.options(force=True):
        model = trained(flatout.fit)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["recurrent_kernels"]
    assert not stock_has_traced(model, "train")
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fails", ["lowered", "compiled"])
def test_a_fit_goes_on_with_keras_own_code_where_a_kernel_cannot_be(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(keras.Model.fit)
    # A GPU that is none: its kernels are chosen, and no compiler has them.
    monkeypatch.setattr(triton_gpu, "capability", lambda: "9.0")
    if fails == "compiled":
        monkeypatch.setattr(recurrent_layers, "recurrence", _unknown_to_xla)
    with flatout.options(force=True):
        model = trained(flatout.fit)
    (why,) = flatout.explain()[-1].reasons
    assert why.code == "kernels_left"
    assert ("_unknown_to_xla" if fails == "compiled" else "interpret mode") in why.message
    for one, other in zip(model.get_weights(), expected.get_weights(), strict=True):
        # As the steps of a loop are rounded where XLA optimizes little, as in these tests.
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of a GPU, on a CPU."""
    real = recurrent_layers.recurrent_kernels
    monkeypatch.setattr(triton_gpu, "capability", lambda: "9.0")
    monkeypatch.setattr(recurrent_layers, "recurrent_kernels", lambda: real(interpret=True))


def test_an_error_of_the_users_own_is_not_the_kernels_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(layers.Layer):
        def compute_output_shape(self, shape: Any) -> Any:
            return shape

        def call(self, inputs: Any) -> Any:
            return inputs + jnp.zeros((4, 3))

    interpreted(monkeypatch)
    model = keras.Sequential([layers.Input((STEPS, INPUTS)), layers.LSTM(3), Fixed(), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = sequences(11), np.zeros(11, "float32")
    with flatout.options(force=True):
        with pytest.raises(TypeError):
            flatout.fit(model, x, y, batch_size=4, verbose=0)
        flatout.fit(model, x[:8], y[:8], batch_size=4, verbose=0)
    assert [why.code for why in flatout.explain()[-1].reasons] == ["recurrent_kernels"]


def test_kernels_are_left_before_the_first_step_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted(monkeypatch)
    compile_shared, compiled, told = executables.compile_shared, [], []

    def fails_for_the_last_batch(function: Any, arguments: Any, **options: Any) -> Any:
        compiled.append(function)
        wait = compile_shared(function, arguments, **options)
        return (lambda: {}["no memory for it"]) if len(compiled) == 2 else wait

    monkeypatch.setattr(executables, "compile_shared", fails_for_the_last_batch)
    seen = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: told.append(len(compiled)))
    with flatout.options(force=True):
        trained(lambda model, *data, **options: flatout.fit(model, *data, callbacks=[seen], **options))
    assert [why.code for why in flatout.explain()[-1].reasons] == ["kernels_left"]
    # Two with kernels and two without; none is compiled in the middle of an epoch.
    assert set(told) == {4}


def test_a_kernel_that_cannot_be_traced_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_gpu, "capability", lambda: "9.0")

    def fails(*_: Any) -> Any:
        raise AttributeError("another version of Pallas")

    monkeypatch.setattr(recurrent_layers, "recurrence", fails)
    with flatout.options(force=True):
        trained(flatout.fit)
    report = flatout.explain()[-1]
    assert report.accelerated
    assert [why.code for why in report.reasons] == ["kernels_left"]
    assert "another version of Pallas" in report.reasons[0].message


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unknown_to_xla(form: Any, inputs: Any, weights: Any, initial: Any, mask: Any) -> Any:
    rows, steps, directions, _, units = inputs.shape
    shapes = [(rows, steps, directions, units), *(state.shape for state in initial)]
    call = jax.ffi.ffi_call("_unknown_to_xla", [jax.ShapeDtypeStruct(shape, inputs.dtype) for shape in shapes])
    outputs, *last = call(inputs, weights, *initial)
    return outputs, tuple(last)


def _keep(form: Any, *given: Any) -> Any:
    return _unknown_to_xla(form, *given), given


def _without_gradient(form: Any, given: Any, gradients: Any) -> Any:
    others = given[:-1]
    return *jax.tree.map(jnp.zeros_like, others), None


_unknown_to_xla.defvjp(_keep, _without_gradient)


def test_what_cudnn_would_run_at_once_is_one_kernel_in_the_order_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = built(lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True)), 2)
    expected = layer(sequences(2))
    monkeypatch.setattr(recurrent_choice.backend, "cudnn_ok", lambda *_, **__: True)
    with recurrent_kernels(interpret=True) as decided:
        found = jax.jit(lambda x: layer(x))(sequences(2))
    if hasattr(layers.Bidirectional, "_can_attempt_fused_lstm"):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert set(decided.values()) == {""}
    else:
        # Keras calls cuDNN for each, and has the second one in another order.
        assert [bool(why) for why in decided.values()] == [False, True]
