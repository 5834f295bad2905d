"""Whether a loss is rewritten: derive the array code for some ranks, make inputs, compare, decide; and explain it."""

from __future__ import annotations

import ast
import concurrent.futures
import contextlib
import functools
import io
import itertools
import linecache
import timeit
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flatout.base.when_used import ops, tf
from flatout.vectorize.arrays.expression_graph import text_of
from flatout.vectorize.arrays.lifted_values import Refused
from flatout.vectorize.interpreter.scopes import outside_of
from flatout.vectorize.reading.function_source import tree_of
from flatout.vectorize.verify import kept_verdicts
from flatout.vectorize.verify.gradients import ArgumentChanged, backend, on_device, outside_tracing
from flatout.vectorize.verify.trial_inputs import LARGE_NUMBERS, ordinary
from flatout.vectorize.verify.verification import NoRewrite, Rewrite, find_recipes, verify

from .decorator import Decision
from .rewrite import array_parameters, candidate_ranks, map_function, rewrite_function

Shapes = Mapping[str, Sequence[int | None]]
# Versions of the array form: with what is left out replaced before the arithmetic, with the mean of nothing as NaN, and
# compared leniently where a prediction is NaN. Each also with whole numbers as floats, which have no bound.
_VERSIONS = ((), ("is_careful",), ("is_exact",), ("is_careful", "is_exact"), ("lenient",))
# Of what is measured for `explain()`.
_BATCH = 64
_REPEATS = 5


def decide(function: Any, ranks: Mapping[str, int], holder: Any = None, shapes: Shapes | None = None) -> Decision:
    """Rewrite a function for arrays of these ranks and verify it, or say why not."""
    if backend() == "tensorflow" and not tf.executing_eagerly():
        # A thread of its own has no graph and no gradient tape around it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(_decide, function, ranks, holder, shapes).result()
    return _decide(function, ranks, holder, shapes)


def _decide(function: Any, ranks: Mapping[str, int], holder: Any, shapes: Shapes | None) -> Decision:
    """The axis or masked form if it is verified, else the map form if that is, else the reason against the first."""
    found = rewrite_function(function, ranks, holder)
    if isinstance(found, NoRewrite):
        decision, refusal = Decision(None, found), found
    else:
        decision = _of_arrays(function, found, ranks, holder, shapes)
        if decision.function is not None:
            return decision
        refusal = NoRewrite("", decision.reason.code, hints=found.hints)
    mapped = map_function(function, ranks, holder, refusal)
    if mapped is None:
        return decision
    again = verified(function, mapped, holder, shapes)
    if again.function is not None:
        return again
    return replace(again, reason=found) if isinstance(found, NoRewrite) else decision


def _of_arrays(function: Any, found: Rewrite, ranks: Mapping[str, int], holder: Any, shapes: Shapes | None) -> Decision:
    """Verify the array form, in one version after the other, as far as they answer what was said against others."""
    decisions: dict[tuple[str, bool], Decision] = {}
    answers: dict[Any, Any] = {}
    reason = reasons = ""
    for is_rounding, version in itertools.product((False, True), _VERSIONS):
        reason = reason if version else ""
        is_asked = not version or ("the original gives nan" if "is_exact" in version else "nan") in reason.lower()
        if not is_asked or (is_rounding and LARGE_NUMBERS not in reasons):
            continue
        lenient = "lenient" in version
        forms = dict.fromkeys([*(() if lenient else version), *(["is_rounding"] if is_rounding else [])], True)
        made = rewrite_function(function, ranks, holder, **forms) if forms else found
        if not isinstance(made, Rewrite) or (made.source, lenient) in decisions:
            continue
        if lenient and any(word in made.source for word in ("isnan", "isfinite", "nan_to_num")):
            continue
        decision = verified(function, made, holder, shapes, answers, lenient)
        if decision.function is not None:
            return decision
        decisions[made.source, lenient] = decision
        said = "" if decision.verdict is None else decision.verdict.reason
        reason, reasons = reason if version else said, reasons + said
    return next(iter(decisions.values()))


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
    shapes: Shapes | None = None,
    answers: dict[Any, Any] | None = None,
    lenient: bool = False,
) -> Decision:
    """Compare a rewrite with its original on inputs that are made for it, unless an earlier process has done so."""
    fast, answers = compiled(function, rewrite), {} if answers is None else answers
    slow, quick = (one if holder is None else functools.partial(one, holder) for one in (function, fast))
    ranks, names = dict(rewrite.ranks), {**outside_of(function), **rewrite.names}

    def evaluate(node: Any) -> Any:
        try:
            return eval(text_of(node), names)
        except Exception:
            return None

    key = kept_verdicts.key_of(function, holder, rewrite, shapes, lenient)
    known = None if key is None else kept_verdicts.load(key)
    if known is not None:
        verdict, recipe = known
    else:
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # What the original prints is meant for its own runs.
                if "recipes" not in answers:
                    predicted = [*ranks][:2][-1]
                    answers["recipes"] = find_recipes(slow, ranks, predicted, rewrite.hints, evaluate, shapes)
                verdict = verify(slow, quick, answers["recipes"], rewrite, lenient, answers)
                recipe = [*answers["recipes"], None][0]
        except ArgumentChanged as changed:
            reason = f"The original changes its argument {changed.name!r} in place, which array code would not do."
            return Decision(None, NoRewrite(reason, "FO303"), rewrite)
        except Exception as error:
            # A fault of ours must not become one of the user's: the original runs.
            reason = f"The array form could not be verified ({type(error).__name__}: {error})."
            return Decision(None, NoRewrite(reason, rewrite.codes[0]), rewrite)
        if not verdict.equal:
            refusal = NoRewrite(f"The array form could not be verified: {verdict.reason}", rewrite.codes[0])
            return Decision(None, refusal, rewrite, verdict, recipe)
        if key is not None:
            kept_verdicts.save(key, verdict, recipe)
    guards = tuple((compile(text, "<guard>", "eval"), truth) for text, truth in rewrite.guards)
    return Decision(fast, None, rewrite, verdict, recipe, guards)


