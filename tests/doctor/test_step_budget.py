"""The verdict, from shares alone: what is called what, and from where on (docs/doctor.md)."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.doctor.diagnosis_facts import Interval, Part
from flatout.doctor.measuring.batch_shapes import BatchShapes
from flatout.doctor.step_budget import FitLength, fixed_share, parts_of_epoch, parts_of_step, verdict_of

# Nothing here depends on the backend.
pytestmark = pytest.mark.backend("jax")
_STEP = Interval(0.01, 0.01, 0.01)
_NONE = Interval(0.0, 0.0, 0.0)


def verdict(
    shares: dict[str, float],
    compiling: float = 0.0,
    validation: float = 0.0,
    at_epochs: float = 0.0,
    is_users_loss: bool = True,
    is_users_input: bool = True,
) -> str:
    parts = tuple(Part(name, name, _STEP, share, share > 0) for name, share in shares.items())
    # A fit of 10 s, without compiling and validation.
    length = FitLength(100, 10, Interval.of([validation]), compiling, callbacks=Interval.of([at_epochs]))
    return verdict_of(parts, parts_of_epoch(length, _STEP), is_users_loss, is_users_input)[0]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"input": 0.20, "compute": 0.80}, "input-bound"),
        ({"input": 0.19, "compute": 0.81}, "compute-bound"),
        ({"callbacks": 0.21, "launch": 0.70}, "callback-bound"),  # The user's code first.
        ({"callbacks": 0.30, "input": 0.40}, "input-bound"),
        ({"loss": 0.25, "launch": 0.70}, "loss-bound"),
        ({"launch": 0.30, "host": 0.10, "compute": 0.60}, "launch-bound"),
        ({"launch": 0.10, "host": 0.30, "compute": 0.60}, "host-bound"),
        ({"launch": 0.25, "host": 0.10, "compute": 0.65}, "compute-bound"),
        ({"transfer": 0.30, "compute": 0.70}, "transfer-bound"),
        ({"input": 0.0, "launch": 0.0, "compute": 0.3}, "not separable"),
    ],
)
def test_kinds_and_their_limits(shares: dict[str, float], expected: str) -> None:
    assert verdict(shares) == expected


def test_keras_own_loss_computes_and_its_own_input_is_no_code_of_the_user() -> None:
    assert verdict({"loss": 0.5, "compute": 0.5}, is_users_loss=False) == "compute-bound"
    assert verdict({"input": 0.25, "launch": 0.60}, is_users_input=False) == "launch-bound"


def test_compiling_and_validation_are_those_of_the_whole_fit() -> None:
    shares = {"input": 0.30, "compute": 0.70}
    assert verdict(shares, compiling=9.0) == "input-bound"
    assert verdict(shares, compiling=11.0) == "compile-bound"
    assert verdict(shares, validation=0.9) == "input-bound"
    assert verdict(shares, validation=1.1) == "validation-bound"
    assert verdict(shares, at_epochs=0.2) == "input-bound"
    assert verdict(shares, at_epochs=0.5) == "callback-bound"


class TimedSteps:
    """What is read of an ablation, with seconds as if they had been timed."""

    def __init__(self, seconds: dict[str, float]):
        self.variants = seconds

    def seconds(self, *names: str) -> np.ndarray:
        return np.full(8, next(self.variants[name] for name in names if name in self.variants))


_TIMED = {"real": 10.0, "bar": 9.0, "input": 8.0, "transfer": 5.0, "cached": 4.0, "empty": 1.0}


def test_parts_are_differences_and_add_up_to_the_step() -> None:
    parts = parts_of_step(TimedSteps({**_TIMED, "trivial loss": 3.0, "no metrics": 3.5}))
    shares = {part.name: part.share for part in parts}
    assert shares == pytest.approx(
        {"callbacks": 0.1, "progress": 0.1, "input": 0.3, "transfer": 0.1}
        | {"loss": 0.1, "metrics": 0.05, "host": 0.1, "compute": 0.15}
    )


def test_parts_that_take_far_longer_than_the_step_are_noise() -> None:
    parts = parts_of_step(TimedSteps({**_TIMED, "cached": 70.0}))
    assert not any(part.is_separable or part.share for part in parts)
    epoch = parts_of_epoch(FitLength(100, 10, _NONE, 0.1), _STEP)
    assert verdict_of(parts, epoch, is_users_loss=True, is_users_input=True)[0] == "not separable"


@pytest.mark.parametrize(
    ("twice", "busy", "expected"),
    [
        (1.0, None, 1.0),  # As long with twice the rows: nothing computes.
        (1.9, None, 0.0),  # All but Keras' loop takes twice as long.
        (1.45, 0.9, 0.5),  # What was timed counts, not the GPU.
        (None, 0.6, 0.25),
        (None, 2.0, 0.0),
        (None, None, 0.0),
    ],
)
def test_what_does_not_grow_is_launching(twice: float | None, busy: float | None, expected: float) -> None:
    cached, host, rest = np.array([1.0]), np.array([0.1]), np.array([0.8])
    found = fixed_share(cached, host, rest, None if twice is None else np.array([twice]), busy)
    assert found[0] == pytest.approx(expected)


def test_many_shapes_compile_while_the_input_seems_to_be_slow() -> None:
    parts, epoch = (Part("input", "input", _STEP, 0.9),), parts_of_epoch(FitLength(100, 10, _NONE, 0.1), _STEP)
    assert verdict_of(parts, epoch, True, True, BatchShapes(64, ("(4, 3)", "(4, 4)")))[0] == "input-bound"
    assert verdict_of(parts, epoch, True, True, BatchShapes(64, ("(4, 3)", "(4, 4)", "(4, 5)")))[0] == "compile-bound"


def test_seconds_that_are_few_are_no_long_compiling() -> None:
    length = FitLength(10, 1, _NONE, 1.5)
    parts = (Part("compute", "computing", _STEP, 1.0),)
    assert verdict_of(parts, parts_of_epoch(length, _STEP), False, False)[0] == "compute-bound"
