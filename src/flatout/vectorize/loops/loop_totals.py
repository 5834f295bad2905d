"""Loops: what is iterated becomes an axis; what the body carries from step to step must be a sum, maximum or list.

A sum or product that is read at every step, after the step's own term has joined it, is a prefix sum (`ops.cumsum`,
`ops.cumprod`), a running maximum that of all steps until then. All else is a recurrence, and refused.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import (
    all_of,
    binary,
    cast,
    elementwise,
    named,
    number,
    opened,
    operand,
    operated,
    relabelled,
    relabelled_value,
    where,
)
from flatout.vectorize.arrays.indexing import listing_to_tensor, positions, steps_of
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Refused,
    Splice,
    Sum,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import FILL, reduce, sheltered
from flatout.vectorize.reading.function_source import loaded, stored

from .iterated_axes import in_order

# A loop over constants that cannot become an axis is written out, up to this many steps.
MOST_UNROLLED = 16


def carried(lift: Lifting, value: Any, name: str) -> Any:
    """A variable as the body of a loop sees it: what it was, to be joined with terms; a tuple part by part."""
    parts = opened(lift, value)
    if isinstance(parts, Items) and not parts.is_list:
        return Items(tuple(carried(lift, one, f"{name} ({k})") for k, one in enumerate(parts.values)))
    return Sum(name, begin=value)


def finished(lift: Lifting, before: Any, after: Any, name: str, flow: Listing) -> Any:
    """A variable behind a loop, given what it was before the loop and what the body made of it."""
    before = opened(lift, before) if isinstance(after, Items) else before
    if isinstance(before, Items) and isinstance(after, Items) and len(before.values) == len(after.values):
        pairs = enumerate(zip(before.values, after.values, strict=True))
        parts = [finished(lift, old, new, f"{name} ({k})", flow) for k, (old, new) in pairs]
        return next((part for part in parts if isinstance(part, Refused)), Items(tuple(parts)))
    if not isinstance(after, Sum) or after.name != name or after.entry is not None:
        return Refused(f"{name!r} is read behind a loop that gives it a new value at every step.", "FO106")
    if after.how is None:
        return before
    if after.how == "list":
        return _filled(lift, before, after, flow)
    if after.how == "entries":
        return _entries_set(lift, before, after, flow)
    if after.how in ("sums", "lists", "sets"):
        from .keyed_terms import finished as keyed

        return keyed(lift, before, after, flow)
    term: Any = Known(None, lift.graph.const(None))
    for part in after.terms:
        term = join(lift, after.how, term, over_axes(lift, after.how, operand(lift, part), flow))
    return join(lift, after.how, before, term)


def over_axes(lift: Lifting, how: str, term: Tensor, flow: Listing) -> Tensor:
    """One term of a sum (product, maximum) over all steps of a loop."""
    if term.valid is not None:
        raise Refused("A selection of elements is added up over a loop.", "FO108")
    if flow.keep is not None:
        kept = where(lift, flow.keep, named(sheltered(lift, flow.keep, term)), number(lift, FILL[how]))
        term = replace(kept, inner=term.inner, is_host=term.is_host)
    over = tuple(axis for axis in flow.axes if axis in term.dims)
    if how == "sum":
        for axis in flow.axes:
            if axis not in term.dims:
                assert axis.size is not None
                one = Known(lift.numbers.get(term.node), term.node) if term.kind == "number" else term
                term = operand(lift, operated(lift, "*", one, Host(steps_of(lift, axis.size))))
    elif len(over) < len(flow.axes) and how == "prod":
        raise Refused("A product of equal factors over a loop is not known here.")
    return reduce(lift, how, term, over)


def join(lift: Lifting, how: str, left: Any, right: Any) -> Any:
    """`left` and `right` as one sum, product, maximum or minimum."""
    if isinstance(left, Sum):
        if left.how not in (None, how):
            raise recurrence(left)
        return replace(left, how=how, terms=(*left.terms, right))
    if isinstance(left, Known) and (left.value is None or (how == "sum" and left.value == 0)):
        return right  # None: the first step has nothing to join.
    if isinstance(left, Known) and not isinstance(left.value, (int, float)):
        raise Refused("A variable that a loop carries starts as something that is no number.", "FO106")
    if how == "sum" and isinstance(right, Tensor) and right.node.kind == "negative":
        return binary(lift, "-", left, replace(right, node=right.node.parts[0]))
    if how in ("sum", "prod"):
        return operated(lift, {"sum": "+", "prod": "*"}[how], left, right)
    return elementwise(lift, {"max": "maximum", "min": "minimum"}[how], (left, right), operand(lift, right).kind)


def at_each_step(lift: Lifting, term: Any, flow: Listing) -> Listing:
    """What every step of a loop leaves, as a list: one value, or several where a loop inside it did."""
    inside = term.listing if isinstance(term, Splice) else Listing(term, ())
    return Listing(inside.element, (*flow.axes, *inside.axes), all_of(lift, flow.keep, inside.keep))


def _filled(lift: Lifting, before: Any, after: Sum, flow: Listing) -> Any:
    """A list behind a loop that filled it."""
    from .keyed_terms import joined

    if len(after.terms) != 1:
        raise Refused(f"{after.name!r} gets several elements at every step.", "FO106")
    if isinstance(after.terms[0], Sum):
        raise recurrence(after.terms[0])
    filled = at_each_step(lift, after.terms[0], flow)
    filled = replace(filled, element=in_order(lift, filled.element, filled.axes))
    if isinstance(before, Sum):
        if before.how not in (None, "list") or before.terms:
            raise Refused(f"{after.name!r} is filled in more than one place.", "FO106")
        return Sum(before.name, "list", (Splice(filled),))
    before = opened(lift, before)
    if not isinstance(before, (Items, Listing)):
        raise Refused(f"{after.name!r} holds elements before the loop that fills it.", "FO106")
    return joined(lift, [before, filled])


def _entries_set(lift: Lifting, before: Any, after: Sum, flow: Listing) -> Any:
    """An array or list behind a loop that set its entries, those of every step, perhaps under conditions."""
    for term in after.terms:
        if len(flow.axes) != 1 or flow.axes[0] not in term.slot or flow.axes[0].start is not None:
            raise Refused(f"Entries of {after.name!r} are set out of the order of the loop.", "FO106")
        term = replace(term, listing=replace(term.listing, keep=all_of(lift, flow.keep, term.listing.keep)))
        # A loop around this one runs through the rest of the slot.
        is_inner = isinstance(before, Sum)
        before = join(lift, "entries", before, term) if is_inner else _with_entries(lift, before, after.name, term)
    return before


def masked_entries(lift: Lifting, before: Tensor, mask: Any, value: Any) -> Tensor | None:
    """`before[mask] = value` of a number: the array behind it; None: it is another kind of assignment."""
    if not isinstance(mask, Tensor) or mask.kind != "bool":
        return None
    if mask.rank != before.rank or not mask.rank:
        raise WrongRank("Entries are set by a mask of another rank.")
    value = operand(lift, value)
    if value.rank or value.valid is not None or before.valid is not None or mask.valid is not None:
        return None
    made = where(lift, mask, value, before)
    return replace(made, position=None, domain=None, is_host=before.is_host) if made.rank == before.rank else None


def _with_entries(lift: Lifting, before: Any, name: str, term: Splice) -> Any:
    value, keep, slot = operand(lift, term.listing.element), term.listing.keep, term.slot
    if isinstance(before, Items) and not before.values:  # Nothing is there yet.
        before = Listing(None, tuple(axis for axis in slot if axis is not None))
    if isinstance(before, Listing):
        (axis,), (own,) = (slot, before.axes) if len(slot) == len(before.axes) == 1 else ((None,), (None,))
        if axis is None or own is None or own.size is not axis.size:
            raise Refused(f"Not every entry of {name!r} is set.", "FO106")
        if keep is not None:
            old = operand(lift, relabelled_value(before.element, {own: axis}))
            value = where(lift, keep, sheltered(lift, keep, value), old)
        return Listing(value, (axis,))
    whole = sum(axis is None for axis in slot)
    is_array = isinstance(before, Tensor) and before.rank >= len(slot)
    if not is_array or value.valid is not None or value.is_loose or value.rank < whole:
        raise Refused(f"Entries of {name!r} are set to something that does not fit.", "FO108")
    for axis in slot:
        if axis is not None and axis not in value.dims and keep is None:  # The same for every step.
            spread = listing_to_tensor(lift, Listing(value, (axis,)))
            value = replace(spread, inner=spread.inner[1:])
    rows = list(value.inner)
    inner: list[Axis] = [axis if axis is not None else rows.pop(0) for axis in slot]
    inner += rows
    if keep is not None:
        if len(inner) != before.rank:
            raise Refused(f"Entries of {name!r} are set under a condition, to something that is spread.", "FO108")
        old = replace(relabelled(before, dict(zip(before.inner, inner, strict=True))), inner=())
        value = where(lift, keep, sheltered(lift, keep, replace(value, inner=())), old)
    return replace(value, inner=tuple(inner), position=None, domain=None)


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


def recurrence(total: Sum) -> Refused:
    """Why what a loop carries has no array form."""
    return Refused(f"{total.name!r} is carried from one step to the next: a recurrence is not a map.", "FO106")


def steady(lift: Lifting, total: Sum, flow: Listing) -> tuple[Any, Any, Any] | None:
    """A total that grows by the same number at every step: before the step's own, after it, and behind the loop."""
    before, term = total.begin, total.terms[0]
    if total.how not in _FUNCTIONS or len(total.terms) > 1 or not isinstance(term, (Known, Host)):
        return None
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_number = isinstance(before, (Known, Host))
    if axis is None or axis.size is None or axis.size.kind == "pending" or flow.keep is not None or not is_number:
        raise recurrence(total)
    if axis.is_reversed:
        raise Refused(f"{total.name!r} counts the steps of a loop that runs backwards.", "FO106")
    count = replace(positions(lift, axis), position=(axis, 0) if axis.start is None else None)
    join_by, repeat_by = ("*", "**") if total.how == "prod" else ("+", "*")

    def after(steps: Any) -> Any:
        return operated(lift, join_by, before, operated(lift, repeat_by, term, steps))

    return after(count), after(binary(lift, "+", count, number(lift, 1))), after(Host(axis.size))


def advanced(lift: Lifting, total: Sum, flow: Listing) -> tuple[Any, Any]:
    """The total at every step of a loop, and the one behind it."""
    how, term = str(total.how), total.terms[0]
    for more in total.terms[1:]:
        term = join(lift, how, term, more)
    part = operand(lift, term)
    part = cast(lift, part, "float32") if part.kind == "bool" else part
    (axis,) = flow.axes if len(flow.axes) == 1 else (None,)
    is_plain = axis is not None and axis in part.dims and flow.keep is None and not axis.is_reversed
    if axis is None or not is_plain or part.valid is not None or part.is_loose:
        raise recurrence(total)
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
    until = binary(lift, "<=", positions(lift, other), positions(lift, axis))
    lift.note("A running maximum compares all pairs of steps: memory grows with the square of their number.")
    twin = replace(relabelled(part, {axis: other}), position=None, domain=None)
    return over_axes(lift, how, twin, Listing(twin, (other,), until))