def compiled(function: Any, rewrite: Rewrite) -> Any:
    """The rewritten function, with the globals and the closure of the original."""
    text = rewrite.source[rewrite.source.index("def ") :]
    file = f"<flatout.vectorize({function.__name__})>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # Tracebacks show it.
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {name: types.CellType(value) for name, value in rewrite.names.items()}
    written: Any = ast.parse(text).body[0]
    # Its defaults are the original's own, and the names that made them may be gone.
    written.args.defaults = [ast.Constant(None) for _ in written.args.defaults]
    written.args.kw_defaults = [default and ast.Constant(None) for default in written.args.kw_defaults]
    # In a function with these variables, so that they are closed over and globals stay the original's own.
    module: Any = ast.parse(f"def make({', '.join(cells)}):\n    return {written.name}")
    module.body[0].body.insert(0, written)
    scratch: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(module), file, "exec"), scratch)
    code = scratch["make"](*cells).__code__
    made = types.FunctionType(code, function.__globals__, closure=tuple(cells[name] for name in code.co_freevars))
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return made


def explain(name: str, decision: Decision, original: Callable[..., Any], measure: bool) -> str:
    """The decision about a loss, as text."""
    if decision.function is None:
        lines = [f"{name}: the original is kept. {decision.reason}"]
    else:
        ranks = ", ".join(f"{parameter} of rank {rank}" for parameter, rank in decision.rewrite.ranks)
        lines = [f"{name}: array code in place of loops ({decision.rewrite.form} form), for {ranks}."]
    if decision.rewrite is not None:
        title = "It became:" if decision.function is not None else "The rewrite that was rejected:"
        lines += ["", title, "", *(f"    {line}" for line in decision.rewrite.source.rstrip().splitlines()), ""]
        lines += [f"Note: {note}" for note in decision.rewrite.notes]
    verdict = decision.verdict
    if verdict is not None and decision.function is not None:
        lines.append(
            f"Verified {'by an earlier process ' if verdict.is_remembered else ''}"
            f"equal in value (2e-5) and gradient (2e-4 of its largest entry) on {backend()}, "
            f"inputs {verdict.digest}: {', '.join(verdict.compared)}."
        )
        lines += [f"Not compared: {text}." for text in verdict.skipped]
        lines += [f"Proviso: {note}" for note in verdict.notes]
    if measure and decision.function is not None and decision.recipe is not None:
        lines.append(_gain(decision, original))
    return "\n".join(lines)


def _gain(decision: Any, original: Callable[..., Any]) -> str:
    """Both forms, one after the other, outside compiled code: value alone, on one batch."""
    holder = getattr(original, "args", ())
    with outside_tracing():
        arrays = on_device(ordinary(decision.recipe, _BATCH))
        slow = _seconds(lambda: original(**arrays), 2)
        fast = _seconds(lambda: decision.function(*holder, **arrays), _REPEATS)
    ratio = slow / fast
    verdict = (
        f"{ratio:.1f} times faster" if ratio > 1.1 else "no gain" if ratio > 0.9 else f"{1 / ratio:.1f} times slower"
    )
    return (
        f"Measured now, one call on a batch of {_BATCH}, not compiled: {slow * 1e3:.2f} ms before, {fast * 1e3:.2f} ms "
        f"after ({verdict}). In a compiled step what is saved is mostly the time to compile."
    )


def _seconds(run: Callable[[], Any], repeats: int) -> float:
    return min(timeit.repeat(lambda: ops.convert_to_numpy(run()), number=1, repeat=1 + repeats)[1:])
