"""Branches: both sides run, a mask says which one counts; what a variable is behind them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import both, elementwise, named, number, operand, where
from flatout.vectorize.arrays.lifted_values import (
    Host,
    Items,
    Known,
    Listing,
    Method,
    Question,
    Refused,
    Splice,
    Sum,
    TableRow,
    Tensor,
    Unreadable,
)
from flatout.vectorize.arrays.lifting import Masked
from flatout.vectorize.arrays.safe_where import sheltered
from flatout.vectorize.calls.calls import is_log

from .best_so_far import answered, when_best
from .evaluation import condition, truth
from .heap import Interpreting, is_object, read
from .scopes import Scope

# How a variable grows by elements, which a condition leaves out.
_LISTS = ("list", "entries", "sums", "lists", "sets")


class Branching(Interpreting):
    """The branches of an `Interpreter`."""

    def _only_logs(self, node: ast.If, scope: Scope) -> bool:
        """Whether a branch only logs, if the logger wants it: its condition is of no consequence."""
        if node.orelse or any(isinstance(part, ast.NamedExpr) for part in ast.walk(node.test)):
            return False
        if not all(isinstance(one, ast.Expr) and is_log(self.expression, one.value, scope) for one in node.body):
            return False
        called = [part.func for part in ast.walk(node.test) if isinstance(part, ast.Call)]
        return bool(called) and all(isinstance(one, ast.Attribute) and one.attr == "isEnabledFor" for one in called)

    def _if(self, node: ast.If, scope: Scope) -> None:
        if self._only_logs(node, scope):
            self._block(node.body, scope)
            return
        test = condition(self, node.test, scope, may_ask=True)
        if isinstance(test, bool):
            self._block(node.body if test else node.orelse, scope)
            return
        if isinstance(test, Tensor):
            self.lift.changes.add("FO202")
        self.sides(test, [partial(self._block, body, scope) for body in (node.body, node.orelse)])

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.statement(statement, scope)

    def sides(self, test: Any, sides: Sequence[Callable[[], Any]], but: Scope | None = None) -> list[Any]:
        """Run both sides of a branch on the same state, join what they made of all cells, and give what each gave.

        Nobody reads the variables of the scope `but` any more.
        """
        before = self.heap.snapshot()
        results, states = [], []
        masks = (test.keep, None) if isinstance(test, Question) else (test, self.inverse(test))
        for side, mask in zip(sides, masks, strict=True):
            self.heap.restore(before)
            with Masked(self.lift, mask):
                results.append(side())
            states.append(self.heap.snapshot())
        changed = [
            (space, cell, *(state[space].get(cell) for state in states))
            for space in before
            for cell in {**states[0][space], **states[1][space]}
            if space is not but and states[0][space].get(cell) is not states[1][space].get(cell)
        ]
        for space, cell, then, otherwise in changed:
            space.variables.pop(cell, None)  # Where it is refused, a loop around it sees that it changes.
            if then is None or otherwise is None:
                label = self.heap.label(space, cell)
                joint: Any = Unreadable(f"{label!r} has a value on one side of a branch only.", "FO202")
            elif isinstance(test, Question):
                joint = answered(self, test, then, otherwise, before[space].get(cell), len(changed) == 1)
            else:
                joint = self.choose(test, then, otherwise)
            space.variables[cell] = joint
        return results

    def inverse(self, condition: Any) -> Any:
        if isinstance(condition, Tensor):
            return elementwise(self.lift, "logical_not", (condition,), "bool")
        return Host(self.lift.graph.make("invert", condition.node))

    def choose(self, condition: Any, left: Any, right: Any) -> Any:
        """What a variable is behind a branch."""
        lift = self.lift
        if isinstance(left, Unreadable) or isinstance(right, Unreadable):
            return left if isinstance(left, Unreadable) else right
        if isinstance(left, Sum) or isinstance(right, Sum):
            return self._choose_terms(condition, left, right)
        if isinstance(left, Splice):
            return replace(
                left, listing=Listing(self.choose(condition, left.listing.element, right.listing.element), ())
            )
        if left is right:
            return left
        if is_object(left) or is_object(right):
            left, right = read(self, left), read(self, right)
            if is_object(left) or is_object(right):
                raise Refused("An object is chosen by a tensor's value.", "FO202")
        if isinstance(left, Items) and isinstance(right, Items) and len(left.values) == len(right.values):
            pairs = zip(left.values, right.values, strict=True)
            return Items(tuple(self.choose(condition, a, b) for a, b in pairs), left.is_list)
        if isinstance(condition, Host):
            if all(isinstance(side, (Host, Known)) for side in (left, right)):
                return Host(lift.graph.make("ifexp", condition.node, left.node, right.node))
            left, right = operand(lift, left), operand(lift, right)
            node = lift.graph.make("ifexp", condition.node, left.node, right.node)
            if left.dims and right.dims and left.dims != right.dims:
                raise Refused("A branch on the shape gives arrays of different dimensions.", "FO202")
            return replace(left if left.dims else right, node=node, position=None)
        if isinstance(left, Known) and isinstance(right, Known) and left.value is right.value:
            return left
        for side in (left, right):
            if isinstance(side, (Listing, TableRow, Method)):
                raise Refused("A list is chosen by a tensor's value.", "FO202")
        a = sheltered(lift, condition, operand(lift, left))
        b = sheltered(lift, self.inverse(condition), operand(lift, right))
        return where(lift, condition, a, b)

    def _choose_terms(self, condition: Any, left: Any, right: Any) -> Any:
        is_grown = isinstance(left, Sum) and isinstance(right, Sum) and left.name == right.name
        if not is_grown or left.entry or right.entry:
            raise Refused("A variable that a loop carries is replaced on one side of a branch.", "FO106")
        common = 0
        while common < min(len(left.terms), len(right.terms)) and left.terms[common] is right.terms[common]:
            common += 1
        how = left.how or right.how
        if how is None or (left.how and right.how and left.how != right.how):
            raise Refused(f"{left.name!r} is carried from step to step in more than one way.", "FO106")
        terms = list(left.terms[:common])
        added = [left.terms[common:], right.terms[common:]]
        forms = [[_form(term) for term in side] for side in added]
        if how in _LISTS and forms[0] == forms[1]:  # Each side appends as many: an element is one or the other.
            terms += [self.choose(condition, *pair) for pair in zip(*added, strict=True)]
            return replace(left, how=how, terms=tuple(terms))
        for side, test in ((left, condition), (right, self.inverse(condition))):
            terms += [self.when(test, how, term) for term in side.terms[common:]]
        return replace(left, how=how, terms=tuple(terms))

    def when(self, test: Any, how: str, term: Any) -> Any:
        """A term that counts where a condition holds."""
        if how in ("argmin", "argmax") and isinstance(test, Tensor):
            return when_best(self, test, how, term)
        if how in _LISTS:
            if not isinstance(test, Tensor):
                raise Refused("Whether a list gets an element depends on the shape.", "FO202")
            if isinstance(term, Splice):
                inside = term.listing
                return replace(term, listing=replace(inside, keep=both(self.lift, inside.keep, test)))
            return Splice(Listing(term, (), test))
        neutral = number(self.lift, {"sum": 0.0, "prod": 1.0, "max": -1e30, "min": 1e30}[how])
        if isinstance(test, Host):
            return self.choose(test, term, neutral)
        part = sheltered(self.lift, test, operand(self.lift, term))
        return replace(where(self.lift, named(test), named(part), neutral), inner=part.inner, is_host=part.is_host)

    def truth(self, value: Any) -> Any:
        """A condition: True or False if known now, else a Host or a Tensor of booleans."""
        return truth(self, value)


def _form(term: Any) -> Any:
    """What two terms share of which either counts; those with a condition share nothing."""
    if not isinstance(term, Splice):
        return None
    return term.slot if term.slot and term.listing.keep is None else term
