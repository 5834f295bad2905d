"""What a comparison compares."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from flatout.bench.comparison import agree, largest_difference
from flatout.bench.workloads import WORKLOADS

NAN = float("nan")


def test_largest_difference_is_over_all_series() -> None:
    assert largest_difference({"a": [1.0, 2.0], "b": [3.0]}, {"a": [1.0, 2.5], "b": [3.1]}) == pytest.approx(0.5)
    assert largest_difference({"a": [NAN]}, {"a": [NAN]}) == 0
    assert np.isnan(largest_difference({"a": [NAN]}, {"a": [1.0]}))
    assert largest_difference({"a": [1.0]}, {"b": [1.0]}) == float("inf")
    assert largest_difference({"a": [1.0]}, {"a": [1.0, 1.0]}) == float("inf")


def test_histories_agree_up_to_rounding() -> None:
    assert agree({"a": [1.0, NAN]}, {"a": [1.0 + 1e-6, NAN]})
    assert not agree({"a": [1.0]}, {"a": [1.1]})
    assert not agree({"a": [1.0]}, {"a": [1.0, 1.0]})
    assert not agree({"a": [1.0]}, {"a": [1.0], "b": [1.0]})


def test_histories_agree_that_are_as_near_as_those_of_stock_keras() -> None:
    assert agree({"a": [1.0]}, {"a": [1.1]}, spread=0.05)
    assert not agree({"a": [1.0]}, {"a": [1.1]}, spread=0.01)
    for unknown in (NAN, float("inf")):
        assert not agree({"a": [1.0]}, {"a": [1.1]}, spread=unknown)


# ResNet-20: He et al. 2015, table 6, say 0.27 million; projection shortcuts add the rest.
PARAMETERS = {"tabular": 560_693, "convnet": 34_826, "transformer": 49_758, "lstm": 325_761, "resnet20": 274_042}
# Keras takes seconds to build them.
SLOW = ("lstm", "resnet20", "transformer", "convnet")


@pytest.mark.backend("torch")  # Layers of Keras have the same weights on all of them, and are soonest built there.
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PARAMETERS])
def test_rows_fit_the_model_and_are_always_the_same(name: str) -> None:
    workload = WORKLOADS[name]
    (x, y), (again, _) = workload.data(1), workload.data(1)
    assert len(y) == workload.batch_size
    for one, other in zip(keras.tree.flatten(x), keras.tree.flatten(again), strict=True):
        np.testing.assert_array_equal(one, other)
    model = workload.build()
    assert model.count_params() == PARAMETERS[name]
    assert {tuple(one.shape[1:]) for one in model.inputs} == {one.shape[1:] for one in keras.tree.flatten(x)}
