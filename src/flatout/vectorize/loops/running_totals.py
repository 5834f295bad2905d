"""Running totals: a sum or product that a loop reads at every step is a prefix sum, `ops.cumsum` or `ops.cumprod`.

A running maximum is that of all steps until then. Of all that a loop can carry from step to step these alone have
a form here. The total must be read after the step's own term has joined it; whatever else is carried on is a
recurrence, and refused.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, number, operand, relabelled
from flatout.vectorize.arrays.lifted_values import Axis, Host, Known, Refused, Stream, Sum, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.reading.function_source import loaded, stored

from .iterated_axes import operated, variable
from .loop_totals import join, over_axes

_FUNCTIONS = {"sum": "ops.cumsum", "prod": "ops.cumprod"}


def changed_once(body: list[ast.stmt]) -> dict[int, tuple[str, bool]]:
    """Variables that one statement of a body changes and others read: its place, which, and whether some come first."""
    found = {}
    for at, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                earlier, later = body[:at], body[at + 1 :]
                if name not in stored(*earlier, *later) and name in loaded(*earlier, *later):
                    found[at] = name, name in loaded(*earlier)
    return found


def is_total(after: Any, name: str) -> bool:
    """Whether a statement let a number that a loop carries grow by terms."""
    if not isinstance(after, Sum) or after.name != name or after.how not in ("sum", "prod", "max", "min"):
        return False
    begin = after.begin.value if isinstance(after.begin, Known) else 0
    return isinstance(after.begin, (Known, Host, Tensor)) and type(begin) in (int, float, type(None))


def _recurrence(total: Sum) -> Refused:
    return Refused(f"{total.name!r} is carried from one step to the next: a recurrence is not a map.", "FO106")


def steady(lift: Lifting, total: Sum, flow: Stream) -> tuple[Any, Any, Any] | None:
    """A total that grows by the same number at every step: before the step's own, after it, and behind the loop."""
    before, term = total.begin, total.terms[0]
    if total.how not in _FUNCTIONS or len(total.terms) > 1 or not isinstance(term, (Known, Host)):
        return None
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_number = isinstance(before, (Known, Host))
    if axis is None or axis.size is None or axis.size.kind == "pending" or flow.keep is not None or not is_number:
        raise _recurrence(total)
    if axis.is_reversed:
        raise Refused(f"{total.name!r} counts the steps of a loop that runs backwards.", "FO106")
    is_place = axis.start is None
    count = replace(variable(lift, Axis("i", axis.size)), dims=(axis,), position=(axis, 0) if is_place else None)

    def after(steps: Any) -> Any:
        if total.how == "prod":
            return _joined(lift, "*", before, operated(lift, "**", term, steps))
        return _joined(lift, "+", before, _joined(lift, "*", term, steps))

    return after(count), after(binary(lift, "+", count, number(lift, 1))), after(Host(axis.size))


def _joined(lift: Lifting, symbol: str, left: Any, right: Any) -> Any:
    if isinstance(left, Known) and left.value == {"*": 1, "+": 0}.get(symbol):
        return right
    return operated(lift, symbol, left, right)


def advanced(lift: Lifting, total: Sum, flow: Stream) -> tuple[Any, Any]:
    """The total at every step of a loop, and the one behind it."""
    how, term = str(total.how), total.terms[0]
    for more in total.terms[1:]:
        term = join(lift, how, term, more)
    part = operand(lift, term)
    part = cast(lift, part, "float32") if part.kind == "bool" else part
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_plain = axis is not None and axis in part.dims and flow.keep is None and not axis.is_reversed
    if axis is None or not is_plain or part.valid is not None or part.is_loose:
        raise _recurrence(total)
    if how in _FUNCTIONS:
        place = lift.graph.const(part.dims.index(axis) - len(part.dims))
        node = lift.graph.call(_FUNCTIONS[how], part.node, axis=place)
        prefix = replace(part, node=node, position=None, domain=None)
    else:
        prefix = _largest_until(lift, how, part, axis)
    behind = reduce(lift, how, part, (axis,))
    return join(lift, how, total.begin, prefix), join(lift, how, total.begin, behind)


def _largest_until(lift: Lifting, how: str, part: Tensor, axis: Axis) -> Tensor:
    """The largest (smallest) term of all steps until each."""
    other = Axis("earlier", axis.size)
    at = replace(variable(lift, Axis("i", axis.size)), dims=(axis,), position=None)
    until = elementwise(lift, "less_equal", (variable(lift, other), at), "bool", "<=")
    lift.note("A running maximum compares all pairs of steps: memory grows with the square of their number.")
    twin = replace(relabelled(part, {axis: other}), position=None, domain=None)
    return over_axes(lift, how, twin, Stream((other,), twin, until))
