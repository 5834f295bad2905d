"""Proof by trial: a rewrite equals its original in value and gradient on adversarial inputs, or is rejected."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import inputs
from .gradients import compiled_if_small, heard_from_tensorflow, outside_tracing, unknown_length, value_and_gradient
from .inputs import Recipe

VALUE_TOLERANCE = 2e-5
GRADIENT_TOLERANCE = 2e-4
_BATCHES = (1, 2)
# Seconds after which further kinds of input are tried on one batch each only.
_LONG = 3.0
# Where such functions meet a tie, one-sided slopes differ, and each is a gradient.
_KINKED = ("ops.max", "ops.min", "ops.abs", "ops.relu", "ops.sort", "ops.top_k", "ops.clip")

Unsized = Literal["none", "first", "all"]
_SIZED: Unsized = "none"
_UNSIZED: tuple[Unsized, ...] = ("all", "first")


@dataclass(frozen=True)
class Verdict:
    """What was compared.

    Attributes:
        equal: Whether the rewrite may stand in for the original.
        reason: What differed, or why nothing could be compared; empty if equal.
        compared: The inputs on which value and gradient agreed.
        skipped: The inputs on which the original fails or is undefined, with what it did.
        notes: What holds with a proviso: ties, gradients that the original does not have.
        digest: Of the inputs, to compare reports.
        unsized: Which dimensions may be unknown while a step is traced, on TensorFlow: none, the first, or all.
    """

    equal: bool
    reason: str = ""
    compared: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    unsized: Unsized = "none"


@dataclass(frozen=True)
class _Trial:
    """The original's answer for one input, and what a rewrite made of it."""

    problem: str | None = None
    skipped: str | None = None
    note: str | None = None
    scale: float = 0.0
    is_only_slope: bool = False
    is_only_value: bool = False


def find_recipes(
    slow: Callable[..., Any],
    ranks: Mapping[str, int],
    predicted: str,
    hints: Sequence[tuple[Any, ...]] = (),
    evaluate: Any = lambda node: None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    most: int = 3,
) -> list[Recipe]:
    """Ways to make inputs that the original accepts, of different kinds."""
    found: list[Recipe] = []
    for recipe in inputs.recipes(ranks, predicted, hints, evaluate, shapes):
        if found and found[0].sizes != recipe.sizes:
            break  # One set of sizes will do; the kinds of values are what matters.
        if any(_kind(known) == _kind(recipe) for known in found):
            continue
        if _accepts(slow, recipe):
            found.append(recipe)
            if len(found) == most:
                break
    return found


def _kind(recipe: Recipe) -> tuple[Any, ...]:
    """What two recipes must differ in to be worth trying both: softmax and unit predictions are one kind."""
    return recipe.as_float, recipe.scale == "normal"


def _odd(recipe: Recipe) -> int:
    """A batch size that no other dimension has: an array that is broadcast along the wrong one must not fit."""
    taken = {size for sizes in recipe.sizes.values() for size in sizes}
    return next(batch for batch in (7, 9, 11, 13, 15, 17) if batch not in taken)


def _accepts(slow: Callable[..., Any], recipe: Recipe) -> bool:
    try:
        with outside_tracing():
            arrays = inputs.ordinary(recipe, _odd(recipe))
            quick = compiled_if_small(slow, arrays, recipe.predicted)
            value, _ = value_and_gradient(slow, arrays, None) if quick is None else quick
        return bool(np.all(np.isfinite(value)))
    except Exception:
        return False


