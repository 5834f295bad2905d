"""`for` and `while`: the body is read once, for all steps, or written out where the steps are few."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flatout.vectorize.arrays.algebra import elementwise, number
from flatout.vectorize.arrays.indexing import index
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    EACH,
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Local,
    Mutable,
    Range,
    Refused,
    Stream,
    Sum,
    Tensor,
    Terms,
    Unreadable,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting, Masked
from flatout.vectorize.arrays.ragged import steps_of
from flatout.vectorize.loops import keyed_terms
from flatout.vectorize.loops.iterated_axes import stream, variable
from flatout.vectorize.loops.loop_totals import MOST_UNROLLED, assigned_names, finished
from flatout.vectorize.loops.loop_totals import carried as carried_on
from flatout.vectorize.loops.running_totals import advanced, running_totals, steady

from .best_so_far import best_step
from .comprehensions import few_steps, iterated
from .counting import counted
from .heap import Heap, Snapshot, Space, read
from .scopes import Scope


class Looping:
    """The loops of an `Interpreter`, which supplies what is declared here."""

    lift: Lifting
    loops: int
    heap: Heap

    if TYPE_CHECKING:

        def statement(self, node: ast.stmt, scope: Scope) -> None: ...
        def expression(self, node: ast.expr, scope: Scope) -> Any: ...
        def assign(self, target: ast.expr, value: Any, scope: Scope) -> None: ...

    def _for(self, node: ast.For, scope: Scope) -> None:
        if node.orelse:
            raise Refused("A loop has an else branch: early exit.")
        over = iterated(self, node.iter, scope)
        self.loop(over, node.target, node.body, scope)

    def _while(self, node: ast.While, scope: Scope) -> None:
        """`while i < n: ...; i += 1` is `for i in range(i, n)`."""
        name, steps, body = counted(self, node, scope)
        self.loop(steps, ast.Name(name, ast.Store()), body, scope)
        scope.variables[name] = _behind(self.lift, steps, name)

    def loop(self, over: Any, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        body = _without_continue(body)
        before = self.heap.snapshot()
        try:
            flow = stream(self.lift, over)
            if isinstance(flow, Stream):
                self._lifted(flow, over, target, body, scope)
                return
        except WrongRank:
            raise
        except Refused as refused:
            steps = few_steps(self, over, MOST_UNROLLED)
            if steps is None:
                raise refused
            self.heap.restore(before)
            flow = steps
        if len(flow.values) > MOST_UNROLLED:
            raise Refused(f"A loop over {len(flow.values)} values of different kinds.", "FO104")
        for item in flow.values:
            self.assign(target, item, scope)
            for statement in body:
                self.statement(statement, scope)

    def _lifted(self, flow: Stream, over: Any, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        before = self.heap.snapshot()
        own = assigned_names(body) | {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        carried: set[tuple[Space, Any]] = {(scope, name) for name in own}
        if is_pending(flow):
            pending = flow
            flow = self.bounded(pending, over, lambda: self._settled(pending, target, body, scope, before, carried))
            self.heap.restore(before)
        self.lift.changes.add("FO101")
        totals = self._settled(flow, target, body, scope, before, carried)
        targets = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        for space, cell in sorted(carried, key=lambda one: self.heap.label(*one)):
            held, label = space.variables, self.heap.label(space, cell)
            if space is scope and cell in totals:
                held[cell] = totals[cell]
            elif cell in before[space] and not (space is scope and cell in targets):
                if held[cell] is not before[space][cell]:
                    _check_shared(before[space][cell], held[cell], before[space])
                    held[cell] = self._behind(before[space][cell], held[cell], label, flow)
            elif cell in held or (space is scope and cell in targets):
                held[cell] = self._new_behind(held.get(cell), space, label, flow)

    def _behind(self, before: Any, after: Any, label: str, flow: Stream) -> Any:
        if isinstance(after, Sum) and after.how in ("argmin", "argmax"):
            return best_step(self, before, after, flow)
        if not isinstance(before, Mutable):
            return finished(self.lift, before, after, label, flow)
        made = finished(self.lift, read(self, before), after, label, flow)  # `rows = rows + [x]`
        return self.heap.make("list", made) if isinstance(made, (Items, Listing)) else made

    def _new_behind(self, value: Any, space: Space, label: str, flow: Stream) -> Any:
        """A cell that was not there before a loop, behind it."""
        if isinstance(value, Sum) and value.how in ("sums", "lists", "sets"):
            return keyed_terms.finished(self.lift, None, value, flow)
        if isinstance(space, Mutable) and isinstance(value, Mutable):
            return Unreadable(f"{label!r} is made anew at every step of a loop.")
        return _outlived(self.lift, value, label, flow)

    def _settled(
        self,
        flow: Stream,
        target: ast.expr,
        body: list[ast.stmt],
        scope: Scope,
        before: Snapshot,
        carried: set[tuple[Space, Any]],
    ) -> dict[str, Any]:
        """The body, once for all steps, with all that it changes carried from step to step; see `_pass`.

        Which cells those are comes to light as it is read: it is read again until nothing else is changed.
        """
        rebound: set[tuple[Space, Any]] = set()
        while True:
            self.heap.restore(before)
            refused: Refused | None = None
            totals: dict[str, Any] = {}
            try:
                totals = self._pass(flow, target, body, scope, carried, rebound)
            except Refused as error:
                refused = error
            changed = self.heap.changed(before)
            found = {one: value for one, value in changed.items() if one not in carried}
            again = {(space, cell) for space, cell in changed if isinstance(before[space].get(cell), Mutable)} - rebound
            rebound |= again
            if again and not found:
                continue
            if not found and refused is not None:
                raise refused
            if not found:
                return totals
            for (space, cell), value in found.items():
                if cell == EACH and isinstance(value, Mutable) and EACH not in before[space]:
                    # What stands for all entries of a dict; as long as none is written the dict is empty.
                    before[space][EACH] = value
                    before.update(_emptied(value))
                else:
                    carried.add((space, cell))

    def bounded(self, flow: Stream, over: Any, trial: Any) -> Stream:
        """The steps of a range with a bound from the data: a trial shows which array its variable indexes."""
        (axis,) = flow.axes
        trial()
        if is_pending(flow) or not isinstance(over, Range):
            raise Refused("The number of steps depends on the data, and no array bounds it.", "FO104")
        size = axis.size
        if axis.start is not None:
            size = self.lift.graph.binary("-", size, axis.start)  # type: ignore[arg-type]
        return _bounded(self.lift, axis.start, size, over)

    def _pass(
        self,
        flow: Stream,
        target: ast.expr,
        body: list[ast.stmt],
        scope: Scope,
        carried: set[tuple[Space, Any]],
        rebound: set[tuple[Space, Any]],
    ) -> dict[str, Any]:
        """The body, once, for all steps; returns what running totals are behind the loop.

        A variable that holds an object is carried on as such, unless it is given another one.
        """
        running = running_totals(body, scope.variables)
        begins = {one.name: scope.variables[one.name] for one in running.values()}
        totals: dict[str, Any] = {}
        for space, cell in carried:
            value = space.variables.get(cell)
            is_kept = isinstance(value, Mutable) and (space, cell) not in rebound
            if cell in space.variables and not isinstance(value, (Local, Unreadable)) and not is_kept:
                label = self.heap.label(space, cell)
                is_variable = isinstance(space, Scope)
                space.variables[cell] = carried_on(self.lift, value, label) if is_variable else Sum(label, begin=value)
            elif cell not in space.variables and isinstance(space, Mutable):
                reason = f"{self.heap.label(space, cell)!r} is carried from one step to the next."
                space.variables[cell] = Sum(self.heap.label(space, cell)) if cell == EACH else Unreadable(reason)
        self.assign(target, flow.element, scope)
        later: dict[str, Any] = {}
        for total in [total for total in running.values() if total.is_steady]:
            term = self.expression(total.term, scope)
            now, later[total.name], totals[total.name] = steady(self.lift, total, begins[total.name], term, flow)
            scope.variables[total.name] = now
        self.loops += 1
        try:
            with Masked(self.lift, flow.keep):
                for at, statement in enumerate(body):
                    one = running.get(at)
                    if one is None:
                        self.statement(statement, scope)
                        continue
                    if one.is_steady:
                        scope.variables[one.name] = later[one.name]
                        continue
                    term = self.expression(one.term, scope)
                    each, totals[one.name] = advanced(self.lift, one, begins[one.name], term, flow)
                    self.assign(ast.Name(one.name, ast.Store()), each, scope)
        finally:
            self.loops -= 1
        return totals


def _emptied(made: Mutable) -> Snapshot:
    """What an object that stands for many holds before any of them is filled."""
    found: Snapshot = {made: {}}
    for cell, value in made.variables.items():
        if cell == CONTENT:
            found[made][cell] = Items((), True) if isinstance(value, Terms) and value.base is None else value
            if isinstance(value, Terms) and value.base is not None:
                found[made][cell] = value.base
        elif isinstance(value, Mutable):
            found[made][cell] = value
            found |= _emptied(value)
        elif isinstance(value, Terms):
            found[made] |= {cell: value.base} if value.base is not None else {}
        else:
            found[made][cell] = value
    return found


def _check_shared(before: Any, after: Any, held: dict[Any, Any]) -> None:
    """Refuse entries of an array that the loss was given, or that another variable holds, too."""
    if not isinstance(before, (Tensor, Known)) or not isinstance(after, Sum) or after.how != "sums":
        return
    if before.node.kind in ("name", "attribute", "index"):
        raise Refused(f"Entries of {after.name!r}, which the function was given, are changed.", "FO303")
    others = [one for one in held.values() if isinstance(one, (Tensor, Known))]
    shares = sum(one is before or (one.node is not before.node and before.node in one.node.inputs()) for one in others)
    if shares > 1:
        raise Refused(f"Entries of {after.name!r} are changed, which another variable holds, too.", "FO106")


def _behind(lift: Lifting, steps: Any, name: str) -> Any:
    """The counter of a `while` loop behind it: where it stopped."""
    first, last = steps.start, steps.stop
    if steps.step is None and isinstance(last, Host) and isinstance(first, Known) and first.value == 0:
        return Host(steps_of(lift, last.node))
    return Unreadable(f"The counter {name!r} is read behind its loop.")


def is_pending(flow: Stream) -> bool:
    return any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes)


def _bounded(lift: Lifting, start: Any, size: Any, over: Range) -> Stream:
    """The steps of a range with a bound from the data, as all steps that an array allows and a mask."""
    axis = Axis("i", size, start)
    at = variable(lift, axis)
    keep = elementwise(lift, "less", (at, over.stop), "bool", "<")
    for bound in (over.start, over.stop):
        if isinstance(bound, Tensor) and bound.domain:
            lift.hints.append(("count", bound.domain, size))
    if isinstance(over.start, Tensor):
        later = elementwise(lift, "greater_equal", (at, over.start), "bool", ">=")
        keep = elementwise(lift, "logical_and", (keep, later), "bool")
    return Stream((axis,), at, keep)


def _outlived(lift: Lifting, value: Any, name: str, flow: Stream) -> Any:
    """A variable of one step, behind the loop: that of the last step."""
    if isinstance(value, Local) or (isinstance(value, Tensor) and not set(value.dims) & set(flow.axes)):
        return value
    if isinstance(value, (Host, Known)):
        return value
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_plain = axis is not None and axis.size is not None and flow.keep is None and not axis.is_reversed
    if is_plain and isinstance(value, Tensor) and value.valid is None and axis in value.dims and not lift.masks:
        return _last(lift, value, axis)  # type: ignore[arg-type]
    return Unreadable(f"{name!r} is read behind a loop: the value of the last step.")


def _last(lift: Lifting, value: Tensor, axis: Axis) -> Any:
    graph = lift.graph
    assert axis.size is not None
    if value.position is not None and axis.start is None:
        return Host(graph.binary("+", axis.size, graph.const(value.position[1] - 1)))
    inner = (axis, *value.inner)
    return index(lift, replace(value, inner=inner, position=None, domain=None), [number(lift, -1)])


def _without_continue(body: list[ast.stmt], rest: list[ast.stmt] | None = None) -> list[ast.stmt]:
    """The body of a loop, and what follows it, with what a `continue` skips on the other side of its branch."""
    for at, statement in enumerate(body):
        if isinstance(statement, ast.Continue):
            return body[:at]
        if isinstance(statement, ast.If) and _skips(statement):
            later = [*body[at + 1 :], *(rest or [])]
            then, otherwise = (_without_continue(side, later) for side in (statement.body, statement.orelse))
            made = ast.If(statement.test, then or [ast.Pass()], otherwise)
            return [*body[:at], ast.copy_location(made, statement)]
        if not isinstance(statement, ast.If) and _skips(statement):
            raise Refused("A step of a loop is skipped from inside a block.")
    return [*body, *(rest or [])]


def _skips(statement: ast.AST) -> bool:
    """Whether a statement may end a step; `continue` in a loop inside it is that loop's."""
    if isinstance(statement, ast.Continue):
        return True
    inside = (child for child in ast.iter_child_nodes(statement) if not isinstance(child, (ast.For, ast.While)))
    return not isinstance(statement, (ast.For, ast.While)) and any(_skips(child) for child in inside)
