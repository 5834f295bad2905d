"""One trial of a verification: what the original gives for an input, and whether a rewrite gives the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .gradients import ArgumentChanged, backend, value_and_gradient
from .trial_inputs import SPOILT_PREDICTIONS, without_ties

VALUE_TOLERANCE = 2e-5
GRADIENT_TOLERANCE = 2e-4
# In which the ties of an input are broken, to see whether the original depends on their order.
_WAYS = 4


@dataclass(frozen=True)
class Trial:
    """What a rewrite made of one input, compared with the original."""

    problem: str | None = None
    skipped: str | None = None
    note: str | None = None
    scale: float = 0.0
    is_only_slope: bool = False
    is_only_value: bool = False
    is_other_gradient: bool = False  # Finite, as the original's is.
    is_doubtful: bool = False


class Original(NamedTuple):
    """What the original gives for one input, or the name of what it raises."""

    value: Any = None
    gradient: Any = None
    wrt: str | None = None  # What its gradient can be asked for.
    raised: str = ""


@dataclass
class Trials:
    """Trials of a rewrite against its original."""

    slow: Any
    fast: Any
    predicted: str
    is_kinked: bool  # Whether the rewrite has kinks, where the gradient at a tie is a matter of choice.
    is_tie_sensitive: bool  # Whether the order of equal entries matters.
    answers: dict[Any, Any]  # The original's, kept from one rewrite that is tried to the next.
    scale: float = 0.0  # How large gradients of this loss ordinarily are.

    def run(self, key: Any, name: str, arrays: Any, has_ties: bool, is_compiled: bool) -> Trial:
        """One input, on which the rewrite runs compiled or not.

        Where quickly compiled programs differ, the original is asked step by step, the rewrite as `fit` compiles it.
        """
        if key not in self.answers:
            self.answers[key] = asked(self.slow, arrays, self.predicted)
        may_choose = has_ties and self.is_kinked
        trial = self._compare(self.answers[key], arrays, name, may_choose, is_compiled)
        if (trial.problem or trial.is_doubtful) and backend() == "jax":
            if ("exact", key) not in self.answers:
                self.answers["exact", key] = asked(self.slow, arrays, self.predicted, quick=False)
            self.answers[key] = self.answers["exact", key]
            trial = self._compare(self.answers[key], arrays, name, may_choose, is_compiled=True)
        differs = trial.is_only_value or trial.is_other_gradient
        if differs and self.is_tie_sensitive and self._is_undecided(arrays):
            return Trial(
                note="Equal where no two entries tie: there the original depends on how its sort orders equal ones."
            )
        self.scale = self.scale or trial.scale
        return trial

    def _is_undecided(self, arrays: Any) -> bool:
        """Whether equal entries leave open what the original gives: no sort promises which of them it puts first.

        So it is if the original gives different values or gradients once its ties are broken in different ways, and the
        rewrite gives each of these. An original that gives the same however ties are broken must be matched at them.
        """
        seen: list[Original] = []
        for seed in range(_WAYS):
            broken = without_ties(arrays, seed)
            if broken is None:
                return False
            answer = asked(self.slow, broken, self.predicted, quick=False)
            trial = self._compare(answer, broken, "", False, False)
            if trial.problem or trial.skipped:
                return False
            seen.append(answer)
        first = seen[0]
        return any(
            not close(first.value, other.value) or same_slope(first.gradient, other.gradient, False, self.scale).problem
            for other in seen[1:]
        )

    def _compare(self, answer: Original, arrays: Any, name: str, may_choose: bool, is_compiled: bool) -> Trial:
        value = answer.value
        if answer.raised:
            return Trial(skipped=f"the original raises {answer.raised}")
        # At an adversarial input the original's gradient may fail; on an ordinary batch that is no excuse.
        wrt = self.predicted if name.startswith("batch of") else answer.wrt
        try:
            other, slope = self._rewritten(arrays, wrt, value, is_compiled)
        except Exception as error:
            return Trial(problem=f"the rewrite raises {type(error).__name__}: {str(error)[:200]}")
        is_finite = all(np.all(np.isfinite(array)) for array in arrays.values())
        if value.shape != other.shape:
            return Trial(problem=f"the original returns shape {value.shape}, the rewrite {other.shape}")
        undefined = np.isnan(value)
        if is_finite and undefined.any():
            return Trial(skipped="the original is NaN", is_doubtful=not np.array_equal(undefined, np.isnan(other)))
        if not close(value, other):
            lost = ~np.isfinite(value) & ~np.isfinite(other)
            if name in SPOILT_PREDICTIONS and close(np.where(lost, 0.0, value), np.where(lost, 0.0, other)):
                return Trial(note="Where a prediction is NaN or infinite, one gives NaN and the other infinity.")
            return Trial(problem=f"the original gives {_shown(value)}, the rewrite {_shown(other)}", is_only_value=True)
        if not np.all(np.isfinite(value)):
            return Trial()
        return same_slope(answer.gradient, slope, may_choose, self.scale)

    def _rewritten(self, arrays: Any, wrt: str | None, value: Any, is_compiled: bool) -> tuple[Any, Any]:
        """What the rewrite gives, asked in another way where it is not the original's value.

        Compiled code may drop a NaN (XLA's minimum and maximum on a CPU do), the original's as well as ours.
        """
        is_jax = backend() == "jax"
        found = value_and_gradient(self.fast, arrays, wrt, compiled=is_compiled and is_jax, quick=True)
        is_spoilt = not all(np.all(np.isfinite(array)) for array in arrays.values())
        if not (is_jax and is_spoilt) or value.shape != found[0].shape or close(value, found[0]):
            return found
        return value_and_gradient(self.fast, arrays, wrt)


def asked(slow: Any, arrays: Any, predicted: str, quick: bool = True) -> Original:
    """What the original gives, without a gradient where it has none; `quick`: compiled as a whole where it can be."""
    raised = ""
    for wrt in (predicted, None):
        try:
            return Original(*value_and_gradient(slow, arrays, wrt, quick=quick), wrt)
        except ArgumentChanged:
            raise
        except Exception as error:
            raised = raised or type(error).__name__
    return Original(raised=raised)


def close(value: np.ndarray, other: np.ndarray) -> bool:
    if value.dtype.kind not in "fiub":
        return False
    return bool(np.allclose(value, other, rtol=VALUE_TOLERANCE, atol=VALUE_TOLERANCE, equal_nan=True))


def same_slope(gradient: np.ndarray | None, slope: np.ndarray | None, may_choose: bool, scale: float) -> Trial:
    """Whether two gradients agree; `scale` is how large gradients of this loss ordinarily are."""
    if gradient is None and slope is None:
        return Trial(note="Neither has a gradient with respect to the predictions: the values were compared.")
    slope = np.zeros_like(gradient) if slope is None else slope
    defined = True if gradient is None else np.isfinite(gradient)
    if not np.all(defined):
        if not np.all(np.isfinite(slope[defined])):
            return Trial(problem="the rewrite's gradient is NaN where the original's is not", is_only_slope=True)
        return Trial(note="On some adversarial inputs the original's own gradient is NaN; it was not compared there.")
    if not np.all(np.isfinite(slope)):
        return Trial(problem="the rewrite's gradient is NaN or infinite", is_only_slope=True)
    if gradient is None:
        return Trial(problem="the original has no gradient, the rewrite has one" if np.any(slope) else None)
    largest = max(float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(slope), initial=0.0)))
    if np.max(np.abs(gradient - slope), initial=0.0) <= GRADIENT_TOLERANCE * largest + 1e-6 * scale:
        return Trial(scale=largest)
    if may_choose:
        return Trial(note="At exact ties the gradient is another one of several that hold there.")
    off = float(np.max(np.abs(gradient - slope))) / largest
    return Trial(problem=f"the gradients differ by {off:.1e} of the largest entry", is_other_gradient=True)


def _shown(value: np.ndarray) -> str:
    return f"{value.item():.6g}" if value.size == 1 else f"an array of shape {value.shape}"
