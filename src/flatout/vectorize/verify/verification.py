"""Verification by trial: a rewrite equals its original in value and gradient on adversarial inputs, or is rejected."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import trial_inputs as inputs
from .gradients import (
    ArgumentChanged,
    compiling_ahead,
    heard_from_tensorflow,
    outside_tracing,
    quick_answer,
    unknown_length,
    value_and_gradient,
)
from .trial_inputs import Recipe
from .trials import Kinks, Trial, backend, close, same_slope, tried

_BATCHES = (1, 2)
# Samples of most adversarial inputs. On jax the rewrite runs on these as `fit` compiles it, and on the others as it is
# compiled soonest: XLA needs a program for each length of a batch, and a tenth of a second for each.
_ADVERSARIAL = 3
# The input that asks how a rewrite rounds: compiled code must answer.
_ROUNDED = "a large, nearly constant signal"
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
        is_remembered: Whether that was done by an earlier process.
    """

    equal: bool
    reason: str = ""
    compared: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    unsized: Unsized = "none"
    is_remembered: bool = False


def find_recipes(
    slow: Callable[..., Any],
    ranks: Mapping[str, int],
    predicted: str,
    hints: Sequence[tuple[Any, ...]] = (),
    evaluate: Any = lambda node: None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    most: int = 3,
) -> list[Recipe]:
    """Ways to make inputs that the original accepts, of different kinds.

    Raises:
        ArgumentChanged: The original changes an argument in place.
    """
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
            quick = quick_answer(slow, arrays, recipe.predicted)
            value, _ = value_and_gradient(slow, arrays, None) if quick is None else quick
        return bool(np.all(np.isfinite(value)))
    except ArgumentChanged:
        raise
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
    is_on_host: bool = False,
    is_blurred: bool = False,
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
        is_on_host: Whether the original computes with Python's floats, which have 64 bits.
        is_blurred: Whether it compares or rounds what it computed with them.

    Raises:
        ArgumentChanged: The original changes an argument in place.
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
    was_compiled = False
    answers = {} if answers is None else answers
    began = time.perf_counter()
    with outside_tracing(), heard_from_tensorflow() as heard, compiling_ahead(fast) as begin:
        for number, recipe in enumerate(recipes):
            batches = (*_BATCHES, _odd(recipe))
            trials = [(f"batch of {batch}", inputs.ordinary(recipe, batch), False) for batch in batches]
            is_long = time.perf_counter() - began > _LONG
            trials = trials if number == 0 else trials[-1:]
            if number == 0 or not is_long:
                trials += list(inputs.adversarial(recipe, _ADVERSARIAL, _odd(recipe)))
            if "float64" in source or (is_on_host and number == 0):
                # What 64 bits are against is cancellation; a backend without them must not hide it.
                samples = 24 if "float64" in source else _odd(recipe)
                trials += [(_ROUNDED, inputs.offset(recipe, samples), False)]
            if is_blurred and number == 0:
                tenths = enumerate(inputs.in_tenths(recipe, _odd(recipe)), 1)
                trials += [(f"targets in tenths, {count}", arrays, True) for count, arrays in tenths]
            for name, arrays, _ in trials:
                if _is_compiled(name, arrays, recipe):
                    begin(arrays, recipe.predicted)
            for name, arrays, has_ties in trials:
                for value in arrays.values():
                    digest.update(np.ascontiguousarray(value).tobytes())
                kinks = Kinks(has_ties, is_kinked, is_tie_sensitive)
                is_compiled = _is_compiled(name, arrays, recipe)
                key = (number, name)
                trial = tried(slow, fast, recipe, name, arrays, kinks, scale, answers, key, is_compiled)
                if trial.is_only_value and is_ordered and name.startswith(("NaN", "infinity")):
                    trial = Trial(note="Where values that are sorted are NaN, their order differs from the original's.")
                scale = scale or trial.scale
                if lenient and trial.is_only_slope and name in inputs.SPOILT_PREDICTIONS:
                    trial = Trial(
                        note="Where a prediction is NaN or infinite, so is the gradient; the original leaves some out."
                    )
                if trial.problem:
                    return Verdict(False, f"{name}: {trial.problem}", tuple(compared), tuple(skipped))
                if trial.skipped:
                    skipped.append(f"{name}: {trial.skipped}")
                else:
                    compared.append(name)
                    was_compiled = was_compiled or is_compiled
                if trial.note and trial.note not in notes:
                    notes.append(trial.note)
        problem = None
        for batch in _to_compile(compared, was_compiled):
            problem = problem or _compiles(fast, slow, recipes[0], batch)
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


def _is_compiled(name: str, arrays: Mapping[str, np.ndarray], recipe: Recipe) -> bool:
    """Whether the rewrite runs compiled on an input, on jax."""
    return name == _ROUNDED or arrays[recipe.predicted].shape[:1] == (_ADVERSARIAL,)


def _to_compile(compared: Sequence[str], was_compiled: bool) -> list[int]:
    """Lengths of batches for which the compiled rewrite is yet to be compared with itself as it runs uncompiled."""
    if backend() == "tensorflow":
        return [5]
    if backend() == "torch" or was_compiled:
        return []
    # The original took no adversarial input.
    return [int(name.removeprefix("batch of ")) for name in dict.fromkeys(compared) if name.startswith("batch of ")]


def _compiles(fast: Any, slow: Any, recipe: Recipe, batch: int) -> str | None:
    arrays = inputs.ordinary(recipe, batch)
    try:
        plain, _ = value_and_gradient(fast, arrays, recipe.predicted)
        made, slope = value_and_gradient(fast, arrays, recipe.predicted, compiled=True)
        if slope is not None and not np.all(np.isfinite(slope)):
            return "the compiled rewrite's gradient is NaN or infinite"
    except Exception as error:
        if _lacks_an_operation(error) and _lacks_an_operation(_failure(slow, arrays, recipe.predicted)):
            return None  # XLA has no such operation: the original cannot be compiled by it, either.
        return f"the rewrite cannot be compiled: {type(error).__name__}: {str(error)[:200]}"
    return None if close(plain, made) else "the compiled rewrite gives another value"


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
    if backend() != "tensorflow":
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
        agree = all(close(value, other) for (value, _), (other, _) in pairs)
        if agree and not any(same_slope(one, other, False, 0.0).problem for (_, one), (_, other) in pairs):
            return which, ""
    return "none", f"Where the length of a batch is not known while tracing, the original runs: {said}"
