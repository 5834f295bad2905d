"""Running totals: a sum or product that a loop reads at every step is a prefix sum, `ops.cumsum` or `ops.cumprod`.

A running maximum is that of all steps until then. Of all that a loop can carry from step to step these alone have
a form here. The total must be read after the step's own term has joined it; whatever else is carried on is a
recurrence, and refused.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, negative, number, operand, relabelled
from flatout.vectorize.arrays.lifted_values import Axis, Host, Known, Refused, Stream, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce

from .iterated_axes import operated, variable
from .loop_totals import join, over_axes

_HOW: dict[type, str] = {ast.Add: "sum", ast.Sub: "sum", ast.Mult: "prod"}
_FUNCTIONS = {"sum": "ops.cumsum", "prod": "ops.cumprod"}
_EXTREMES = {"maximum": "max", "max": "max", "minimum": "min", "min": "min"}


@dataclass(frozen=True)
class Running:
    """`name = name + term`, the one statement of a loop that changes `name`."""

    name: str
    how: str
    term: ast.expr
    is_subtracted: bool = False
    # Whether it is the same at every step, so that the total is known by the number of the step.
    is_steady: bool = False


def running_totals(body: list[ast.stmt], known: dict[str, Any]) -> dict[int, Running]:
    """The totals that a loop's body reads after it has changed them, by the place of the statement that does."""
    found: dict[int, Running] = {}
    for at, statement in enumerate(body):
        running = _of(statement)
        if running is None or not _is_start(known.get(running.name)):
            continue
        changes = sum(_mentions(other, running.name, ast.Store) for other in body)
        before = sum(_mentions(other, running.name, ast.Load) for other in body[:at])
        after = sum(_mentions(other, running.name, ast.Load) for other in body[at + 1 :])
        if changes != 1 or not before + after or _mentions(running.term, running.name, ast.Load):
            continue
        if running.how in _FUNCTIONS and _is_steady(running.term, body, known):
            found[at] = replace(running, is_steady=True)
        elif not before:
            found[at] = running
    return found


def _is_steady(term: ast.expr, body: list[ast.stmt], known: dict[str, Any]) -> bool:
    """Whether a term is a constant, or a number that the loop does not change."""
    if isinstance(term, ast.Constant):
        return isinstance(term.value, (int, float)) and not isinstance(term.value, bool)
    if not isinstance(term, ast.Name) or any(_mentions(other, term.id, ast.Store) for other in body):
        return False
    return isinstance(known.get(term.id), Host) or _is_start(known.get(term.id))


def _of(statement: ast.stmt) -> Running | None:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        how = _HOW.get(type(statement.op))
        is_subtracted = isinstance(statement.op, ast.Sub)
        return None if how is None else Running(statement.target.id, how, statement.value, is_subtracted)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        return _extreme(statement, statement.value)
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)):
        return None
    target, value = statement.targets[0], statement.value
    how = _HOW.get(type(value.op))
    if how is None or len(statement.targets) > 1 or not isinstance(target, ast.Name):
        return None
    if isinstance(value.left, ast.Name) and value.left.id == target.id:
        return Running(target.id, how, value.right, isinstance(value.op, ast.Sub))
    if how == "sum" and (rest := _behind(value, target.id)) is not None:
        return Running(target.id, how, rest)
    if isinstance(value.right, ast.Name) and value.right.id == target.id and not isinstance(value.op, ast.Sub):
        return Running(target.id, how, value.left)
    return None


def _extreme(statement: ast.Assign, value: ast.Call) -> Running | None:
    """`name = maximum(name, term)`, in any library's spelling."""
    how = _EXTREMES.get(ast.unparse(value.func).rpartition(".")[2])
    target = statement.targets[0]
    if how is None or len(statement.targets) > 1 or not isinstance(target, ast.Name) or value.keywords:
        return None
    others = [arg for arg in value.args if not (isinstance(arg, ast.Name) and arg.id == target.id)]
    if len(value.args) != 2 or len(others) != 1 or isinstance(others[0], ast.Starred):
        return None
    return Running(target.id, how, others[0])


