"""Whether a loss is rewritten: derive the array code for some ranks, make inputs, compare, and decide."""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import functools
import io
import linecache
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.exact_comparisons import BLURRED
from flatout.vectorize.arrays.lifted_values import Refused
from flatout.vectorize.interpreter.scopes import outside_of
from flatout.vectorize.reading.function_source import tree_of
from flatout.vectorize.verify import kept_verdicts
from flatout.vectorize.verify.gradients import ArgumentChanged
from flatout.vectorize.verify.rewrites import NoRewrite, Rewrite
from flatout.vectorize.verify.verification import find_recipes, verify

from .decorator import Decision
from .rewrite import _text, array_parameters, candidate_ranks, map_function, rewrite_function


def decide(
    function: Any,
    ranks: Mapping[str, int],
    holder: Any = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
) -> Decision:
    """Rewrite a function for arrays of these ranks and verify it, or say why not."""
    if not _runs_at_once():
        # A thread of its own has no graph and no gradient tape around it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(_decide, function, ranks, holder, shapes).result()
    return _decide(function, ranks, holder, shapes)


def _runs_at_once() -> bool:
    import keras

    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    return bool(tf.executing_eagerly())


def _decide(function: Any, ranks: Mapping[str, int], holder: Any, shapes: Any) -> Decision:
    """The axis or masked form if it is verified, else the map form if that is, else the reason against the first."""
    found = rewrite_function(function, ranks, holder)
    if isinstance(found, NoRewrite):
        decision = Decision(None, found)
    else:
        decision = _of_arrays(function, found, ranks, holder, shapes)
    if decision.function is None:
        refusal = found if isinstance(found, NoRewrite) else NoRewrite("", decision.reason.code, hints=found.hints)
        mapped = map_function(function, ranks, holder, refusal)
        if mapped is not None:
            again = verified(function, mapped, holder, shapes)
            if again.function is not None:
                return again
            if isinstance(found, NoRewrite):
                return replace(again, reason=found)
    return decision


def _of_arrays(function: Any, found: Rewrite, ranks: Mapping[str, int], holder: Any, shapes: Any) -> Decision:
    """Verify the array form, if need be with what is left out replaced before the arithmetic."""
    answers: dict[Any, Any] = {}
    decision = verified(function, found, holder, shapes, answers)
    reason = "" if decision.verdict is None else decision.verdict.reason
    if "nan" not in reason.lower():
        return decision
    forms = [(True, False)]
    if "the original gives nan" in reason:
        forms += [(False, True), (True, True)]
    for is_careful, is_exact in forms:
        other = rewrite_function(function, ranks, holder, is_careful, is_exact)
        if isinstance(other, Rewrite) and other.source != found.source:
            again = verified(function, other, holder, shapes, answers)
            if again.function is not None:
                return again
    if not any(word in found.source for word in ("isnan", "isfinite", "nan_to_num")):
        again = verified(function, found, holder, shapes, answers, lenient=True)
        return again if again.function is not None else decision
    return decision


def suggested(function: Any, holder: Any = None) -> tuple[dict[str, int], Decision]:
    """The ranks that the code suggests, and the decision for them: the first that is verified, else the best reason."""
    try:
        parameters = array_parameters(tree_of(function))
    except Refused as refused:
        return {}, Decision(None, NoRewrite(refused.reason, refused.code, refused.line))
    best: tuple[dict[str, int], Decision] | None = None
    for ranks in candidate_ranks(parameters):
        decision = decide(function, ranks, holder)
        if decision.function is not None:
            return ranks, decision
        if best is None or _weight(decision) > _weight(best[1]):
            best = ranks, decision
        if decision.rewrite is None and not decision.reason.is_rank and decision.reason.code not in ("FO100", "FO108"):
            break  # No rank helps a recurrence or a random draw; what a mask selects may be of another rank.
    assert best is not None
    return best


def _weight(decision: Decision) -> int:
    if decision.reason.is_rank:
        return 0
    if decision.rewrite is not None:
        return 3 if decision.recipe is not None else 1
    return 2


