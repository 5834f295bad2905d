"""What statements change: assignments to names, entries and attributes; branches, of which both sides run.

A mask says which side of a branch counts; what a cell holds behind it is what either side has made of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import all_of, named, not_, number, opened, operand, where
from flatout.vectorize.arrays.indexing import index
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Method,
    Mutable,
    Question,
    Refused,
    Splice,
    Sum,
    TableRow,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.reductions import FILL, sheltered
from flatout.vectorize.calls import value_parts
from flatout.vectorize.calls.calls import is_log
from flatout.vectorize.loops.loop_totals import join, masked_entries

from . import evaluation as expressions
from . import heap_access
from .best_so_far import answered, when_best
from .heap import HELD, Interpreting, is_object, read
from .scopes import Scope

# How a variable grows by elements, which a condition leaves out.
_LISTS = ("list", "entries", "sums", "lists", "sets")


class Changing(Interpreting):
    """The assignments and the branches of an `Interpreter`."""

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope.nonlocals.get(target.id, scope).variables[target.id] = value
                if isinstance(value, Mutable):
                    self.heap.named(value, target.id)
                if isinstance(value, (Tensor, Host)) and value.node.kind not in ("name", "const", "size"):
                    self.lift.graph.names.setdefault(value.node, target.id)
            case ast.Tuple() | ast.List():
                for one, part in _paired(self, target.elts, value):
                    self.assign(one, part, scope)
            case ast.Subscript() | ast.Attribute() if self._is_part(target, value, scope):
                pass
            case ast.Subscript(value=ast.Name()) | ast.Subscript(value=ast.Subscript(value=ast.Name())):
                self._assign_entry(target, read(self, value), scope)
            case _:
                names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
                is_own = isinstance(target, ast.Subscript) and any(name in scope.variables for name in names)
                code = "FO106" if is_own else "FO303"
                raise Refused(f"An attribute or entry is changed: {ast.unparse(target)}", code)

    def _is_part(self, target: ast.Subscript | ast.Attribute, value: Any, scope: Scope) -> bool:
        """Set an entry or attribute of a mutable object; False: it is none."""
        try:
            of = self.reference(target.value, scope)
        except Refused:
            return False
        if not is_object(of):
            return False
        if isinstance(target, ast.Attribute):
            heap_access.set_attribute(self, of, target.attr, value)
        else:
            heap_access.set_entry(self, of, self._key(target.slice, scope), value)
        return True

    def _assign_entry(self, target: ast.Subscript, value: Any, scope: Scope) -> None:
        root = target.value if isinstance(target.value, ast.Name) else target.value.value  # type: ignore[attr-defined]
        name = root.id
        held: Any = scope.variables.get(name)
        if isinstance(value, Sum) and value.entry is not None:
            keys = expressions.array_place(self, target, scope)
            heap_access.change(self, scope.nonlocals.get(name, scope), name, keys[1] if keys else (), value)
            return
        slot = self._slot(target.slice, scope) if root is target.value else ()
        if isinstance(held, Sum) and slot:
            scope.variables[name] = join(self.lift, "entries", held, Splice(Listing(value, ()), slot))
            return
        is_own = root is target.value and isinstance(held, Tensor) and held.node.kind not in HELD
        # Another variable that holds the same array would change with it.
        if is_own and sum(getattr(one, "node", None) is held.node for one in scope.variables.values()) == 1:
            mask = None if isinstance(target.slice, (ast.Slice, ast.Tuple)) else self.expression(target.slice, scope)
            chosen = None if mask is None else masked_entries(self.lift, held, mask, value)
            if chosen is not None:
                scope.variables[name] = chosen
                return
        raise Refused(f"An entry is changed: {ast.unparse(target)}", "FO106" if held is not None else "FO303")

    def _slot(self, at: ast.expr, scope: Scope) -> tuple[Axis | None, ...]:
        """Which loops' variables say where an entry goes; None for `:`. Empty: it goes where the data say."""
        slot: list[Axis | None] = []
        for part in at.elts if isinstance(at, ast.Tuple) else [at]:
            if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                slot.append(None)
                continue
            place = None if isinstance(part, ast.Slice) else self.expression(part, scope)
            if not isinstance(place, Tensor) or not place.position or place.position[1]:
                return ()
            slot.append(place.position[0])
        axes = [axis for axis in slot if axis is not None]
        return tuple(slot) if axes and len(set(axes)) == len(axes) else ()

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """`target += value`; what is indexed or asked for an attribute is evaluated once."""
        target = node.target
        put: Callable[[Any], None] = lambda value: self.assign(target, value, scope)  # noqa: E731
        of = None if isinstance(target, ast.Name) else self.reference(target.value, scope)
        if is_object(of) and isinstance(target, ast.Attribute):
            old = heap_access.attribute(self, of, target.attr)
            put = partial(heap_access.set_attribute, self, of, target.attr)
        elif is_object(of) and isinstance(target, ast.Subscript):
            key = self._key(target.slice, scope)
            old, put = heap_access.entry(self, of, key), partial(heap_access.set_entry, self, of, key)
        else:
            old = self.reference(ast.parse(ast.unparse(target), mode="eval").body, scope)
        # Those of a list, dict, array of NumPy or torch change the value.
        is_in_place = isinstance(old, Known) and any(hasattr(type(old.value), name) for name in ("__iadd__", "__ior__"))
        if is_in_place and old.node.kind in HELD:
            raise Refused(f"Something outside the function is changed: {ast.unparse(node)}", "FO303")
        value = self.expression(node.value, scope)
        if is_object(old) and isinstance(node.op, ast.Add):
            heap_access.extend(self, old, value)
        else:
            put(expressions.operate(self, node.op, read(self, old), value))

    def _key(self, at: ast.expr, scope: Scope) -> Any:
        """A key, or a slice."""
        return value_parts.item(self, at, scope) if isinstance(at, ast.Slice) else self.expression(at, scope)

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
        test = expressions.condition(self, node.test, scope, may_ask=True)
        if isinstance(test, bool):
            self._block(node.body if test else node.orelse, scope)
            return
        self.sides(test, [partial(self._block, body, scope) for body in (node.body, node.orelse)])

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self.statement(statement, scope)

    def sides(self, test: Any, sides: Sequence[Callable[[], Any]], but: Scope | None = None) -> list[Any]:
        """Run both sides of a branch on the same state, join what they made of all cells, and give what each gave.

        Nobody reads the variables of the scope `but` any more.
        """
        if isinstance(test, Tensor):
            self.lift.changes.add("FO202")
        before = self.heap.snapshot()
        results, states = [], []
        masks = (test.keep, None) if isinstance(test, Question) else (test, self.inverse(test))
        for side, mask in zip(sides, masks, strict=True):
            self.heap.restore(before)
            with self.lift.masked(mask):
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
                joint: Any = Refused(f"{label!r} has a value on one side of a branch only.", "FO202")
            elif isinstance(test, Question):
                joint = answered(self, test, then, otherwise, before[space].get(cell), len(changed) == 1)
            else:
                joint = self.choose(test, then, otherwise)
            space.variables[cell] = joint
        return results

    def inverse(self, condition: Any) -> Any:
        if isinstance(condition, Tensor):
            return not_(self.lift, condition)
        return Host(self.lift.graph.make("invert", condition.node))

    def choose(self, condition: Any, left: Any, right: Any) -> Any:
        """What a variable is behind a branch."""
        lift = self.lift
        if isinstance(left, Refused) or isinstance(right, Refused):
            return left if isinstance(left, Refused) else right
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
                return replace(term, listing=replace(inside, keep=all_of(self.lift, inside.keep, test)))
            return Splice(Listing(term, (), test))
        neutral = number(self.lift, FILL[how])
        if isinstance(test, Host):
            return self.choose(test, term, neutral)
        part = sheltered(self.lift, test, operand(self.lift, term))
        return replace(where(self.lift, named(test), named(part), neutral), inner=part.inner, is_host=part.is_host)


