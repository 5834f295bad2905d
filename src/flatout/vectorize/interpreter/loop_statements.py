"""`for` and `while`: the body is read once, for all steps, or written out where the steps are few."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import number, operated
from flatout.vectorize.arrays.indexing import index, steps_of
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    EACH,
    Host,
    Items,
    Known,
    Listing,
    Local,
    Mutable,
    Question,
    Range,
    Refused,
    Sum,
    Tensor,
    Terms,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.loops import keyed_terms
from flatout.vectorize.loops.iterated_axes import few_steps, range_of, stream
from flatout.vectorize.loops.loop_totals import (
    MOST_UNROLLED,
    advanced,
    carried,
    changed_once,
    finished,
    is_total,
    steady,
)
from flatout.vectorize.reading.function_source import stored

from .best_so_far import best_step
from .evaluation import condition
from .heap import HELD, Interpreting, Snapshot, Space, read
from .library_loops import iterated
from .scopes import Scope


def for_statement(run: Interpreting, node: ast.For, scope: Scope) -> None:
    if node.orelse:
        raise Refused("A loop has an else branch: early exit.")
    loop(run, iterated(run, node.iter, scope), node.target, node.body, scope)


def while_statement(run: Interpreting, node: ast.While, scope: Scope) -> None:
    """`while i < n: ...; i += 1` is `for i in range(i, n)`; that the body changes `i` as well makes no difference."""
    before, names = run.heap.snapshot(), dict(run.lift.graph.names)
    try:
        name, begin, stop, step = _counted(run, node, scope)
    finally:
        run.heap.restore(before)
        run.lift.graph.names = names
    body = node.body
    if stored(body[0]) == {name} and name not in stored(*body[1:]):  # The others see the next value.
        begin, stop = (operated(run.lift, "+", bound, number(run.lift, step)) for bound in (begin, stop))
        body = body[1:]
    steps = Range(begin, stop, None if step == 1 else number(run.lift, step))
    loop(run, steps, ast.Name(name, ast.Store()), body, scope)
    if isinstance(begin, Known) and begin.value == 0 and step == 1 and isinstance(stop, Host):
        scope.variables[name] = Host(steps_of(run.lift, stop.node))
    else:
        scope.variables[name] = Refused(f"The counter {name!r} is read behind its loop.", "FO106")


def _counted(run: Interpreting, node: ast.While, scope: Scope) -> tuple[str, Any, Any, int]:
    """The variable that a `while` compares with a bound, where it begins and stops, and its step, all seen by value.

    The condition is asked of what the loop carries, and the statements that change the counter are run on all of its
    values: they must move it by a constant.
    """
    lift, variables = run.lift, scope.variables
    refused = Refused("A while loop that does not count: how many steps it takes depends on the data.", "FO101")
    for name in stored(*node.body) & variables.keys():
        variables[name] = carried(lift, variables[name], name)
    try:
        asked = condition(run, node.test, scope, may_ask=True)
    except WrongRank:
        raise
    except Refused as error:
        raise refused from error
    if node.orelse or not isinstance(asked, Question) or asked.keep is not None or asked.is_open:
        raise refused
    name, begin, stop = asked.carried.name, _number(asked.carried.begin), asked.value
    values = range_of(lift, Range(begin, stop)).element
    variables[name] = values
    for statement in node.body:
        if name in stored(statement):
            run.statement(statement, scope)
    after = variables[name]
    if not isinstance(after, Tensor) or after.position is None or after.position[0] is not values.position[0]:
        raise refused
    step = after.position[1]
    if asked.symbol == (">=" if step > 0 else "<="):
        stop = operated(lift, "+", stop, number(lift, 1 if step > 0 else -1))
    elif asked.symbol != (">" if step > 0 else "<") and not (asked.symbol == "!=" and abs(step) == 1):
        raise refused
    return name, begin, stop, step


def _number(value: Any) -> Any:
    """A counter's beginning: a number, also as a tensor of one."""
    if isinstance(value, Tensor) and value.node.kind == "call" and len(value.node.parts[1]) >= 1:
        inside = value.node.parts[1][0]
        if inside.kind == "const" and inside.parts[0].lstrip("-").isdigit():
            return Known(int(inside.parts[0]), inside)
    return value


