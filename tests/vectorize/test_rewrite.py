"""Losses as people post them: rewritten and equal, reported with their codes; the others refused, or left in peace."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import flatout
from flatout.check.examine import check_paths
from flatout.vectorize.verify import trial_inputs as inputs
from flatout.vectorize.verify.gradients import value_and_gradient

pytestmark = pytest.mark.slow

_FOLDER = Path(__file__).parent / "losses"
_OPS = (
    "with_ops",
    "more_ops",
    "tables_and_ranks",
    "respelled_ops",
    "respelled_tables",
    "groups",
    "places_and_folds",
    "forum_ops",
    "forum_more",
    "posted_ops",
    "helpers_ops",
    "effects_ops",
    "begun_ops",
    "searches_ops",
)
_OF = {
    "jax": (),
    "tensorflow": (
        "with_tensorflow",
        "with_tensorflow_loops",
        "respelled_tensorflow",
        "folds_tensorflow",
        "forum_tensorflow",
        "forum_backend",
        "posted_tensorflow",
    ),
    "torch": ("with_torch", "with_torch_methods", "respelled_torch", "places_torch", "forum_torch", "posted_torch"),
}
# Modules of torch are examined, not vectorized.
_ONLY_CHECKED = ("WeightedLoss", "RootError")


def _marked(file: str, mark: str) -> list[tuple[str, list[str]]]:
    text = (_FOLDER / f"{file}.py").read_text()
    found = re.findall(rf"^(?:def|class) (\w+).*?# {mark}: (.*)$", text, re.M)
    return [(name, codes.split()) for name, codes in found]


def _cases() -> list[Any]:
    backend = keras.backend.backend()
    files = [*(_OPS if backend == "torch" else ()), *_OF[backend]]
    return [
        pytest.param(file, name, id=name)
        for file in files
        for name, _ in [*_marked(file, "codes"), *([("lambda_rows_loss", [])] if file == "with_ops" else [])]
        if name not in _ONLY_CHECKED
    ]


# Those in keras.ops run on torch alone: elsewhere each operation of a loop is traced for every shape, for minutes.
@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.parametrize(("file", "name"), _cases())
def test_is_rewritten_and_equal(file: str, name: str) -> None:
    loss = getattr(importlib.import_module(f".losses.{file}", __package__), name)
    loss = loss() if isinstance(loss, type) else loss
    quick = flatout.vectorize(loss)
    assert quick.applied, f"{quick.reason}\n{quick.source}"
    call, original = (quick.call, loss.call) if hasattr(loss, "call") else (quick, loss)
    recipe = call._answer().recipe
    arrays = inputs.ordinary(recipe, 8, seed=5)
    value, gradient = value_and_gradient(original, arrays, recipe.predicted)
    other, slope = value_and_gradient(call, arrays, recipe.predicted)
    np.testing.assert_allclose(other, value, rtol=2e-5, atol=2e-5)
    if gradient is not None and np.isfinite(gradient).all():
        slope = np.zeros_like(gradient) if slope is None else slope
        np.testing.assert_allclose(slope, gradient, atol=2e-4 * np.abs(gradient).max() + 1e-9)


_REFUSED = [
    pytest.param(file, name, codes, id=name)
    for file in (
        *("negatives", "respelled_negatives", "grouped_negatives", "forum_negatives", "effects_negatives"),
        *(("effects_torch",) if keras.backend.backend() == "torch" else ()),
    )
    for name, codes in _marked(file, "refused")
]


@pytest.mark.parametrize(("file", "name", "codes"), _REFUSED)
def test_is_refused_with_the_reason(file: str, name: str, codes: list[str]) -> None:
    loss = getattr(importlib.import_module(f".losses.{file}", __package__), name)
    quick = flatout.vectorize(loss() if isinstance(loss, type) else loss)
    assert not quick.applied, quick.source
    assert quick.reason.split(":")[0] in codes, quick.reason


@pytest.mark.backend("jax")  # The source is read, not run.
@pytest.mark.parametrize(
    "file",
    [*_OPS, *_OF["tensorflow"], *_OF["torch"], "steps_and_callbacks", "squeezed", "recurrences", "changed_in_place"],
)
def test_the_codes_are_reported(file: str) -> None:
    found = check_paths([_FOLDER / f"{file}.py"], "torch")
    for name, codes in _marked(file, "codes"):
        mine = {one.code for one in found if one.function.split(".")[0] == name}
        for wanted in codes:
            assert mine & set(wanted.split("|")), f"{name}: {wanted} is missing among {sorted(mine)}"
        # Values that are read on the way, and selections, go with the habit.
        loud = {one.code for one in found if one.function.split(".")[0] == name and one.severity != "info"}
        unasked = {code for code in loud if not any(code in wanted for wanted in codes)}
        assert unasked <= {"FO101", "FO102", "FO108", "FO201", "FO202", "FO205", "FO401"}, name


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    "file", ["clean", "respelled_clean", "clean_parts", "squeezed_clean", "forum_clean", "gathered_clean"]
)
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_clean_losses_raise_no_alarm(file: str, backend: Any) -> None:
    found = check_paths([_FOLDER / f"{file}.py"], backend)
    assert [one for one in found if one.severity != "info"] == []
