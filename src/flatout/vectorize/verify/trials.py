"""One trial of a verification: what the original gives for an input, and whether a rewrite gives the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .gradients import ArgumentChanged, quick_answer, value_and_gradient
from .trial_inputs import SPOILT_PREDICTIONS, Recipe, without_ties

VALUE_TOLERANCE = 2e-5
GRADIENT_TOLERANCE = 2e-4
# In which the ties of an input are broken, to see whether the original depends on their order.
_WAYS = 4


@dataclass(frozen=True)
class Trial:
    """The original's answer for one input, and what a rewrite made of it."""

    problem: str | None = None
    skipped: str | None = None
    note: str | None = None
    scale: float = 0.0
    is_only_slope: bool = False
    is_only_value: bool = False
    is_doubtful: bool = False


@dataclass(frozen=True)
class Kinks:
    """Whether inputs hold ties, and whether the rewrite has kinks there, or orders what ties."""

    has_ties: bool
    is_kinked: bool
    is_tie_sensitive: bool


def tried(
    slow: Any,
    fast: Any,
    recipe: Recipe,
    name: str,
    arrays: Any,
    kinks: Kinks,
    scale: float,
    answers: dict[Any, Any],
    key: Any,
    is_compiled: bool,
) -> Trial:
    """One input, on which the rewrite runs compiled or not.

    Where quickly compiled programs differ, the original is asked step by step, and the rewrite as `fit` compiles it.
    """
    answer = answers.get(key)
    if answer is None:
        answer = answers[key] = _answer(slow, arrays, recipe.predicted)
    trial = _compare(answer, fast, arrays, recipe.predicted, name, kinks, scale, is_compiled)
    if (trial.problem or trial.is_doubtful) and backend() == "jax" and (answer[4] or not is_compiled):
        if answer[4]:
            answer = answers[key] = _answer(slow, arrays, recipe.predicted, is_exact=True)
        trial = _compare(answer, fast, arrays, recipe.predicted, name, kinks, scale, is_compiled=True)
    if trial.is_only_value and kinks.is_tie_sensitive and _is_undecided(slow, fast, arrays, recipe.predicted):
        return Trial(
            note="Equal where no two entries tie: there the original depends on how its sort orders equal ones."
        )
    return trial


def _is_undecided(slow: Any, fast: Any, arrays: Any, predicted: str) -> bool:
    """Whether equal entries leave open what the original gives: no sort promises which of them it puts first.

    So it is if the original gives different values once its ties are broken in different ways, and the rewrite gives
    each of these, with its gradient. An original that gives the same however ties are broken must be matched at them.
    """
    seen = []
    for seed in range(_WAYS):
        broken = without_ties(arrays, seed)
        if broken is None:
            return False
        answer = _answer(slow, broken, predicted, is_exact=True)
        trial = _compare(answer, fast, broken, predicted, "", Kinks(False, False, False), 0.0, False)
        if trial.problem or trial.skipped:
            return False
        seen.append(answer[0])
    return any(not close(seen[0], value) for value in seen[1:])


def _answer(slow: Any, arrays: Any, wrt: str, is_exact: bool = False) -> tuple[Any, Any, str, str | None, bool]:
    """The original's value and gradient, or the name of what it raises.

    Then what its gradient can be asked for, and whether the original was compiled as a whole, which `is_exact` forbids.
    """
    try:
        quick = None if is_exact else quick_answer(slow, arrays, wrt)
        if quick is not None:
            return (*quick, "", wrt, True)
        return (*value_and_gradient(slow, arrays, wrt), "", wrt, False)
    except ArgumentChanged:
        raise
    except Exception as error:
        try:
            return (*value_and_gradient(slow, arrays, None), "", None, False)
        except ArgumentChanged:
            raise
        except Exception:
            return None, None, type(error).__name__, None, False