def loop(run: Interpreting, over: Any, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
    """Run a body for everything in `over`: once, for all steps, or step by step where these are few constants."""
    body = _without_continue(body)
    before = run.heap.snapshot()
    try:
        flow = stream(run.lift, over)
        if isinstance(flow, Listing):
            _Loop(run, target, body, scope).lift(flow, over)
            return
    except WrongRank:
        raise
    except Refused as refused:
        steps = few_steps(run.lift, over, MOST_UNROLLED)
        if steps is None:
            raise refused
        run.heap.restore(before)
        flow = steps
    if len(flow.values) > MOST_UNROLLED:
        raise Refused(f"A loop over {len(flow.values)} values of different kinds.", "FO104")
    for item in flow.values:
        run.assign(target, item, scope)
        for statement in body:
            run.statement(statement, scope)


class _Loop:
    """A loop whose body is read once, for all steps."""

    def __init__(self, run: Interpreting, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        self._run, self._target, self._body, self._scope = run, target, body, scope
        self._before: Snapshot = run.heap.snapshot()
        # The cells that the body changes, and those of them that held an object and get another one.
        self._carried: set[tuple[Space, Any]] = {(scope, name) for name in stored(target, *body)}
        self._rebound: set[tuple[Space, Any]] = set()
        self._running = changed_once(body)

    def lift(self, flow: Listing, over: Any) -> None:
        run, before = self._run, self._before
        if is_pending(flow):
            self._settle(flow)  # It shows which array the variable indexes.
            flow = _bounded(run.lift, flow, over)
        run.lift.changes.add("FO101")
        totals = self._settle(flow)
        targets = {(self._scope, name) for name in stored(self._target)}
        for space, cell in sorted(self._carried, key=lambda one: run.heap.label(*one)):
            held, label = space.variables, run.heap.label(space, cell)
            if space is self._scope and cell in totals:
                held[cell] = totals[cell]
            elif cell in before[space] and (space, cell) not in targets:
                if held[cell] is not before[space][cell]:
                    _check_shared(before[space][cell], held[cell], before[space])
                    held[cell] = self._behind(before[space][cell], held[cell], label, flow)
            elif cell in held or (space, cell) in targets:
                held[cell] = self._new_behind(held.get(cell), space, label, flow)

    def _behind(self, before: Any, after: Any, label: str, flow: Listing) -> Any:
        run = self._run
        if isinstance(after, Sum) and after.how in ("argmin", "argmax"):
            return best_step(run, before, after, flow)
        made = finished(run.lift, read(run, before), after, label, flow)
        is_list = isinstance(before, Mutable) and isinstance(made, (Items, Listing))  # `rows = rows + [x]`
        return run.heap.make("list", made) if is_list else made

    def _new_behind(self, value: Any, space: Space, label: str, flow: Listing) -> Any:
        """A cell that was not there before a loop, behind it."""
        if isinstance(value, Sum) and value.how in ("sums", "lists", "sets"):
            return keyed_terms.finished(self._run.lift, None, value, flow)
        if isinstance(space, Mutable) and isinstance(value, Mutable):
            return Refused(f"{label!r} is made anew at every step of a loop.", "FO106")
        return _outlived(self._run.lift, value, label, flow)

    def _settle(self, flow: Listing) -> dict[str, Any]:
        """Read the body with all that it changes carried from step to step; returns running totals behind the loop.

        Which cells those are comes to light as it is read: it is read again until nothing else is changed.
        """
        heap, before = self._run.heap, self._before
        while True:
            heap.restore(before)
            refused: Refused | None = None
            totals: dict[str, Any] = {}
            try:
                totals = self._pass(flow)
            except Refused as error:
                refused = error
            changed = heap.changed(before)
            found = {one: value for one, value in changed.items() if one not in self._carried}
            objects = {(space, cell) for space, cell in changed if isinstance(before[space].get(cell), Mutable)}
            is_settled = not found and objects <= self._rebound
            self._rebound |= objects
            if is_settled and refused is not None:
                raise refused
            if is_settled:
                return totals
            for (space, cell), value in found.items():
                if cell == EACH and isinstance(value, Mutable) and EACH not in before[space]:
                    # What stands for all entries of a dict; as long as none is written the dict is empty.
                    before[space][EACH] = value
                    before.update(_emptied(value))
                else:
                    self._carried.add((space, cell))

    def _pass(self, flow: Listing) -> dict[str, Any]:
        """The body, once, for all steps; returns what running totals are behind the loop."""
        run, scope, totals = self._run, self._scope, {}
        for space, cell in self._carried:
            self._carry(space, cell)
        run.assign(self._target, flow.element, scope)
        later: dict[int, Any] = {}
        for at, (name, _) in self._running.items():
            total: Any = self._tried(self._body[at], name) if isinstance(scope.variables.get(name), Sum) else None
            numbers = steady(run.lift, total, flow) if is_total(total, name) else None
            if numbers is not None:
                scope.variables[name], later[at], totals[name] = numbers

        def body() -> None:
            for at, statement in enumerate(self._body):
                name, is_read_before = self._running.get(at, ("", True))
                if at in later:
                    scope.variables[name] = later[at]
                    continue
                run.statement(statement, scope)
                after = scope.variables.get(name)
                if not is_read_before and isinstance(after, Sum) and is_total(after, name):
                    each, totals[name] = advanced(run.lift, after, flow)
                    run.assign(ast.Name(name, ast.Store()), each, scope)

        run.each_step(flow, body)
        return totals

    def _carry(self, space: Space, cell: Any) -> None:
        """Let a cell be carried from step to step; one that holds an object is not, unless it is given another one."""
        value, label = space.variables.get(cell), self._run.heap.label(space, cell)
        is_kept = isinstance(value, Mutable) and (space, cell) not in self._rebound
        if cell in space.variables and not isinstance(value, (Local, Refused)) and not is_kept:
            is_variable = isinstance(space, Scope)
            space.variables[cell] = carried(self._run.lift, value, label) if is_variable else Sum(label, begin=value)
        elif cell not in space.variables and isinstance(space, Mutable):
            unreadable = Refused(f"{label!r} is carried from one step to the next.", "FO106")
            space.variables[cell] = Sum(label) if cell == EACH else unreadable

    def _tried(self, statement: ast.stmt, name: str) -> Any:
        """What a statement makes of a variable before the others have run; None: that cannot be told."""
        before = self._run.heap.snapshot()
        try:
            self._run.statement(statement, self._scope)
            return self._scope.variables.get(name)
        except Refused:
            return None
        finally:
            self._run.heap.restore(before)


def _emptied(made: Mutable) -> Snapshot:
    """What an object that stands for many holds before any of them is filled."""
    found: Snapshot = {made: {}}
    for cell, value in made.variables.items():
        if isinstance(value, Mutable):
            found |= _emptied(value)
        elif isinstance(value, Terms):
            value = Items((), True) if cell == CONTENT and value.base is None else value.base
        if value is not None:
            found[made][cell] = value
    return found


def _check_shared(before: Any, after: Any, held: dict[Any, Any]) -> None:
    """Refuse entries of an array that the loss was given, or that another variable holds, too."""
    if not isinstance(before, (Tensor, Known)) or not isinstance(after, Sum) or after.how != "sums":
        return
    if before.node.kind in HELD:
        raise Refused(f"Entries of {after.name!r}, which the function was given, are changed.", "FO303")
    others = [one for one in held.values() if isinstance(one, (Tensor, Known))]
    shares = sum(one is before or (one.node is not before.node and before.node in one.node.inputs()) for one in others)
    if shares > 1:
        raise Refused(f"Entries of {after.name!r} are changed, which another variable holds, too.", "FO106")


def is_pending(flow: Listing) -> bool:
    return any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes)


def _bounded(lift: Lifting, flow: Listing, over: Any) -> Listing:
    """The steps of a range with a bound from the data, as all steps that an array allows and a mask."""
    (pending,) = flow.axes
    if is_pending(flow) or not isinstance(over, Range):
        raise Refused("The number of steps depends on the data, and no array bounds it.", "FO104")
    size = pending.size
    if pending.start is not None:
        size = lift.graph.binary("-", size, pending.start)  # type: ignore[arg-type]
    for bound in (over.start, over.stop):
        if isinstance(bound, Tensor) and bound.domain:
            lift.hints.append(("count", bound.domain, size))
    return range_of(lift, over, size)


def _outlived(lift: Lifting, value: Any, name: str, flow: Listing) -> Any:
    """A variable of one step, behind the loop: that of the last step."""
    is_of_no_step = isinstance(value, Tensor) and not set(value.dims) & set(flow.axes)
    if is_of_no_step or isinstance(value, (Host, Known, Local)):
        return value
    axis: Any = flow.axes[0] if len(flow.axes) == 1 else None
    is_plain = axis is not None and axis.size is not None and flow.keep is None and not axis.is_reversed
    if is_plain and isinstance(value, Tensor) and value.valid is None and axis in value.dims and not lift.masks:
        if value.position is not None and axis.start is None:
            return Host(lift.graph.binary("+", axis.size, lift.graph.const(value.position[1] - 1)))
        rows = replace(value, inner=(axis, *value.inner), position=None, domain=None)
        return index(lift, rows, [number(lift, -1)])
    return Refused(f"{name!r} is read behind a loop: the value of the last step.", "FO106")


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
