"""Verification by trial: a rewrite equals its original in value and gradient on adversarial inputs, or is rejected."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flatout.vectorize.arrays.exact_numbers import BLURRED

from . import trial_inputs as inputs
from .gradients import (
    ArgumentChanged,
    backend,
    heard_from_tensorflow,
    outside_tracing,
    unknown_length,
    value_and_gradient,
    widest_integers,
)
from .trial_inputs import Recipe
from .trials import Trial, Trials, asked, close, same_slope

_BATCHES = (1, 2)
# Samples of most adversarial inputs. On jax the rewrite runs on these as `fit` compiles it, and on the others as it is
# compiled soonest: XLA needs a program for each length of a batch, and a tenth of a second for each.
_ADVERSARIAL = 3
# The input that asks how a rewrite rounds: compiled code must answer.
_ROUNDED = "a large, nearly constant signal"
# The input for which a size that was taken for a constant is wrong. Where the rewrite raises, the original will run.
_WIDER = "other sizes"
_MOST_KINDS = 3
# Seconds after which further kinds of input are tried on one batch each only.
_LONG = 3.0
# Where such functions meet a tie, one-sided slopes differ, and each is a gradient.
_KINKED = ("ops.max", "ops.min", "ops.abs", "ops.relu", "ops.sort", "ops.top_k", "ops.clip")
_UNSUPPORTED = "unsupported operations"

Unsized = Literal["none", "first", "all"]


@dataclass(frozen=True)
class Rewrite:
    """A loss as array code."""

    source: str  # Python, in `keras.ops`: lines to run once, then the function under its own name.
    form: str  # How loops were replaced: "axis" (dimensions), "masked" (and selections), "map" (`vectorized_map`).
    notes: tuple[str, ...] = ()  # What differs where the original fails or is undefined, and what was left out.
    codes: tuple[str, ...] = ()  # The rules of docs/losses.md that the rewrite answers.
    ranks: tuple[tuple[str, int], ...] = ()  # Of the parameters that are arrays; the rewrite holds for these.
    names: Mapping[str, Any] = field(default_factory=dict)  # What the source needs beside the function's globals.
    guards: tuple[tuple[str, bool], ...] = ()  # Expressions that decided a branch, with the truth they must have.
    hints: tuple[tuple[Any, ...], ...] = ()  # What was learned about the values of the parameters.
    is_tie_sensitive: bool = False  # Whether the order of equal entries matters.
    # Functions and their outside names that the source holds as they were, such as a helper that was read in.
    pins: tuple[tuple[Any, str, Any], ...] = ()


@dataclass(frozen=True)
class NoRewrite:
    """Why a loss is left as it is."""

    reason: str  # One sentence.
    code: str  # The rule of docs/losses.md that stands in the way.
    line: int | None = None  # Of the source.
    is_rank: bool = False  # Whether arrays of other ranks might do.
    hints: tuple[tuple[Any, ...], ...] = ()  # What was learned about the values of the parameters until then.

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return f"{self.code}: {self.reason}{where}"


_UNKNOWN = Rewrite("", "axis")


@dataclass(frozen=True)
class Verdict:
    """What was compared."""

    equal: bool  # Whether the rewrite may stand in for the original.
    reason: str = ""  # What differed, or why nothing could be compared; empty if equal.
    compared: tuple[str, ...] = ()  # The inputs on which value and gradient agreed.
    skipped: tuple[str, ...] = ()  # The inputs on which the original fails or is undefined, with what it did.
    notes: tuple[str, ...] = ()  # What holds with a proviso: ties, gradients that the original does not have.
    digest: str = ""  # Of the inputs, to compare reports.
    unsized: Unsized = "none"  # Which dimensions may be unknown while a step is traced, on TensorFlow.
    is_sized: bool = False  # Whether it raises for other sizes behind the first dimension than those it was tried on.
    floats_only: tuple[str, ...] = ()  # Parameters for whose whole numbers the original runs: 32 bits may not do.
    is_remembered: bool = False  # Whether that was done by an earlier process.


def find_recipes(
    slow: Callable[..., Any],
    ranks: Mapping[str, int],
    predicted: str,
    hints: Sequence[tuple[Any, ...]] = (),
    evaluate: Any = lambda node: None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> list[Recipe]:
    """Ways to make inputs that the original accepts, of different kinds."""
    found: list[Recipe] = []
    for recipe in inputs.recipes(ranks, predicted, hints, evaluate, shapes):
        if found and found[0].sizes != recipe.sizes:
            break  # One set of sizes will do; the kinds of values are what matters.
        # Softmax and unit predictions are one kind.
        kinds = {(known.as_float, known.scale == "normal") for known in found}
        if (recipe.as_float, recipe.scale == "normal") not in kinds and _accepts(slow, recipe):
            found.append(recipe)
            if len(found) == _MOST_KINDS:
                break
    return found


def _odd(recipe: Recipe) -> int:
    """A batch size that no other dimension has: an array that is broadcast along the wrong one must not fit."""
    taken = {size for sizes in recipe.sizes.values() for size in sizes}
    return next(batch for batch in (7, 9, 11, 13, 15, 17) if batch not in taken)


def _accepts(slow: Callable[..., Any], recipe: Recipe) -> bool:
    try:
        with outside_tracing():
            answer = asked(slow, inputs.ordinary(recipe, _odd(recipe)), recipe.predicted)
        return not answer.raised and bool(np.all(np.isfinite(answer.value)))
    except ArgumentChanged:
        raise
    except Exception:
        return False


def verify(
    slow: Callable[..., Any],
    fast: Callable[..., Any],
    recipes: Sequence[Recipe],
    rewrite: Rewrite = _UNKNOWN,
    lenient: bool = False,
    answers: dict[Any, Any] | None = None,
) -> Verdict:
    """Compare a rewrite with its original on inputs that `find_recipes` has found the original to accept.

    `lenient`: the gradient may be NaN where a prediction is NaN or infinite and the original, by a comparison that NaN
    fails, happens to leave it out. Never for targets: NaN stands for missing ones. `answers` are the original's, kept
    from one rewrite that was tried to the next.
    """
    if not recipes:
        return Verdict(False, "No inputs were found that the original accepts; give some with example=.")
    compared, skipped, notes = (dict[str, None]() for _ in range(3))  # In the order in which they came.
    digest = hashlib.sha256()
    is_kinked = any(name in rewrite.source for name in _KINKED)
    is_ordered = "sort(" in rewrite.source or "top_k(" in rewrite.source
    predicted = recipes[0].predicted
    trials = Trials(slow, fast, predicted, is_kinked, rewrite.is_tie_sensitive, {} if answers is None else answers)
    is_sized, began, floats_only = False, time.perf_counter(), set[str]()

    def rejected(reason: str) -> Verdict:
        return Verdict(False, reason, tuple(compared), tuple(skipped))

    with outside_tracing(), heard_from_tensorflow() as heard:
        for number, recipe in enumerate(recipes):
            is_long = time.perf_counter() - began > _LONG
            was_compiled, ordinary = False, list[int]()
            for name, arrays, has_ties in _inputs(recipe, number == 0, is_long, rewrite):
                for value in arrays.values():
                    digest.update(np.ascontiguousarray(value).tobytes())
                # On jax.
                is_compiled = name == _ROUNDED or arrays[predicted].shape[:1] == (_ADVERSARIAL,)
                trial = trials.run((number, name), name, arrays, has_ties, is_compiled)
                if trial.is_only_value and is_ordered and name.startswith(("NaN", "infinity")):
                    trial = Trial(note="Where values that are sorted are NaN, their order differs from the original's.")
                if lenient and trial.is_only_slope and name in inputs.SPOILT_PREDICTIONS:
                    trial = Trial(
                        note="Where a prediction is NaN or infinite, so is the gradient; the original leaves some out."
                    )
                if name == _WIDER and trial.problem and "the rewrite raises" in trial.problem:
                    is_sized = True
                    trial = Trial(skipped=trial.problem)
                if trial.problem and (whole := inputs.read_as_whole(recipe, name, arrays)):
                    floats_only.add(whole)
                    trial = Trial(note=f"Where {whole} holds whole numbers, the original runs: they may be large.")
                if trial.problem:
                    return rejected(f"{name}: {trial.problem}")
                if trial.skipped:
                    skipped[f"{name}: {trial.skipped}"] = None
                else:
                    compared[name] = None
                    ordinary += [int(name.removeprefix("batch of "))] if name.startswith("batch of") else []
                    has_slope = trials.answers[number, name].wrt is not None
                    was_compiled = was_compiled or (is_compiled and has_slope)
                if trial.note:
                    notes[trial.note] = None
            # For each kind of input: what is compiled for floats may not be for whole numbers.
            to_compile = {"tensorflow": [5] if number == 0 else [], "jax": [] if was_compiled else ordinary}
            for batch in to_compile.get(backend(), []):
                if problem := _compiles(fast, slow, recipe, batch):
                    return rejected(problem)
        if any("Using a while_loop" in line for line in heard):
            return rejected("TensorFlow cannot map an operation of it, and would run the samples one after the other")
        unsized, note = _unsized(fast, recipes[0])
        notes |= {note: None} if note else {}
    if not any(name.startswith("batch of") for name in compared):
        return Verdict(False, "The original fails on every ordinary batch.", (), tuple(skipped))
    seen = tuple(compared), tuple(skipped), tuple(notes), digest.hexdigest()[:16]
    return Verdict(True, "", *seen, unsized, is_sized, tuple(sorted(floats_only)))


def _inputs(
    recipe: Recipe, is_first: bool, is_long: bool, rewrite: Rewrite
) -> Iterator[tuple[str, dict[str, np.ndarray], bool]]:
    """Inputs of one kind: name, arrays, and whether entries tie in them; few, if it is not the first and takes long."""
    odd = _odd(recipe)
    for batch in (*_BATCHES, odd) if is_first else (odd,):
        yield f"batch of {batch}", inputs.ordinary(recipe, batch), False
    # Unless a call of other sizes is not the rewrite's.
    if is_first and not any("shape" in text for text, _ in rewrite.guards):
        yield _WIDER, inputs.ordinary(inputs.wider(recipe), _BATCHES[-1]), False
    if is_first or not is_long:
        yield from inputs.adversarial(recipe, _ADVERSARIAL, odd)
    if rewrite.form != "map":  # What is mapped reads nothing on the host.
        has_remainders = "ops.mod" in rewrite.source or "ops.floor_divide" in rewrite.source
        yield from inputs.large(recipe, odd, widest_integers(), has_remainders)
    is_wide, is_on_host = "float64" in rewrite.source, "FO201" in rewrite.codes
    if is_wide or (is_on_host and is_first):
        # What 64 bits are against is cancellation; a backend without them must not hide it.
        yield _ROUNDED, inputs.offset(recipe, 24 if is_wide else odd), False
    if BLURRED in rewrite.notes and is_first:
        for count, arrays in enumerate(inputs.in_tenths(recipe, odd), 1):
            yield f"targets in tenths, {count}", arrays, True


def _compiles(fast: Any, slow: Any, recipe: Recipe, batch: int) -> str | None:
    """What the rewrite gives otherwise when it is compiled than when it is not."""
    arrays = inputs.ordinary(recipe, batch)
    try:
        plain, _ = value_and_gradient(fast, arrays, recipe.predicted)
        made, slope = value_and_gradient(fast, arrays, recipe.predicted, compiled=True)
    except Exception as error:
        if _UNSUPPORTED in str(error):
            try:
                value_and_gradient(slow, arrays, recipe.predicted, compiled=True)
            except Exception as own:
                if _UNSUPPORTED in str(own):
                    return None  # XLA has no such operation: the original cannot be compiled by it, either.
        return f"the rewrite cannot be compiled: {type(error).__name__}: {str(error)[:200]}"
    if slope is not None and not np.all(np.isfinite(slope)):
        return "the compiled rewrite's gradient is NaN or infinite"
    return None if close(plain, made) else "the compiled rewrite gives another value"


def _unsized(fast: Any, recipe: Recipe) -> tuple[Unsized, str]:
    """Which dimensions the rewrite need not know while it is traced, and what stands against more."""
    if backend() != "tensorflow":
        return "none", ""  # The other backends know every size.
    batches = [inputs.ordinary(recipe, batch) for batch in (5, 2)]
    known = [value_and_gradient(fast, arrays, recipe.predicted) for arrays in batches]
    said = "it gives another value"
    which: Unsized
    for which in ("all", "first"):
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
