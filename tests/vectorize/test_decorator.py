"""`flatout.vectorize` as users meet it: what it returns, keeps, says and does inside `fit`."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import flatout
from flatout.check.examining.examine import findings_of
from flatout.runner.explain import about_loss

from .losses.helpers import MarginLoss, batch_helper
from .losses.loops import batch_zip

pytestmark = pytest.mark.turns

SCALE = 2.0
SQUARED = False


def loop(y_true, y_pred):
    """Mean squared error, the slow way."""
    total = 0.0
    for i in range(y_true.shape[0]):
        total = total + SCALE * ops.mean(ops.square(y_true[i] - y_pred[i]))
    return total / y_true.shape[0]


def recurrence(y_true, y_pred):
    state = ops.zeros_like(y_pred[:, 0])
    for t in range(y_pred.shape[1]):
        state = ops.tanh(state + y_pred[:, t])
    return ops.mean(state)


def whole_arrays(y_true, y_pred):
    return sum(ops.mean(ops.square(y_true - y_pred)) * weight for weight in (0.5, 0.25))


def reads_on_the_host(y_true, y_pred):
    weight = float(y_true.numpy().mean())
    return weight * ops.mean(ops.square(y_true - y_pred))


def _arrays(batch: int = 6, width: int = 3):
    rng = np.random.default_rng(0)
    return [ops.convert_to_tensor(rng.normal(size=(batch, width)).astype("float32")) for _ in range(2)]


def test_keeps_name_doc_and_signature() -> None:
    quick = flatout.vectorize(loop)
    assert quick.__name__ == "loop"
    assert quick.__doc__ == loop.__doc__
    assert inspect.signature(quick) == inspect.signature(loop)
    assert quick.__wrapped__ is loop


def test_applied_source_reason_and_explain() -> None:
    quick = flatout.vectorize(loop)
    assert quick.applied
    assert quick.reason is None
    assert quick.source.startswith("def loop(y_true, y_pred):")
    assert "for " not in quick.source
    text = quick.explain()
    assert quick.source.splitlines()[1].strip() in text
    assert "Verified equal in value (2e-5) and gradient (2e-4" in text
    assert "batch of 1" in text
    assert "NaN in the predictions" in text
    assert "Measured now" in text


def test_a_recurrence_is_kept_with_a_logged_reason(caplog: pytest.LogCaptureFixture) -> None:
    quick = flatout.vectorize(recurrence)
    with caplog.at_level(logging.WARNING, "flatout"):
        assert not quick.applied
    assert "'state' is carried from one step to the next" in quick.reason
    assert quick.reason in caplog.text
    y_true, y_pred = _arrays()
    np.testing.assert_array_equal(
        ops.convert_to_numpy(quick(y_true, y_pred)), ops.convert_to_numpy(recurrence(y_true, y_pred))
    )
    assert "the original is kept" in quick.explain()


def test_strict_raises_with_the_reason() -> None:
    with pytest.raises(flatout.CannotVectorize, match="recurrence: FO106: 'state' is carried"):
        flatout.vectorize(recurrence, strict=True)

    @flatout.vectorize(strict=True)
    def fine(y_true, y_pred):
        return sum(ops.max(ops.abs(y_true[i] - y_pred[i])) for i in range(y_true.shape[0]))

    assert fine.applied


@pytest.mark.slow
def test_other_ranks_are_verified_on_their_own() -> None:
    quick = flatout.vectorize(loop)
    rng = np.random.default_rng(1)
    for shape in [(4,), (4, 3), (4, 3, 2)]:
        y_true, y_pred = (ops.convert_to_tensor(rng.normal(size=shape).astype("float32")) for _ in range(2))
        np.testing.assert_allclose(
            ops.convert_to_numpy(quick(y_true, y_pred)), ops.convert_to_numpy(loop(y_true, y_pred)), rtol=2e-5
        )
    assert len(quick._decisions) == 3


def test_a_global_number_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = flatout.vectorize(loop)
    y_true, y_pred = _arrays()
    before = float(quick(y_true, y_pred))
    monkeypatch.setitem(loop.__globals__, "SCALE", 4.0)
    assert float(quick(y_true, y_pred)) == pytest.approx(2 * before)


def test_a_constant_that_decided_a_branch_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def branching(y_true, y_pred):
        total = 0.0
        for i in range(y_true.shape[0]):
            error = ops.sum(ops.abs(y_true[i] - y_pred[i]))
            if SQUARED:
                error = ops.square(error)
            total = total + error
        return total

    quick = flatout.vectorize(branching)
    y_true, y_pred = _arrays()
    assert quick.applied
    monkeypatch.setitem(branching.__globals__, "SQUARED", True)
    assert float(quick(y_true, y_pred)) == pytest.approx(float(branching(y_true, y_pred)), rel=1e-5)


@pytest.mark.slow
def test_loss_objects_and_classes() -> None:
    loss = MarginLoss(margin=0.7)
    quick = flatout.vectorize(loss)
    y_true, y_pred = _arrays()
    assert quick.applied, quick.reason
    assert isinstance(quick, MarginLoss)
    assert quick.name == "margin"
    assert float(quick(y_true, y_pred)) == pytest.approx(float(loss(y_true, y_pred)), rel=1e-5)
    quick.margin = 2.0
    assert float(quick(y_true, y_pred)) == pytest.approx(float(MarginLoss(2.0)(y_true, y_pred)), rel=1e-5)
    made = flatout.vectorize(MarginLoss)(margin=0.7)
    assert made.applied
    assert float(made(y_true, y_pred)) == pytest.approx(float(loss(y_true, y_pred)), rel=1e-5)


def test_refuses_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="takes a function, a method or a Loss object"):
        flatout.vectorize(3)


def _model(loss):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.01), loss=loss)
    return model


@pytest.mark.slow
def test_trains_as_the_original_does(forced: None) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 16, 4)).astype("float32")
    losses = [
        _model(loss).fit(x, y[:, :3], batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
        for loss in (batch_helper, flatout.vectorize(batch_helper))
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_the_runner_vectorizes_what_compile_is_given(forced: None) -> None:
    flatout.enable(vectorize=True)
    x, y = np.random.default_rng(0).normal(size=(2, 16, 4)).astype("float32")
    _model(batch_zip).fit(x, y[:, :3], batch_size=8, verbose=0)
    said = [str(why) for why in flatout.explain()[-1].reasons]
    assert any(text.startswith("vectorized: `batch_zip` (") for text in said), said
    flatout.disable()
    assert not hasattr(keras.Model.compile, "__wrapped__") or "vectorize" not in str(keras.Model.compile)


@pytest.mark.backend("torch")
def test_a_loop_in_a_loss_is_named_in_the_report(forced: None) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 16, 4)).astype("float32")
    flatout.fit(_model(loop), x, y[:, :3], batch_size=8, verbose=0)
    said = [why for why in flatout.explain()[-1].reasons if why.code == "loss_loop"]
    assert "`loop` (" in said[0].message
    assert "test_decorator.py:" in said[0].message
    assert f"FO101 in line {loop.__code__.co_firstlineno + 3}" in said[0].message


@pytest.mark.backend("jax")  # The source is read, not run.
def test_the_report_and_the_checker_say_the_same() -> None:
    from flatout.check.examining.examine import check_paths

    whole = check_paths([__file__], "jax")
    first = loop.__code__.co_firstlineno
    mine = [one for one in whole if first <= one.line <= first + 5]
    assert {(one.code, one.line) for one in findings_of(loop, "jax")} == {(one.code, one.line) for one in mine} != set()
    assert {one.code for one in findings_of(MarginLoss.call, "jax")} >= {"FO101"}
    assert findings_of(keras.losses.mean_squared_error, "jax") == ()
    assert not [one for one in findings_of(whole_arrays, "jax") if one.severity != "info"]


@pytest.mark.backend("tensorflow")
def test_what_cannot_be_compiled_is_named_in_the_report(forced: None) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 16, 4)).astype("float32")
    with pytest.raises(Exception, match="numpy"):
        flatout.fit(_model(reads_on_the_host), x, y[:, :3], batch_size=8, verbose=0)
    said = [str(why) for why in about_loss(reads_on_the_host)]
    assert any("cannot be compiled here: FO201 in line" in text for text in said), said


@pytest.mark.backend("tensorflow")
def test_a_mapped_batch_of_unknown_length_is_array_code() -> None:
    import tensorflow as tf

    def loss(y_true, y_pred):
        errors = tf.map_fn(lambda pair: ops.mean(ops.square(pair[0] - pair[1])), (y_true, y_pred), "float32")
        return ops.sum(errors) / ops.cast(ops.shape(y_true)[0], "float32")

    quick = flatout.vectorize(loss)
    assert quick.applied, quick.reason
    spec = tf.TensorSpec((None, 3), "float32")
    traced = tf.function(quick, input_signature=[spec, spec])
    for rows in (5, 2):
        y_true, y_pred = np.random.default_rng(rows).random((2, rows, 3), np.float32)
        assert float(traced(y_true, y_pred)) == pytest.approx(float(np.mean((y_true - y_pred) ** 2)), rel=1e-5)


def test_a_rewrite_of_some_sizes_is_verified_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raised for others in its trials; in a compiled step, the original might not run in its stead."""
    from flatout.vectorize import decide as deciding
    from flatout.vectorize.verify import verification

    asked: list[Any] = []
    decide, verify = deciding.decide, verification.verify
    monkeypatch.setattr(deciding, "verify", lambda *args: dataclasses.replace(verify(*args), is_sized=True))
    monkeypatch.setattr(deciding, "decide", lambda *args: asked.append(args[3]) or decide(*args))

    def loss(y_true, y_pred):
        return sum(ops.mean(ops.square(t - p)) * 1.5 for t, p in zip(y_true, y_pred, strict=True))

    quick = flatout.vectorize(loss)
    for size in (4, 4, 6, 6):
        arrays = ops.ones((5, size)), ops.zeros((5, size))
        np.testing.assert_allclose(float(quick(*arrays)), float(loss(*arrays)))
    assert [shapes["y_true"] for shapes in asked] == [(5, 4), (5, 6)]
