"""With the same seed, flatout and stock Keras end with the same history, variables and generators."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np
import pytest

import flatout

from .combinations import COMBINATIONS, Combination

EXACT = keras.config.backend() in ("jax", "tensorflow")


def train(combination: Combination, engine: str) -> tuple[Any, ...]:
    keras.utils.clear_session(free_memory=False)  # Names are counted anew.
    keras.utils.set_random_seed(11)
    keras.config.set_dtype_policy(combination.floats or "float32")
    try:
        model = combination.build()
        arguments = {"epochs": 3, "batch_size": 32, "verbose": 0, **combination.data(), **combination.arguments}
        with flatout.options(force=True):
            history = flatout.fit(model, arguments.pop("x"), arguments.pop("y"), engine=engine, **arguments)
    finally:
        keras.config.set_dtype_policy("float32")
    report = flatout.explain()[-1]
    variables = {
        f"{number}:{variable.path}": keras.ops.convert_to_numpy(variable.value)
        for number, variable in enumerate([*model.variables, *model.optimizer.variables, *model.metrics_variables])
    }
    return report, history.history, variables, generators()


def generators() -> list[Any]:
    """The state of every generator that fit may draw from."""
    states: list[Any] = [random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]]
    if keras.config.backend() == "torch":
        import torch

        states.append(torch.get_rng_state().tolist())
    return states


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """On torch, the first fit with Keras 3.12 imports modules that draw from NumPy's generator."""
    if keras.config.backend() == "torch":
        train(COMBINATIONS[0], "stock")


# `make check` takes the first one; each compiles two models.
FAST = 1
CASES = [
    pytest.param(combination, id=combination.name, marks=[pytest.mark.slow] if number >= FAST else [])
    for number, combination in enumerate(COMBINATIONS)
]


@pytest.mark.parametrize("combination", CASES)
def test_history_variables_and_generators_equal_stock_keras(combination: Combination) -> None:
    _, stock_history, stock_variables, stock_generators = train(combination, "stock")
    report, history, variables, after = train(combination, "auto")
    assert report.accelerated, report
    assert not {why.code for why in report.reasons} & {"untraceable", "data_dependent", "side_effects"}, report
    assert history.keys() == stock_history.keys()
    for name, values in stock_history.items():
        compare(np.array(history[name]), np.array(values), name)
    for (name, value), expected in zip(variables.items(), stock_variables.values(), strict=True):
        compare(value, expected, name)
    assert after == stock_generators


def compare(value: np.ndarray, expected: np.ndarray, name: str) -> None:
    if EXACT:
        np.testing.assert_array_equal(value, expected, err_msg=name)
    else:
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-7, err_msg=name)
