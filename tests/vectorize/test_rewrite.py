"""Losses of every kind: rewritten and equal on a batch that the verifier did not see, or refused for the reason."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import keras
import pytest
from keras import ops
from loss_marks import losses_in
from same_loss import assert_same_loss

import flatout
from flatout.vectorize.decide import verified
from flatout.vectorize.rewrite import rewrite_function
from flatout.vectorize.verify import trial_inputs as inputs
from flatout.vectorize.verify.verification import Rewrite

pytestmark = pytest.mark.slow


def _losses(expected: str) -> list[Any]:
    # On torch nothing is compiled or traced.
    turns = [pytest.mark.turns(6)]
    return [
        pytest.param(
            *(one.file, one.name, one.codes),
            id=f"{one.file}-{one.name}",
            marks=turns if "torch" in one.backends else (),
        )
        for one in losses_in(Path(__file__).parent / "losses")
        if one.expected == expected and keras.backend.backend() in one.backends
    ]


def _loss(file: str, name: str) -> Any:
    loss = getattr(importlib.import_module(f".losses.{file}", __package__), name)
    return loss() if isinstance(loss, type) else loss


@pytest.mark.parametrize(("file", "name", "codes"), _losses("rewritten"))
def test_is_rewritten_and_equal(file: str, name: str, codes: tuple[str, ...]) -> None:
    loss = _loss(file, name)
    quick = flatout.vectorize(loss)
    assert quick.applied, f"{quick.reason}\n{quick.source}"
    call, original = (quick.call, loss.call) if hasattr(loss, "call") else (quick, loss)
    recipe = call._answer().recipe
    assert_same_loss(call, original, inputs.ordinary(recipe, 8, seed=5), recipe.predicted, compiled=True)


@pytest.mark.parametrize(("file", "name", "codes"), _losses("refused"))
def test_is_refused_with_the_reason(file: str, name: str, codes: tuple[str, ...]) -> None:
    quick = flatout.vectorize(_loss(file, name))
    assert not quick.applied, quick.source
    assert quick.reason.split(":")[0] in codes, quick.reason


def sorted_rows_loss(y_true, y_pred):
    total = 0.0
    for i in range(y_true.shape[0]):
        rows = ops.take(y_pred[i], ops.argsort(y_true[i]), axis=0)
        total = total + ops.sum(ops.square(rows[1:] - rows[:-1]) * rows[1:, :1])
    return total / y_true.shape[0]


@pytest.mark.backend("torch")
def test_rows_in_an_order_of_their_own_are_gathered_along_an_axis() -> None:
    made = rewrite_function(sorted_rows_loss, {"y_true": 2, "y_pred": 3})
    assert isinstance(made, Rewrite)
    assert "take_along_axis" in made.source
    assert verified(sorted_rows_loss, made).function is not None