def verify(
    slow: Callable[..., Any],
    fast: Callable[..., Any],
    recipes: Sequence[Recipe],
    source: str = "",
    is_tie_sensitive: bool = False,
    lenient: bool = False,
    answers: dict[Any, Any] | None = None,
) -> Verdict:
    """Compare a rewrite with its original.

    Args:
        slow: The original.
        fast: The rewrite.
        recipes: How to make inputs that the original accepts, from `find_recipes`.
        source: The rewrite's source, to know whether it has kinks, where the gradient at a tie is a matter of choice.
        is_tie_sensitive: Whether the order of equal entries matters.
        lenient: Whether the gradient may be NaN where a prediction is NaN or infinite and the original, by a comparison
            that NaN fails, happens to leave it out. Never for targets: NaN stands for missing ones.
        answers: The original's answers, kept from one rewrite that was tried to the next.
    """
    if not recipes:
        return Verdict(False, "No inputs were found that the original accepts; give some with example=.")
    compared: list[str] = []
    skipped: list[str] = []
    notes: list[str] = []
    digest = hashlib.sha256()
    is_kinked = any(name in source for name in _KINKED)
    is_ordered = "sort(" in source or "top_k(" in source
    scale = 0.0
    answers = {} if answers is None else answers
    began = time.perf_counter()
    with outside_tracing(), heard_from_tensorflow() as heard:
        for number, recipe in enumerate(recipes):
            batches = (*_BATCHES, _odd(recipe))
            trials = [(f"batch of {batch}", inputs.ordinary(recipe, batch), False) for batch in batches]
            is_long = time.perf_counter() - began > _LONG
            trials = trials if number == 0 else trials[-1:]
            if number == 0 or not is_long:
                trials += list(inputs.adversarial(recipe, 3))
            if "float64" in source:
                # The user asks for it against cancellation; a backend without float64 must not hide that.
                trials += [("a large, nearly constant signal", inputs.offset(recipe, 24), False)]
            for name, arrays, has_ties in trials:
                for value in arrays.values():
                    digest.update(np.ascontiguousarray(value).tobytes())
                kinks = _Kinks(has_ties, is_kinked, is_tie_sensitive)
                trial = _tried(slow, fast, recipe, name, arrays, kinks, scale, answers, (number, name))
                if trial.is_only_value and is_ordered and name.startswith(("NaN", "infinity")):
                    trial = _Trial(
                        note="Where values that are sorted are NaN, their order differs from the original's."
                    )
                scale = scale or trial.scale
                if lenient and trial.is_only_slope and name in inputs.SPOILT_PREDICTIONS:
                    trial = _Trial(
                        note="Where a prediction is NaN or infinite, so is the gradient; the original leaves some out."
                    )
                if trial.problem:
                    return Verdict(False, f"{name}: {trial.problem}", tuple(compared), tuple(skipped))
                if trial.skipped:
                    skipped.append(f"{name}: {trial.skipped}")
                else:
                    compared.append(name)
                if trial.note and trial.note not in notes:
                    notes.append(trial.note)
        problem = _compiles(fast, slow, recipes[0])
        if any("Using a while_loop" in line for line in heard):
            problem = "TensorFlow cannot map an operation of it, and would run the samples one after the other"
        unsized, note = _unsized(fast, recipes[0]) if not problem else (_SIZED, "")
        notes += [note] if note else []
    if problem:
        return Verdict(False, problem, tuple(compared), tuple(skipped))
    if not any(name.startswith("batch of") for name in compared):
        return Verdict(False, "The original fails on every ordinary batch.", (), tuple(skipped))
    names = tuple(dict.fromkeys(compared))
    return Verdict(True, "", names, tuple(dict.fromkeys(skipped)), tuple(notes), digest.hexdigest()[:16], unsized)


@dataclass(frozen=True)
class _Kinks:
    """Whether inputs hold ties, and whether the rewrite has kinks there, or orders what ties."""

    has_ties: bool
    is_kinked: bool
    is_tie_sensitive: bool


def _tried(
    slow: Any,
    fast: Any,
    recipe: Recipe,
    name: str,
    arrays: Any,
    kinks: _Kinks,
    scale: float,
    answers: dict[Any, Any],
    key: Any,
) -> _Trial:
    """One input. Where the original, compiled as a whole, gives something else, it is asked step by step."""
    answer = answers.get(key)
    if answer is None:
        answer = answers[key] = _answer(slow, arrays, recipe.predicted)
    trial = _compare(answer, fast, arrays, recipe.predicted, name, kinks, scale)
    if trial.problem and answer[4]:
        answer = answers[key] = _answer(slow, arrays, recipe.predicted, is_exact=True)
        trial = _compare(answer, fast, arrays, recipe.predicted, name, kinks, scale)
    return trial


def _answer(slow: Any, arrays: Any, wrt: str, is_exact: bool = False) -> tuple[Any, Any, str, str | None, bool]:
    """The original's value and gradient, or the name of what it raises.

    Then what its gradient can be asked for, and whether the original was compiled as a whole, which `is_exact` forbids.
    """
    try:
        quick = None if is_exact else compiled_if_small(slow, arrays, wrt)
        if quick is not None:
            return (*quick, "", wrt, True)
        return (*value_and_gradient(slow, arrays, wrt), "", wrt, False)
    except Exception as error:
        try:
            return (*value_and_gradient(slow, arrays, None), "", None, False)
        except Exception:
            return None, None, type(error).__name__, None, False


def _compare(
    answer: tuple[Any, Any, str, str | None, bool],
    fast: Any,
    arrays: Any,
    predicted: str,
    name: str,
    kinks: _Kinks,
    scale: float,
) -> _Trial:
    value, gradient, raised, differentiable, _ = answer
    if raised:
        return _Trial(skipped=f"the original raises {raised}")
    # At an adversarial input the original's gradient may fail; on an ordinary batch that is no excuse.
    wrt = predicted if name.startswith("batch of") else differentiable
    try:
        # On jax one compilation is sooner done than each operation on its own.
        other, slope = value_and_gradient(fast, arrays, wrt, compiled=_backend() == "jax")
    except Exception as error:
        return _Trial(problem=f"the rewrite raises {type(error).__name__}: {str(error)[:200]}")
    if _backend() == "jax" and value.shape == other.shape and not _close(value, other):
        # Compiled code may drop a NaN (XLA's minimum and maximum on a CPU do), the original's as well as ours.
        other, slope = value_and_gradient(fast, arrays, wrt)
    is_finite = all(np.all(np.isfinite(array)) for array in arrays.values())
    if value.shape != other.shape:
        return _Trial(problem=f"the original returns shape {value.shape}, the rewrite {other.shape}")
    undefined = np.isnan(value)
    if is_finite and undefined.any():
        return _Trial(skipped="the original is NaN")
    if not _close(value, other):
        if kinks.is_tie_sensitive and kinks.has_ties:
            return _Trial(note="Equal where no two entries tie: how ties are ordered differs.")
        return _Trial(problem=f"the original gives {_shown(value)}, the rewrite {_shown(other)}", is_only_value=True)
    if not np.all(np.isfinite(value)):
        return _Trial()
    return _same_slope(gradient, slope, kinks.has_ties and kinks.is_kinked, scale)


