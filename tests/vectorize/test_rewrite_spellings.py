"""Every habit in several spellings: rewritten without a hint, and equal on batches that the verifier did not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flatout
from flatout.vectorize.verify import trial_inputs as inputs
from flatout.vectorize.verify.gradients import value_and_gradient

from .losses import spellings

pytestmark = pytest.mark.slow


def _check(function) -> None:
    quick = flatout.vectorize(function)
    assert quick.applied, f"{quick.reason}\n{quick.source}"
    recipe = quick._answer().recipe
    for batch in (1, 8):
        arrays = inputs.ordinary(recipe, batch, seed=5)
        value, gradient = value_and_gradient(function, arrays, recipe.predicted)
        other, slope = value_and_gradient(quick, arrays, recipe.predicted, compiled=True)
        np.testing.assert_allclose(other, value, rtol=2e-5, atol=2e-5)
        if gradient is not None and np.isfinite(gradient).all():
            slope = np.zeros_like(gradient) if slope is None else slope
            np.testing.assert_allclose(slope, gradient, atol=2e-4 * np.abs(gradient).max() + 1e-9)


# On jax every operation of the original is compiled on its own, for every shape; on tensorflow the rewrite is traced
# for known and unknown sizes: seconds for each loss, so that only some run there.
_QUICK = ("batch_zip", "batch_lambda", "lengths_slice", "missing_targets", "neighbour", "table_frame", "groups_found")
_TRACED = ("pairs_combinations", "classes_dice", "group_means", "host_threshold", "host_top", "shape_guard", "triplets")


def _marks(name: str) -> Any:
    if name in _QUICK:
        return ()
    return pytest.mark.backend("tensorflow", "torch") if name in _TRACED else pytest.mark.backend("torch")


def _cases() -> list[Any]:
    names = (function.__name__ for function in spellings.FUNCTIONS)
    return [
        pytest.param(function, id=name, marks=_marks(name))
        for function, name in zip(spellings.FUNCTIONS, names, strict=True)
    ]


@pytest.mark.parametrize("function", _cases())
def test_is_rewritten_and_equal(function) -> None:
    _check(function)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["rows", "entries", "elements", "selected", "norms"])
def test_torch_spelling(name: str) -> None:
    from .losses import torch_spellings

    _check(getattr(torch_spellings, name))


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("name", ["rows", "steps", "mapped", "legacy", "selected"])
def test_tensorflow_spelling(name: str) -> None:
    from .losses import tensorflow_spellings

    _check(getattr(tensorflow_spellings, name))
