"""Rewrites that hold for the sizes at hand and for no others."""

from __future__ import annotations

import pytest
from keras import ops

from flatout.vectorize.verify.verification import find_recipes, verify

pytestmark = pytest.mark.backend("torch")
_SHAPES = {"y_true": (4, 3), "y_pred": (4, 3)}


def original(y_true, y_pred):
    return ops.sum(ops.square(y_true - y_pred))


def of_three(y_true, y_pred):
    return ops.sum(ops.square(y_true[:, :3] - y_pred[:, :3]))


def shaped_as_three(y_true, y_pred):
    return ops.sum(ops.square(ops.reshape(y_true - y_pred, (y_true.shape[0], 3))))


def test_a_size_that_was_taken_for_a_constant_is_found() -> None:
    recipes = find_recipes(original, {"y_true": 2, "y_pred": 2}, "y_pred", shapes=_SHAPES)
    assert verify(original, of_three, recipes).reason.startswith("other sizes: the original gives")
    verdict = verify(original, shaped_as_three, recipes)  # Where it raises, the original runs.
    assert verdict.equal
    assert any(one.startswith("other sizes: the rewrite raises") for one in verdict.skipped)
    assert "other sizes" in verify(original, original, recipes).compared
