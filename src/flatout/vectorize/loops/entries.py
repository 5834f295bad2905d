"""Arrays that a loop fills entry by entry: `out[i] = x`, `out[i, j] = x`, `out[:, t] = x`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import operand, relabelled, where
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import Axis, Listing, Refused, Stream, Sum, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.safe_where import sheltered


def entries_set(lift: Lifting, before: Any, after: Sum, flow: Stream) -> Any:
    """An array behind a loop that set its entries, one at every step, perhaps under a condition.

    Args:
        lift: What is known of the function.
        before: What the variable was before the loop.
        after: What the body made of it: the entry as a `Splice`, and its slot.
        flow: The loop.
    """
    (term,) = after.terms
    value, keep = term.listing.element, term.listing.keep
    mine = [axis for axis in after.slot if axis is not None and axis in flow.axes]
    if len(mine) != 1 or len(flow.axes) != 1 or mine[0].start is not None:
        raise Refused(f"Entries of {after.name!r} are set out of the order of the loop.", "FO106")
    if isinstance(before, Sum):  # The loop around this one runs through the rest of the slot.
        if before.how is not None or before.name != after.name:
            raise Refused(f"{after.name!r} is filled in more than one place.", "FO106")
        return after
    if isinstance(before, Listing) and [axis.size for axis in before.axes] != [axis.size for axis in flow.axes]:
        raise Refused(f"Not every entry of {after.name!r} is set.", "FO106")
    if not isinstance(before, Tensor):
        if isinstance(before, Listing) and keep is not None and after.slot == flow.axes:
            value = sheltered(lift, keep, operand(lift, value))
            return Listing(where(lift, keep, value, operand(lift, before.element)), flow.axes)
        if keep is not None or after.slot != flow.axes:
            raise Refused(f"Entries of {after.name!r} are set in a list of lists, or under a condition.", "FO106")
        return Listing(value, flow.axes, None)
    return _array(lift, before, after, operand(lift, value), keep)


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


def _array(lift: Lifting, before: Tensor, after: Sum, value: Tensor, keep: Tensor | None) -> Tensor:
    whole = sum(axis is None for axis in after.slot)
    if value.valid is not None or value.is_loose or before.rank < len(after.slot) or value.rank < whole:
        raise Refused(f"Entries of {after.name!r} are set to something that does not fit.", "FO108")
    for axis in after.slot:
        if axis is not None and axis not in value.dims:  # The same for every step.
            spread = listing_to_tensor(lift, Listing(value, (axis,)))
            value = replace(spread, inner=spread.inner[1:])
    rows = list(value.inner)
    inner: list[Axis] = [axis if axis is not None else rows.pop(0) for axis in after.slot]
    inner += rows
    if keep is not None:
        if len(inner) != before.rank:
            raise Refused(f"Entries of {after.name!r} are set under a condition, to something that is spread.", "FO108")
        old = replace(relabelled(before, dict(zip(before.inner, inner, strict=True))), inner=())
        value = where(lift, keep, sheltered(lift, keep, replace(value, inner=())), old)
    return replace(value, inner=tuple(inner), position=None, domain=None)
