"""A fit that four devices share ends as on one, whatever the step is made of."""

from __future__ import annotations

import numpy as np
import pytest

import flatout

from .combinations import COMBINATIONS, Combination
from .test_parity import train

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

# What a part of a batch could get wrong alone: a loss of the user's, several of them with weights, sums over steps.
NAMES = ("custom train_step, compute_loss", "two inputs, two outputs, weights", "gradient accumulation")
CASES = [pytest.param(one, id=one.name) for one in COMBINATIONS if one.name in NAMES]


def test_the_names_are_those_of_combinations() -> None:
    assert len(CASES) == len(NAMES)


@pytest.mark.parametrize("combination", CASES)
def test_history_and_variables_equal_those_of_one_device(combination: Combination) -> None:
    _, history, variables, _ = train(combination, "auto")
    with flatout.options(workers=4):
        report, divided_history, divided, _ = train(combination, "auto")
    assert [why.code for why in report.reasons] == ["divided"]
    for name, values in history.items():
        np.testing.assert_allclose(divided_history[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    for (name, value), expected in zip(divided.items(), variables.values(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6, err_msg=name)