def _backend() -> str:
    import keras

    return str(keras.backend.backend())


def _close(value: np.ndarray, other: np.ndarray) -> bool:
    if value.dtype.kind not in "fiub":
        return False
    return bool(np.allclose(value, other, rtol=VALUE_TOLERANCE, atol=VALUE_TOLERANCE, equal_nan=True))


def _same_slope(gradient: np.ndarray | None, slope: np.ndarray | None, may_choose: bool, scale: float) -> _Trial:
    """Whether two gradients agree; `scale` is how large gradients of this loss ordinarily are."""
    if gradient is None and slope is None:
        return _Trial(note="Neither has a gradient with respect to the predictions: the values were compared.")
    if slope is None:
        assert gradient is not None
        slope = np.zeros_like(gradient)
    if gradient is None:
        if not np.all(np.isfinite(slope)):
            return _Trial(problem="the rewrite's gradient is NaN or infinite", is_only_slope=True)
        if np.any(slope):
            return _Trial(problem="the original has no gradient, the rewrite has one")
        return _Trial()
    defined = np.isfinite(gradient)
    if not defined.all():
        if not np.all(np.isfinite(slope[defined])):
            return _Trial(problem="the rewrite's gradient is NaN where the original's is not")
        return _Trial(note="On some adversarial inputs the original's own gradient is NaN; it was not compared there.")
    if not np.all(np.isfinite(slope)):
        return _Trial(problem="the rewrite's gradient is NaN or infinite", is_only_slope=True)
    largest = max(float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(slope), initial=0.0)))
    if np.max(np.abs(gradient - slope), initial=0.0) <= GRADIENT_TOLERANCE * largest + 1e-6 * scale:
        return _Trial(scale=largest)
    if may_choose:
        return _Trial(note="At exact ties the gradient is another one of several that hold there.")
    off = float(np.max(np.abs(gradient - slope))) / largest
    return _Trial(problem=f"the gradients differ by {off:.1e} of the largest entry")


def _shown(value: np.ndarray) -> str:
    return f"{value.item():.6g}" if value.size == 1 else f"an array of shape {value.shape}"


def _compiles(fast: Any, slow: Any, recipe: Recipe) -> str | None:
    if _backend() != "tensorflow":
        return None  # On jax it was compiled all along; torch does not compile.
    arrays = inputs.ordinary(recipe, 5)
    try:
        plain, _ = value_and_gradient(fast, arrays, recipe.predicted)
        made, slope = value_and_gradient(fast, arrays, recipe.predicted, compiled=True)
        if slope is not None and not np.all(np.isfinite(slope)):
            return "the compiled rewrite's gradient is NaN or infinite"
    except Exception as error:
        if _lacks_an_operation(error) and _lacks_an_operation(_failure(slow, arrays, recipe.predicted)):
            return None  # XLA has no such operation: the original cannot be compiled by it, either.
        return f"the rewrite cannot be compiled: {type(error).__name__}: {str(error)[:200]}"
    return None if _close(plain, made) else "the compiled rewrite gives another value"


def _failure(slow: Any, arrays: Any, wrt: str) -> Exception | None:
    try:
        value_and_gradient(slow, arrays, wrt, compiled=True)
    except Exception as error:
        return error
    return None


def _lacks_an_operation(error: Exception | None) -> bool:
    return "unsupported operations" in str(error)


def _unsized(fast: Any, recipe: Recipe) -> tuple[Unsized, str]:
    """Which dimensions the rewrite need not know while it is traced, and what stands against more."""
    if _backend() != "tensorflow":
        return "none", ""  # The other backends know every size.
    batches = [inputs.ordinary(recipe, batch) for batch in (5, 2)]
    known = [value_and_gradient(fast, arrays, recipe.predicted) for arrays in batches]
    said = "it gives another value"
    for which in _UNSIZED:
        try:
            found = unknown_length(fast, batches, recipe.predicted, is_all=which == "all")
        except Exception as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
            continue
        pairs = list(zip(known, found, strict=True))
        agree = all(_close(value, other) for (value, _), (other, _) in pairs)
        if agree and not any(_same_slope(one, other, False, 0.0).problem for (_, one), (_, other) in pairs):
            return which, ""
    return "none", f"Where the length of a batch is not known while tracing, the original runs: {said}"