def _behind(value: ast.expr, name: str) -> ast.expr | None:
    """`a - b` of `name + a - b`; None if it does not begin with the name."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return None
    if isinstance(value.left, ast.Name) and value.left.id == name:
        return value.right if isinstance(value.op, ast.Add) else ast.UnaryOp(ast.USub(), value.right)
    rest = _behind(value.left, name)
    return None if rest is None else ast.BinOp(rest, value.op, value.right)


def _is_start(value: Any) -> bool:
    if isinstance(value, Known):
        return isinstance(value.value, (int, float)) and not isinstance(value.value, bool)
    return isinstance(value, (Host, Tensor))


def _mentions(node: ast.AST, name: str, context: type) -> int:
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id == name)
    return sum(isinstance(part.ctx, context) for part in parts)


def steady(lift: Lifting, running: Running, before: Any, term: Any, flow: Stream) -> tuple[Any, Any, Any]:
    """A total that grows by the same at every step: before the step's own, after it, and behind the loop."""
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_number = isinstance(term, (Known, Host)) and isinstance(before, (Known, Host))
    if axis is None or axis.size is None or axis.size.kind == "pending" or flow.keep is not None or not is_number:
        raise Refused(f"{running.name!r} is carried from one step to the next: a recurrence is not a map.", "FO106")
    count = replace(variable(lift, Axis("i", axis.size)), dims=(axis,), position=None)
    is_counter = running.how == "sum" and not running.is_subtracted and not axis.is_reversed
    if is_counter and isinstance(term, Known) and term.value == 1 and isinstance(before, Known):
        if axis.start is None and type(before.value) is int and type(term.value) is int:
            count = replace(count, position=(axis, 0))
    elif axis.is_reversed:
        raise Refused(f"{running.name!r} counts the steps of a loop that runs backwards.", "FO106")

    def after(steps: Any) -> Any:
        if running.how == "prod":
            return _joined(lift, "*", before, operated(lift, "**", term, steps))
        return _joined(lift, "-" if running.is_subtracted else "+", before, _joined(lift, "*", term, steps))

    following = binary(lift, "+", count, number(lift, 1))
    if count.position is not None:
        assert isinstance(before, Known)
        placed = [_moved(lift, count, before.value + more) for more in (0, 1)]
        return placed[0], placed[1], after(Host(axis.size))
    return after(count), after(following), after(Host(axis.size))


def _joined(lift: Lifting, symbol: str, left: Any, right: Any) -> Any:
    if isinstance(left, Known) and left.value == {"*": 1, "+": 0}.get(symbol):
        return right
    return operated(lift, symbol, left, right)


def _moved(lift: Lifting, count: Tensor, by: int) -> Tensor:
    assert count.position is not None
    if not by:
        return count
    moved = binary(lift, "+", count, number(lift, by))
    return replace(moved, kind="int", is_host=True, position=(count.position[0], by))


def advanced(lift: Lifting, running: Running, before: Any, term: Any, flow: Stream) -> tuple[Any, Any]:
    """The total at every step of a loop, and the one behind it."""
    part = operand(lift, term)
    part = cast(lift, part, "float32") if part.kind == "bool" else part
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_plain = axis is not None and axis in part.dims and flow.keep is None and not axis.is_reversed
    if not is_plain or part.valid is not None or part.is_loose:
        raise Refused(f"{running.name!r} is carried from one step to the next: a recurrence is not a map.", "FO106")
    assert axis is not None
    if running.how not in _FUNCTIONS:
        behind = reduce(lift, running.how, part, (axis,))
        prefix = _largest_until(lift, running.how, part, axis)
        return join(lift, running.how, before, prefix), join(lift, running.how, before, behind)
    part = negative(lift, part) if running.is_subtracted else part
    place = lift.graph.const(part.dims.index(axis) - len(part.dims))
    node = lift.graph.call(_FUNCTIONS[running.how], part.node, axis=place)
    prefix = replace(part, node=node, position=None, domain=None)
    behind = reduce(lift, running.how, part, (axis,))
    return join(lift, running.how, before, prefix), join(lift, running.how, before, behind)


def _largest_until(lift: Lifting, how: str, part: Tensor, axis: Axis) -> Tensor:
    """The largest (smallest) term of all steps until each."""
    other = Axis("earlier", axis.size)
    at = replace(variable(lift, Axis("i", axis.size)), dims=(axis,), position=None)
    until = elementwise(lift, "less_equal", (variable(lift, other), at), "bool", "<=")
    lift.note("A running maximum compares all pairs of steps: memory grows with the square of their number.")
    twin = replace(relabelled(part, {axis: other}), position=None, domain=None)
    return over_axes(lift, how, twin, Stream((other,), twin, until))
