"""Arguments beside the arrays: defaults, words, partials."""

from __future__ import annotations

import functools
import logging
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import flatout
from flatout.vectorize.verify import gradients

pytestmark = pytest.mark.backend("torch")
_EPSILON = 1e-3


def scaled(y_true, y_pred, scale, floor=_EPSILON):
    total = 0.0
    for i in range(y_true.shape[0]):
        total += scale * ops.sum(ops.abs(y_true[i] - y_pred[i])) + floor
    return total


def joined(y_true, y_pred, how="mean"):
    rows = [ops.sum(ops.abs(t - p)) for t, p in zip(y_true, y_pred, strict=True)]
    return ops.mean(ops.stack(rows)) if how == "mean" else ops.max(ops.stack(rows))


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return gradients.on_device({name: rng.normal(size=(5, 3)).astype("float32") for name in ("y_true", "y_pred")})


def _close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other), rtol=2e-5)


def test_a_partial_keeps_its_arguments_and_takes_others() -> None:
    quick, arrays = flatout.vectorize(functools.partial(scaled, scale=0.3)), _arrays()
    assert quick.applied, quick.reason
    assert "floor=_EPSILON" in quick.source
    _close(quick(**arrays), scaled(**arrays, scale=0.3))
    _close(quick(**arrays, scale=2.0, floor=1.0), scaled(**arrays, scale=2.0, floor=1.0))


def test_a_word_that_decides_a_branch_is_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, arrays = flatout.vectorize(joined), _arrays()
    assert quick.applied, quick.reason
    calls: list[int] = []
    monkeypatch.setattr(quick, "_function", lambda *args, **kwargs: calls.append(1) or joined(*args, **kwargs))
    _close(quick(**arrays), joined(**arrays))
    assert not calls
    _close(quick(**arrays, how="max"), joined(**arrays, how="max"))
    assert calls, "the array form stands for the mean alone"


def test_a_partial_that_was_given_its_first_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="arguments by name"):
        flatout.vectorize(functools.partial(scaled, np.zeros((5, 3))))
    with pytest.raises(TypeError, match="its last arguments"):
        flatout.vectorize(functools.partial(joined, y_true=np.zeros((5, 3))))


def test_partials_are_vectorized_as_compile_receives_them(caplog: pytest.LogCaptureFixture) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    flatout.enable(vectorize=True)
    try:
        with caplog.at_level(logging.INFO, "flatout"):
            model.compile("sgd", loss=functools.partial(scaled, scale=0.5))
            model.fit(np.ones((8, 4), "float32"), np.ones((8, 3), "float32"), verbose=0)
    finally:
        flatout.disable()
    assert "vectorize(scaled) uses array code" in caplog.text