def _compare(
    answer: tuple[Any, Any, str, str | None, bool],
    fast: Any,
    arrays: Any,
    predicted: str,
    name: str,
    kinks: Kinks,
    scale: float,
    is_compiled: bool,
) -> Trial:
    value, gradient, raised, differentiable, _ = answer
    if raised:
        return Trial(skipped=f"the original raises {raised}")
    # At an adversarial input the original's gradient may fail; on an ordinary batch that is no excuse.
    wrt = predicted if name.startswith("batch of") else differentiable
    try:
        other, slope = _rewritten(fast, arrays, wrt, value, is_compiled)
    except Exception as error:
        return Trial(problem=f"the rewrite raises {type(error).__name__}: {str(error)[:200]}")
    is_finite = all(np.all(np.isfinite(array)) for array in arrays.values())
    if value.shape != other.shape:
        return Trial(problem=f"the original returns shape {value.shape}, the rewrite {other.shape}")
    undefined = np.isnan(value)
    if is_finite and undefined.any():
        return Trial(skipped="the original is NaN", is_doubtful=not np.array_equal(undefined, np.isnan(other)))
    if not close(value, other):
        if name in SPOILT_PREDICTIONS and _are_lost(value, other):
            return Trial(note="Where a prediction is NaN or infinite, one gives NaN and the other infinity.")
        return Trial(problem=f"the original gives {_shown(value)}, the rewrite {_shown(other)}", is_only_value=True)
    if not np.all(np.isfinite(value)):
        return Trial()
    return same_slope(gradient, slope, kinks.has_ties and kinks.is_kinked, scale)


def _rewritten(fast: Any, arrays: Any, wrt: str | None, value: Any, is_compiled: bool) -> tuple[Any, Any]:
    """What the rewrite gives, asked in another way where it is not the original's value.

    Compiled code may drop a NaN (XLA's minimum and maximum on a CPU do), the original's as well as ours.
    """
    if backend() != "jax":
        return value_and_gradient(fast, arrays, wrt)
    found = value_and_gradient(fast, arrays, wrt, compiled=True) if is_compiled else quick_answer(fast, arrays, wrt)
    if found is not None and (value.shape != found[0].shape or close(value, found[0])):
        return found
    return value_and_gradient(fast, arrays, wrt)


def backend() -> str:
    import keras

    return str(keras.backend.backend())


def close(value: np.ndarray, other: np.ndarray) -> bool:
    if value.dtype.kind not in "fiub":
        return False
    return bool(np.allclose(value, other, rtol=VALUE_TOLERANCE, atol=VALUE_TOLERANCE, equal_nan=True))


def _are_lost(value: np.ndarray, other: np.ndarray) -> bool:
    """Whether values differ only where neither is a number."""
    both = ~np.isfinite(value) & ~np.isfinite(other)
    return close(np.where(both, 0.0, value), np.where(both, 0.0, other))


def same_slope(gradient: np.ndarray | None, slope: np.ndarray | None, may_choose: bool, scale: float) -> Trial:
    """Whether two gradients agree; `scale` is how large gradients of this loss ordinarily are."""
    if gradient is None and slope is None:
        return Trial(note="Neither has a gradient with respect to the predictions: the values were compared.")
    if slope is None:
        assert gradient is not None
        slope = np.zeros_like(gradient)
    if gradient is None:
        if not np.all(np.isfinite(slope)):
            return Trial(problem="the rewrite's gradient is NaN or infinite", is_only_slope=True)
        if np.any(slope):
            return Trial(problem="the original has no gradient, the rewrite has one")
        return Trial()
    defined = np.isfinite(gradient)
    if not defined.all():
        if not np.all(np.isfinite(slope[defined])):
            return Trial(problem="the rewrite's gradient is NaN where the original's is not", is_only_slope=True)
        return Trial(note="On some adversarial inputs the original's own gradient is NaN; it was not compared there.")
    if not np.all(np.isfinite(slope)):
        return Trial(problem="the rewrite's gradient is NaN or infinite", is_only_slope=True)
    largest = max(float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(slope), initial=0.0)))
    if np.max(np.abs(gradient - slope), initial=0.0) <= GRADIENT_TOLERANCE * largest + 1e-6 * scale:
        return Trial(scale=largest)
    if may_choose:
        return Trial(note="At exact ties the gradient is another one of several that hold there.")
    off = float(np.max(np.abs(gradient - slope))) / largest
    return Trial(problem=f"the gradients differ by {off:.1e} of the largest entry")


def _shown(value: np.ndarray) -> str:
    return f"{value.item():.6g}" if value.size == 1 else f"an array of shape {value.shape}"
