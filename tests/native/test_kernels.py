"""The kernels, run on the CPU, end where Keras ends: same seed, same order, after 1 step and after 20."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from .cases import PLAIN, Block, Case
from .networks import cases
from .parity import assert_ends_where_keras_ends, by_kernels

pytestmark = [pytest.mark.slow, pytest.mark.turns]


def _check(case: Case, launcher: Any) -> None:
    assert_ends_where_keras_ends(case, by_kernels(case, launcher))


def test_the_seed_model(emulated: Any) -> None:
    _check(PLAIN, emulated)


def test_a_deep_one_with_all_kinds_of_layers(emulated: Any) -> None:
    blocks = (
        Block(9, "gelu", "norm", 0.0, 1e-2),
        Block(40, "relu", "after", 1e-3, 0.0),
        Block(6, "softmax", "inside", 0.0, 0.0),
    )
    changes: dict[str, Any] = {"first": "dense", "shape": (4, 3), "loss": "huber", "outputs": 3, "optimizer": "adamw"}
    _check(Case(**{**vars(PLAIN), **changes, "blocks": blocks, "clip": ("clipnorm", 0.5), "weighted": True}), emulated)


def test_many_rows_and_few_weights_are_summed_in_parts(emulated: Any) -> None:
    changes: dict[str, Any] = {
        "shape": (3,),
        "first": "flatten",
        "blocks": (),
        "batch_size": 500,
        "rows": 19 * 500 + 123,
    }
    _check(Case(**{**vars(PLAIN), **changes}), emulated)


@pytest.mark.backend("torch")
def test_one_whose_training_magnifies_rounding(emulated: Any) -> None:
    blocks = (
        Block(39, "linear", "inside", 0.0, 0.0),
        Block(8, "relu", "norm", 0.001, 0.01),
        Block(25, "linear", "norm", 0.001, 0.0),
    )
    case = Case((110,), "normalization", blocks, "mae", 3, "adamw", None, None, 315, 16, 67, 0.0, True)
    _check(case, emulated)


@pytest.mark.slow
@pytest.mark.timeout(600)
# Compiling for Keras takes most of the time on jax and tensorflow.
@pytest.mark.backend("torch")
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(case=cases())
def test_models_drawn_at_random(emulated: Any, case: Case) -> None:
    _check(case, emulated)