def _paired(run: Interpreting, targets: list[ast.expr], value: Any) -> list[tuple[ast.expr, Any]]:
    """What each of several variables is assigned; one with a star gets the rest."""
    stars = [at for at, target in enumerate(targets) if isinstance(target, ast.Starred)]
    value = opened(run.lift, value)
    if not stars:
        return list(zip(targets, _unpacked(run, value, len(targets)), strict=True))
    if not isinstance(value, Items) or len(value.values) < len(targets) - 1:
        raise Refused("Something of unknown length is assigned to several variables.")
    (at,) = stars
    behind = at + 1 + len(value.values) - len(targets)
    parts = [*value.values[:at], Items(value.values[at:behind], True), *value.values[behind:]]
    named = [target.value if isinstance(target, ast.Starred) else target for target in targets]
    return list(zip(named, parts, strict=True))


def _unpacked(run: Interpreting, value: Any, count: int) -> list[Any]:
    """The parts of a value that is assigned to several variables."""
    if isinstance(value, Items) and len(value.values) == count:
        return list(value.values)
    if isinstance(value, Tensor) and value.rank:
        return [index(run.lift, value, [number(run.lift, k)]) for k in range(count)]
    if isinstance(value, Items):
        raise WrongRank(f"{len(value.values)} values are assigned to {count} variables.")
    raise Refused(f"Something of unknown length is assigned to {count} variables.")


def _form(term: Any) -> Any:
    """What two terms share of which either counts; those with a condition share nothing."""
    if not isinstance(term, Splice):
        return None
    return term.slot if term.slot and term.listing.keep is None else term
