"""On a GPU, flatout ends where stock Keras ends, within float32 rounding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.combinations import COMBINATIONS, Combination
from tests.numerics.test_parity import generators, train

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("full_precision")]

# Half precision rounds too coarsely to compare after 21 steps of another fusion.
FLOAT32 = [combination for combination in COMBINATIONS if combination.floats is None]


@pytest.mark.parametrize("combination", FLOAT32, ids=lambda combination: combination.name)
def test_history_and_variables_equal_stock_keras_within_rounding(combination: Combination) -> None:
    _, stock_history, stock_variables, stock_generators = train(combination, "stock")
    report, history, variables, after = train(combination, "auto")
    assert report.accelerated, report
    for name, values in stock_history.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    for (name, value), expected in zip(variables.items(), stock_variables.values(), strict=True):
        scale = float(np.abs(expected).max()) if expected.size else 0.0
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=2e-3 * scale + 1e-6, err_msg=name)
    assert after == stock_generators
    assert generators() == after
