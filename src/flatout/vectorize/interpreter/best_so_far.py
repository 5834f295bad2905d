"""Conditions on what a loop carries: is this step better than all before, is it the first, is its key there yet."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays import exact_numbers
from flatout.vectorize.arrays.algebra import all_of, beneath, binary, on_host, operand, where
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Listing, Question, Refused, Sum, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce, sheltered
from flatout.vectorize.calls import python_calls
from flatout.vectorize.loops.keyed_terms import are_same
from flatout.vectorize.loops.loop_totals import join, recurrence

from .heap import Interpreting, is_nothing

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


def answered(run: Interpreting, question: Question, then: Any, otherwise: Any, held: Any, is_only: bool) -> Any:
    """What a cell holds behind a branch on what a loop carries, where it held `held`, and holds this and that.

    `is_only` says whether the branch changes no other cell.
    """
    if isinstance(then, Items) and isinstance(otherwise, Items) and len(then.values) == len(otherwise.values):
        pairs = zip(then.values, otherwise.values, strict=True)
        return Items(tuple(answered(run, question, a, b, None, False) for a, b in pairs))
    if question.symbol in _TURNED:
        return _kept(run, question, then, otherwise, is_only)
    there, begun = (otherwise, then) if question.symbol in ("is", "not in") else (then, otherwise)
    return _begun(question, there, begun, held)


def _refused(question: Question) -> Refused:
    return Refused(f"A branch on {question.carried.name!r}, which a loop carries from step to step.", "FO106")


def _begun(question: Question, there: Any, begun: Any, held: Any) -> Sum:
    """`if key not in d: d[key] = 0.0`; `if key in d: d[key] += x` with `else: d[key] = x`; `x if s is None else s + x`.

    Whether something is there by now depends on the steps before; a sum or list that begins with nothing, or with the
    term that it would grow by, does not ask.
    """
    if not isinstance(there, Sum):
        raise _refused(question)
    old = len(held.terms) if isinstance(held, Sum) else 0
    grown, first = there.terms[old:], begun.terms[old:] if isinstance(begun, Sum) else (begun,)
    is_empty = not grown and isinstance(begun, Sum) and all(map(is_nothing, first))
    if not is_empty and not are_same(Items(grown), Items(first)):
        raise _refused(question)
    return begun if isinstance(begun, Sum) else there


def compared(symbol: str, left: Any, right: Any) -> Question | None:
    """`d < best` of a variable that a loop carries and the step has not changed; None: it is another comparison."""
    for value, carried, sign in ((left, right, symbol), (right, left, _TURNED.get(symbol))):
        is_bare = isinstance(carried, Sum) and carried.how is None and carried.entry is None
        if (
            is_bare
            and sign in _TURNED
            and (isinstance(value, (Known, Host)) or (isinstance(value, Tensor) and not value.rank))
        ):
            return Question(carried, sign, value)
    return None


def combined(lift: Lifting, is_and: bool, value: Any, other: Any) -> Question:
    """`j != 1 and d < best`, `best is None or d < best`."""
    question, also = (value, other) if isinstance(value, Question) else (other, value)
    if is_and and isinstance(also, Tensor):
        return replace(question, keep=all_of(lift, question.keep, also))
    if not is_and and question.symbol == "is" and isinstance(also, Question) and also.carried is question.carried:
        return replace(also, is_open=True)
    raise _refused(question)


def _kept(run: Interpreting, question: Question, then: Any, otherwise: Any, is_only: bool) -> Sum:
    """`if d < best: best, at = d, j`: the least of all, and what goes with the first that has it."""
    lift, how = run.lift, "min" if question.symbol[0] == "<" else "max"
    is_best = otherwise is question.carried
    is_kept = isinstance(otherwise, Sum) and not otherwise.how and question.symbol != "!="
    # The same number, perhaps one of them as the host reads it.
    bare = [beneath(one, "ops.stop_gradient", "ops.cast") for one in (then, question.value) if isinstance(one, Tensor)]
    if not is_kept or (is_best and not (len(bare) == 2 and are_same(*bare))):
        raise _refused(question)
    # NaN is neither less nor more, and is passed over.
    if is_best and is_only:
        there = binary(lift, "==", question.value, question.value)
        counts = question.keep if question.is_open else all_of(lift, question.keep, there)
        return join(lift, how, otherwise, then if counts is None else run.when(counts, how, then))  # type: ignore[no-any-return]
    if len(question.symbol) > 1 or question.is_open:
        raise _refused(question)  # Of equal ones the last would count, or NaN if it is the first.
    there = binary(lift, question.symbol, question.value, _worst(run, how))  # Infinity is never the best either.
    term = Items((question.value, then, question.carried.begin))
    best = when_best(run, all_of(lift, question.keep, there), how, term)
    return replace(otherwise, how=f"arg{how}", terms=(best,))


def when_best(run: Interpreting, test: Any, how: str, term: Items) -> Items:
    """A step that is best where a condition holds, and nowhere else."""
    key, value, begin = term.values
    value = sheltered(run.lift, test, value) if isinstance(value, Tensor) else value
    return Items((where(run.lift, test, key, _worst(run, how)), value, begin))


def _worst(run: Any, how: str) -> Known:
    return Known(math.inf, run.lift.graph.make("const", f"{'-' * how.endswith('max')}float('inf')"))


def best_step(run: Interpreting, before: Any, after: Sum, flow: Listing) -> Any:
    """What goes with the best step of a loop, if that is better than what was there before."""
    lift, how = run.lift, str(after.how).removeprefix("arg")
    term = after.terms[0] if flow.keep is None else when_best(run, flow.keep, how, after.terms[0])
    key, value, begin = term.values
    (axis,) = flow.axes if len(flow.axes) == len(after.terms) == 1 else (None,)
    key = operand(lift, key)
    if axis is None or axis.is_reversed or axis not in key.dims or key.valid is not None:
        raise recurrence(after)
    keys = replace(on_host(lift, key), inner=(axis,), position=None)
    picked = python_calls.picked(lift, value, axis, python_calls.first_best(lift, how, keys))
    best = reduce(lift, how, keys, (axis,))
    if isinstance(before, Sum):
        return replace(before, how=after.how, terms=(*before.terms, Items((best, picked, before.begin))))
    if isinstance(begin, Known) and begin.value is None:
        return picked
    symbol = "<" if how == "min" else ">"
    is_better = binary(lift, *exact_numbers.compared(lift, symbol, best, begin))
    return run.choose(is_better, picked, before)
