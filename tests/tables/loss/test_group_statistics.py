"""Group statistics are those of pandas; their gradients are finite, shared by ties, and alike on all backends."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

import flatout

_STATISTICS: dict[str, Any] = {
    "sum": flatout.group_sum,
    "mean": flatout.group_mean,
    "min": flatout.group_min,
    "max": flatout.group_max,
    "var": flatout.group_var,
}


def _gradient(function: Any, values: np.ndarray) -> np.ndarray:
    if keras.config.backend() == "jax":
        import jax

        return np.asarray(jax.jit(jax.grad(function))(values))
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=True, autograph=False)
        def run(tensor: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(tensor)
                result = function(tensor)
            return tape.gradient(result, tensor)

        return run(tf.constant(values)).numpy()
    import torch

    tensor = torch.tensor(values, requires_grad=True)
    function(tensor).backward()
    assert tensor.grad is not None
    return tensor.grad.numpy()


def _of_pandas(values: np.ndarray, groups: np.ndarray, count: int, how: str) -> np.ndarray:
    grouped = pd.Series(values.astype("float64")).groupby(groups)
    result = grouped.var(ddof=0) if how == "var" else grouped.agg(how)
    return result.reindex(range(count)).fillna(0.0).to_numpy()


@pytest.mark.parametrize("how", _STATISTICS)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_statistics_are_those_of_pandas(how: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    values, groups = rng.normal(size=40).astype("float32"), rng.choice([0, 1, 3, 5, -1, 9], 40)
    got = _STATISTICS[how](ops.convert_to_tensor(values), ops.convert_to_tensor(groups.astype(dtype)), 6)
    np.testing.assert_allclose(ops.convert_to_numpy(got), _of_pandas(values, groups, 6, how), rtol=1e-5, atol=1e-6)


@pytest.mark.backend("torch")
@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.integers(-1, 5)), min_size=1, max_size=12),
    how=st.sampled_from(sorted(_STATISTICS)),
)
def test_any_rows_give_what_pandas_gives(rows: list[tuple[float, int]], how: str) -> None:
    values, groups = np.array([row[0] for row in rows], "float32"), np.array([row[1] for row in rows])
    got = _STATISTICS[how](ops.convert_to_tensor(values), ops.convert_to_tensor(groups), 4)
    expected = _of_pandas(values, groups, 4, how)
    np.testing.assert_allclose(ops.convert_to_numpy(got), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", _STATISTICS)
def test_empty_groups_and_ties_have_finite_shared_gradients(how: str) -> None:
    values, groups = np.array([2.0, 2.0, 1.0, 5.0], "float32"), np.array([0, 0, 0, 3])
    gradient = _gradient(lambda v: ops.sum(_STATISTICS[how](v, groups, 5)), values)
    expected = {
        "sum": [1, 1, 1, 1],
        "mean": [1 / 3, 1 / 3, 1 / 3, 1],
        "min": [0, 0, 1, 1],
        "max": [0.5, 0.5, 0, 1],
        "var": [2 / 9, 2 / 9, -4 / 9, 0],
    }[how]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_vectors_weights_and_the_value_of_empty_groups() -> None:
    values = np.array([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]], "float32")
    groups = np.array([[0], [0], [2]])
    got = flatout.group_mean(values, groups, 3, weights=np.array([3.0, 1.0, 1.0]), empty=-1.0)
    assert ops.convert_to_numpy(got).tolist() == [[1.5, 15.0], [-1.0, -1.0], [5.0, 50.0]]
    assert ops.convert_to_numpy(flatout.group_count(groups, 3)).tolist() == [2.0, 0.0, 1.0]


@pytest.mark.backend("jax")
def test_wrong_arguments_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"`num_groups`\. Received: 0"):
        flatout.group_sum(np.ones(2), np.zeros(2), 0)
    with pytest.raises(ValueError, match=r"values of shape \(3,\) and groups of shape \(2,\)"):
        flatout.group_sum(np.ones(3), np.zeros(2), 1)
    with pytest.raises(ValueError, match=r"shape \(rows,\) or \(rows, 1\). Received: \(2, 2\)"):
        flatout.group_sum(np.ones(2), np.zeros((2, 2)), 1)