def verified(
    function: Any,
    rewrite: Rewrite,
    holder: Any = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    answers: dict[Any, Any] | None = None,
    lenient: bool = False,
) -> Decision:
    """Compare a rewrite with its original on inputs that are made for it, unless an earlier process has done so."""
    slow = function if holder is None else functools.partial(function, holder)
    fast = compiled(function, rewrite)
    bound = fast if holder is None else functools.partial(fast, holder)
    names = outside_of(function)

    def evaluate(node: Any) -> Any:
        try:
            return eval(_source_of(node), {**names, **rewrite.names})
        except Exception:
            return None

    key = kept_verdicts.key_of(function, holder, rewrite, shapes, lenient)
    known = None if key is None else kept_verdicts.load(key)
    if known is not None:
        return _accepted(fast, rewrite, *known)
    with contextlib.redirect_stdout(io.StringIO()):  # What the original prints is meant for its own runs.
        try:
            found = _compared(slow, bound, fast, rewrite, evaluate, shapes, {} if answers is None else answers, lenient)
        except ArgumentChanged as changed:
            reason = f"The original changes its argument {changed.name!r} in place, which array code would not do."
            return Decision(None, NoRewrite(reason, "FO303"), rewrite)
    if key is not None and found.function is not None:
        kept_verdicts.save(key, found.verdict, found.recipe)
    return found


def _compared(
    slow: Any,
    bound: Any,
    fast: Any,
    rewrite: Rewrite,
    evaluate: Any,
    shapes: Mapping[str, Sequence[int | None]] | None,
    answers: dict[Any, Any],
    lenient: bool,
) -> Decision:
    ranks = dict(rewrite.ranks)
    parameters = list(ranks)
    predicted = parameters[1] if len(parameters) > 1 else parameters[0]
    if "recipes" not in answers:
        answers["recipes"] = find_recipes(slow, ranks, predicted, rewrite.hints, evaluate, shapes)
    recipes = answers["recipes"]
    is_on_host = "FO201" in rewrite.codes
    is_blurred = BLURRED in rewrite.notes
    verdict = verify(
        slow, bound, recipes, rewrite.source, rewrite.is_tie_sensitive, lenient, answers, is_on_host, is_blurred
    )
    recipe = recipes[0] if recipes else None
    if not verdict.equal:
        refusal = NoRewrite(f"The array form could not be verified: {verdict.reason}", rewrite.codes[0])
        return Decision(None, refusal, rewrite, verdict, recipe)
    return _accepted(fast, rewrite, verdict, recipe)


def _accepted(fast: Any, rewrite: Rewrite, verdict: Any, recipe: Any) -> Decision:
    guards = tuple((compile(text, "<guard>", "eval"), truth) for text, truth in rewrite.guards)
    return Decision(fast, None, rewrite, verdict, recipe, guards)


def _source_of(node: Any) -> str:
    from flatout.vectorize.arrays.lifting import Lifting

    return _text(Lifting(), node)


def compiled(function: Any, rewrite: Rewrite) -> Any:
    """The rewritten function, with the globals and the closure of the original."""
    start = rewrite.source.index("def ")
    text = rewrite.source[start:]
    file = f"<flatout.vectorize({function.__name__})>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Tracebacks show it.
    scratch: dict[str, Any] = {}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in rewrite.names.items()}
    # Wrapped in a function with these variables, so that they are closed over and globals stay the original's own.
    wrapped = f"def make({', '.join(cells)}):\n{textwrap.indent(text, '    ')}\n    return {_name_in(text)}\n"
    exec(compile(_without_defaults(wrapped), file, "exec"), scratch)
    code = scratch["make"](*(None for _ in cells)).__code__
    made = types.FunctionType(code, function.__globals__, closure=tuple(cells[name] for name in code.co_freevars))
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def _without_defaults(text: str) -> ast.Module:
    """What makes the function: its defaults are the original's own, and the names that made them may be gone."""
    tree = ast.parse(text)
    made = tree.body[0].body[0]  # type: ignore[attr-defined]
    nothing = ast.Constant(None)
    made.args.defaults = [ast.copy_location(nothing, default) for default in made.args.defaults]
    made.args.kw_defaults = [old and ast.copy_location(nothing, old) for old in made.args.kw_defaults]
    return ast.fix_missing_locations(tree)


def _name_in(text: str) -> str:
    return text[4 : text.index("(")]
