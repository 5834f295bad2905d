"""Losses that users write with pandas, row by row, and the same with a table: equal in value and gradient.

The habits are those of the corpus cases B1, C5, F1, G1, G3, G5 and G7. The reference is computed with pandas, sample by
sample, on the host, with the gradient by hand or by central differences in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from keras import ops

import flatout

_SPECIES = pd.DataFrame({"weight": [1.0, 2.0, 0.5, 3.0], "margin": [0.2, 1.0, 0.5, 0.1]})
_HOUSEHOLD = pd.Series([0, 1, 2, 1, 3, 0], name="household")
_STORES = pd.DataFrame({"store": [3, 7, 9], "mean": [1.0, -2.0, 0.5], "std": [2.0, 0.5, 1.0]})
_COST = pd.DataFrame(
    [(g, t, q, 1.0 + g + 2 * t + 3 * q + 5 * (t != q)) for g in range(3) for t in range(2) for q in range(2)],
    columns=["group", "true", "pred", "cost"],
)


def _value_and_gradient(loss: Callable[..., Any], y_true: Any, y_pred: np.ndarray, extra: Any) -> tuple[float, Any]:
    """Of a compiled loss, with respect to the predictions."""
    arguments = [ops.convert_to_tensor(y_true), *(ops.convert_to_tensor(array) for array in extra)]
    if keras.config.backend() == "jax":
        import jax

        value, gradient = jax.jit(jax.value_and_grad(lambda p: loss(arguments[0], p, *arguments[1:])))(y_pred)
    elif keras.config.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=True, autograph=False)
        def run(predicted: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(predicted)
                result = loss(arguments[0], predicted, *arguments[1:])
            return result, tape.gradient(result, predicted)

        value, gradient = run(tf.constant(y_pred))
    else:
        import torch

        predicted = torch.tensor(y_pred, requires_grad=True)
        value = loss(arguments[0], predicted, *arguments[1:])
        value.backward()
        value, gradient = value.detach(), predicted.grad
    return float(value), np.asarray(gradient)


def _check(loss: Any, slow: Any, y_true: Any, y_pred: np.ndarray, *extra: np.ndarray) -> None:
    value, gradient = _value_and_gradient(loss, y_true, y_pred, extra)
    exact = y_pred.astype("float64")
    assert value == pytest.approx(slow(y_true, exact, *extra), rel=2e-5)
    expected, step = np.zeros_like(exact), 1e-6
    for place in np.ndindex(exact.shape):
        for sign in (1, -1):
            moved = exact.copy()
            moved[place] += sign * step
            expected[place] += sign * slow(y_true, moved, *extra) / (2 * step)
    assert np.abs(gradient - expected).max() <= 2e-4 * np.abs(expected).max()


@pytest.mark.parametrize("batch", [1, 7, 12])
def test_a_class_table_with_two_columns(batch: int) -> None:
    rng = np.random.default_rng(batch)
    y_true, y_pred = rng.integers(0, 4, batch), rng.normal(size=(batch, 4)).astype("float32")
    table = flatout.Table(_SPECIES)

    def slow(y_true: Any, y_pred: Any) -> float:
        total = 0.0
        for label, scores in zip(y_true, y_pred, strict=True):
            row = _SPECIES.iloc[int(label)]
            total += row["weight"] * max(0.0, row["margin"] + np.delete(scores, label).max() - scores[label])
        return total / len(y_true)

    def loss(y_true: Any, y_pred: Any) -> Any:
        row = table.at(y_true)
        own = ops.cast(ops.one_hot(ops.cast(y_true, "int32"), 4), "bool")
        score = ops.sum(ops.where(own, y_pred, 0.0), axis=1)
        other = ops.max(ops.where(own, -1e9, y_pred), axis=1)
        return ops.mean(row.weight * ops.maximum(0.0, row.margin + other - score))

    _check(loss, slow, y_true, y_pred)
    _check(loss, slow, y_true.astype("float32").astype("int64"), y_pred)


def test_signs_of_pairs_from_a_series() -> None:
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 6, 9), rng.normal(size=(9, 5)).astype("float32")
    table = flatout.Table(_HOUSEHOLD)

    def slow(y_true: Any, y_pred: Any) -> float:
        total = 0.0
        for i in range(len(y_pred)):
            for j in range(i + 1, len(y_pred)):
                same = _HOUSEHOLD.loc[int(y_true[i])] == _HOUSEHOLD.loc[int(y_true[j])]
                total += (1 if same else -1) * np.sqrt(np.sum(np.square(y_pred[i] - y_pred[j])))
        return total

    def loss(y_true: Any, y_pred: Any) -> Any:
        home = table.at(y_true).household
        square = ops.sum(ops.square(y_pred[:, None, :] - y_pred[None, :, :]), axis=-1)
        index = ops.arange(y_pred.shape[0])
        upper = index[:, None] < index[None, :]
        distance = ops.sqrt(ops.where(upper, square, 1.0))
        sign = ops.where(home[:, None] == home[None, :], 1.0, -1.0)
        return ops.sum(ops.where(upper, sign * distance, 0.0))

    _check(loss, slow, y_true, y_pred)


def test_class_weights_of_a_dict_with_a_default() -> None:
    weights = {1: 2.0, 3: 0.5}
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 4, 20), rng.normal(size=20).astype("float32")
    frame = {"label": list(weights), "weight": list(weights.values())}
    table = flatout.Table(frame, key="label", missing={"weight": 1.0})

    def slow(y_true: Any, y_pred: Any) -> float:
        return float(np.mean([weights.get(int(label), 1.0) * p**2 for label, p in zip(y_true, y_pred, strict=True)]))

    _check(lambda y_true, y_pred: ops.mean(table.at(y_true).weight * ops.square(y_pred)), slow, y_true, y_pred)


def test_weights_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "class_weights.csv").write_text("cls,w\n0,1.0\n1,2.0\n2,0.5\n3,3.0\n")
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.integers(0, 4, 20), rng.normal(size=20).astype("float32")
    table = flatout.Table(tmp_path / "class_weights.csv", key="cls")

    def slow(y_true: Any, y_pred: Any) -> float:
        return float(np.mean(pd.read_csv(tmp_path / "class_weights.csv")["w"].to_numpy()[y_true] * np.square(y_pred)))

    _check(lambda y_true, y_pred: ops.mean(table.at(y_true).w * ops.square(y_pred)), slow, y_true, y_pred)


def test_three_keys() -> None:
    rng = np.random.default_rng(0)
    y_true, group = rng.integers(0, 2, 11), rng.integers(0, 3, 11)
    y_pred = rng.uniform(size=(11, 2)).astype("float32")
    table = flatout.Table(_COST, key=["group", "true", "pred"])

    def slow(y_true: Any, y_pred: Any, group: Any) -> float:
        cost = _COST.set_index(["group", "true", "pred"]).cost
        total = sum(cost.loc[(group[i], y_true[i], q)] * y_pred[i, q] for i in range(len(y_true)) for q in range(2))
        return float(total / len(y_true))

    def loss(y_true: Any, y_pred: Any, group: Any) -> Any:
        cost = ops.stack([table.at(group, y_true, ops.full_like(y_true, q)).cost for q in range(2)], axis=1)
        return ops.mean(ops.sum(cost * y_pred, axis=1))

    _check(loss, slow, y_true, y_pred, group)


def test_group_statistics_of_stores() -> None:
    rng = np.random.default_rng(0)
    y_true, y_pred = rng.normal(size=11).astype("float32"), rng.normal(size=11).astype("float32")
    store = rng.choice([3, 7, 9], 11)
    table = flatout.Table(_STORES, key="store")

    def slow(y_true: Any, y_pred: Any, store: Any) -> float:
        rows = _STORES.set_index("store").loc[store]
        return float(
            np.mean(np.abs((y_true.astype("float64") - rows["mean"].to_numpy()) / rows["std"].to_numpy() - y_pred))
        )

    def loss(y_true: Any, y_pred: Any, store: Any) -> Any:
        row = table.at(store)
        return ops.mean(ops.abs((y_true - row.mean) / row.std - y_pred))

    _check(loss, slow, y_true, y_pred, store)


def test_weights_by_interval_of_the_target() -> None:
    edges, weights = [0.0, 1.0, 5.0, 20.0], np.array([0.1, 1.0, 4.0, 10.0])
    y_true = np.array([0.0, 0.3, 1.0, 4.9, 5.0, 19.0, 20.0, 55.0, 2.0, 7.0], "float32")
    y_pred = np.random.default_rng(0).normal(size=10).astype("float32")
    table = flatout.Table({"rain": edges, "w": weights}, key="rain", intervals="left")

    def slow(y_true: Any, y_pred: Any) -> float:
        level = pd.cut(y_true, [*edges, np.inf], right=False, labels=False)
        return float(np.mean(weights[level] * np.square(y_true - y_pred)))

    _check(lambda y_true, y_pred: ops.mean(table.at(y_true).w * ops.square(y_true - y_pred)), slow, y_true, y_pred)
