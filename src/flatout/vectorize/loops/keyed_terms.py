"""What loops write under keys of the data: `sums[g] += x`, `parts[g].append(x)`, `table[a, b] += 1`, `center[c] = x`.

Every step leaves a term with its keys. Behind the loop the entry of a key is the sum of the terms that have it, or the
list of them, or the last one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import (
    all_of,
    binary,
    cast,
    elementwise,
    front,
    not_,
    number,
    opened,
    operand,
    operated,
    relabelled,
    where,
)
from flatout.vectorize.arrays.indexing import index, listing_to_tensor, positions
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
    Terms,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import stack

from .iterated_axes import stream, variable
from .loop_totals import at_each_step, join, over_axes

# Up to this many places a list stays one of as many values.
_FEW = 16


def are_same(one: Any, other: Any) -> bool:
    """Whether two values are the same expression."""
    if isinstance(one, Items) and isinstance(other, Items) and len(one.values) == len(other.values):
        return all(are_same(a, b) for a, b in zip(one.values, other.values, strict=True))
    if isinstance(one, Splice) and isinstance(other, Splice):
        return one.listing.keep is other.listing.keep and are_same(one.listing.element, other.listing.element)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        dims = [[None if axis in value.inner else axis for axis in value.dims] for value in (one, other)]
        return one.node is other.node and dims[0] == dims[1]
    if isinstance(one, (Known, Host)) and isinstance(other, (Known, Host)):
        return one.node is other.node
    return one is other


def finished(lift: Lifting, before: Any, after: Sum, flow: Listing) -> Any:
    """A cell behind a loop that left terms in it."""
    parts = [at_each_step(lift, term, flow) for term in after.terms]
    if any(axis.is_reversed for axis in flow.axes) and after.how != "sums":
        raise Refused(f"The entries of {after.name!r} are set from the last to the first.", "FO106")
    if isinstance(before, Sum):
        if before.how not in (None, after.how):
            raise Refused(f"{after.name!r} is filled in more than one way.", "FO106")
        return replace(before, how=after.how, terms=(*before.terms, *map(Splice, parts)))
    if isinstance(before, Terms):
        if before.kind != after.how:
            raise Refused(f"{after.name!r} is filled in more than one way.", "FO106")
        return replace(before, parts=(*before.parts, *parts))
    if isinstance(before, Known) and hasattr(before.value, "shape"):
        before = operand(lift, before)
    base = None if isinstance(before, Items) and not before.values else before
    made = Terms(str(after.how), tuple(parts), base)
    return value_at(lift, made, ()) if isinstance(before, Tensor) else made


def value_at(lift: Lifting, terms: Terms, keys: tuple[Any, ...]) -> Any:
    """The entry of these keys; where the terms have more, a list or array over all of their places."""
    count = len(terms.parts[0].element.values) - 1
    missing = count - len(keys)
    if missing and terms.base is not None and terms.kind == "sums":
        return _over_places(lift, terms, keys, missing)
    if missing:
        raise Refused("A dict is read with fewer keys than it was filled with.", "FO106")
    if terms.kind == "sets":
        return _last_of(lift, terms, keys)
    matching = [found for part in terms.parts if (found := _matching(lift, part, keys)) is not None]
    if terms.kind == "lists":
        return joined(lift, matching)
    total: Any = number(lift, 0.0) if terms.base is None else terms.base
    for flow in matching:
        value = operand(lift, flow.element)
        value = cast(lift, value, "float32") if value.kind == "bool" else value
        total = join(lift, "sum", total, over_axes(lift, "sum", value, flow))
    return total


def _matching(lift: Lifting, part: Listing, keys: tuple[Any, ...]) -> Listing | None:
    """The values of one part of the terms, and where they have these keys; None: nowhere."""
    flow = stream(lift, part)
    assert isinstance(flow, Listing)
    *own, value = flow.element.values
    same = equal(lift, Items(tuple(own)), Items(keys))
    if same is False:
        return None
    return Listing(value, flow.axes, flow.keep if same is True else all_of(lift, flow.keep, same))


def equal(lift: Lifting, one: Any, other: Any) -> Any:
    """Whether two keys are the same: known now, or a tensor of booleans."""
    if isinstance(one, Items) and isinstance(other, Items) and len(one.values) == len(other.values):
        found: Any = True
        for a, b in zip(one.values, other.values, strict=True):
            same = equal(lift, a, b)
            if same is False:
                return False
            found = same if found is True else found if same is True else all_of(lift, found, same)
        return found
    if isinstance(one, Known) and isinstance(other, Known):
        return bool(one.value == other.value)
    for value in (one, other):
        if isinstance(value, Known) and not isinstance(value.value, (int, float)):
            raise Refused("Keys of the data are mixed with keys that are no numbers.", "FO107")
        if not isinstance(value, (Known, Host, Tensor)) or (isinstance(value, Tensor) and value.rank):
            raise Refused("A key that is no number.", "FO107")
    return binary(lift, "==", one, other)


def _last_of(lift: Lifting, terms: Terms, keys: tuple[Any, ...]) -> Any:
    """The value that was set last under a key."""
    if len(terms.parts) != 1 or len(terms.parts[0].axes) > 1 or len(keys) != 1:
        raise Refused("Entries are set in more than one place.", "FO106")
    (part,) = terms.parts
    if not part.axes:
        return part.element.values[1]
    flow = _matching(lift, part, keys)
    if flow is None:
        raise Refused("A key of a dict that it has not.", "FO401")
    if isinstance(flow.element, (Items, Listing)):
        raise Refused("A dict of lists is read by a key of the data.", "FO106")
    stacked = listing_to_tensor(lift, replace(flow, keep=None))
    (fresh,) = flow.axes
    if flow.keep is None or fresh not in flow.keep.dims:
        return index(lift, stacked, [number(lift, -1)])
    last = where(lift, flow.keep, positions(lift, fresh), number(lift, -1))
    at = reduce(lift, "max", replace(last, inner=()), (fresh,))
    return index(lift, stacked, [replace(at, kind="int", is_host=True, position=None)])


def keys_in(lift: Lifting, terms: Terms) -> Listing:
    """The keys of all terms, each as often as it was written, or, where the last one counts, once."""
    if any(len(part.element.values) != 2 for part in terms.parts) or len(terms.parts) != 1:
        raise Refused("The keys of a dict that is filled in several places, or by several keys.", "FO107")
    (part,) = terms.parts
    key = part.element.values[0]
    if not isinstance(key, Tensor):
        raise Refused("The keys of a dict that holds constants and values of the data.", "FO107")
    if key.domain:
        lift.hints.append(("whole", key.domain))
    # A loop inside that the key does not depend on writes it again and again.
    needed = set(key.dims) | (set(part.keep.dims) if part.keep is not None else set())
    return Listing(key, tuple(axis for axis in part.axes if axis in needed), part.keep)


def last_ones(lift: Lifting, terms: Terms) -> Listing:
    """The keys and values of what was set: of several under a key the last."""
    (part,) = terms.parts if len(terms.parts) == 1 else (None,)
    if part is None or len(part.axes) != 1:
        raise Refused("Entries are set in more than one place.", "FO106")
    (axis,) = part.axes
    key = part.element.values[0]
    if isinstance(key, Tensor) and key.position is not None and key.position[0] is axis:
        return part
    twin = _matching(lift, part, (key,))
    if twin is None or twin.keep is None:
        raise Refused("An entry is set under the same key at every step.", "FO106")
    (other,) = twin.axes
    is_later = binary(lift, "<", positions(lift, axis), positions(lift, other))
    again = reduce(lift, "any", elementwise(lift, "logical_and", (twin.keep, is_later), "bool"), (other,))
    return replace(part, keep=all_of(lift, part.keep, not_(lift, again)))


def _over_places(lift: Lifting, terms: Terms, keys: tuple[Any, ...], count: int) -> Any:
    """A list or array of numbers that loops have added to, by place."""
    base = opened(lift, terms.base)
    if isinstance(base, Items) and count == 1 and len(base.values) <= _FEW:
        inside = _from_the_end(lift, terms, len(keys), number(lift, len(base.values)))
        places = (value_at(lift, inside, (*keys, number(lift, at))) for at in range(len(base.values)))
        return Items(tuple(join(lift, "sum", old, new) for old, new in zip(base.values, places, strict=True)), True)
    if isinstance(base, Listing) and len(base.axes) == 1 and base.keep is None:
        base = listing_to_tensor(lift, base)
    if not isinstance(base, Tensor):
        raise Refused("Entries of a list are changed in a way that has no array form.", "FO106")
    if base.rank < count or keys:
        raise Refused("Entries of an array are changed by more keys than it has dimensions.", "FO106")
    fresh = tuple(Axis("slot", axis.size) for axis in base.inner[:count])
    for place, axis in enumerate(fresh):
        assert axis.size is not None
        terms = _from_the_end(lift, terms, place, Host(axis.size))
    each = value_at(lift, terms, tuple(variable(lift, axis) for axis in fresh))
    labels = dict(zip(base.inner, fresh, strict=False))
    old = replace(relabelled(base, labels), inner=base.inner[count:], position=None)
    made = operand(lift, join(lift, "sum", old, each))
    if not set(fresh) <= set(made.dims):
        raise Refused("Entries of an array are changed in a way that has no array form.", "FO106")
    return replace(made, inner=(*fresh, *made.inner), position=None, is_host=base.is_host)


def _from_the_end(lift: Lifting, terms: Terms, place: int, size: Any) -> Terms:
    """The same terms with places that count from the beginning, where Python counts negative ones from the end."""

    def moved(part: Listing) -> Listing:
        values = list(part.element.values)
        if not (isinstance(values[place], Tensor) and values[place].position):
            values[place] = operated(lift, "%", values[place], size)
        return replace(part, element=Items(tuple(values)))

    return Terms(terms.kind, tuple(moved(part) for part in terms.parts))


def joined(lift: Lifting, parts: list[Any]) -> Any:
    """Lists one behind the other, as one."""
    parts = [part for part in parts if not (isinstance(part, Items) and not part.values)]
    if len(parts) < 2:
        return parts[0] if parts else Items((), True)
    arrays, masks = [], []
    total: Any = None
    for part in parts:
        if isinstance(part, Listing) and (len(part.axes) != 1 or isinstance(part.element, (Items, Listing))):
            raise Refused("Lists that several loops filled are read as one.", "FO106")
        is_filled = isinstance(part, Listing)
        arrays.append(listing_to_tensor(lift, replace(part, keep=None)) if is_filled else stack(lift, part))
        masks.append(part.keep if is_filled else None)
        size: Any = arrays[-1].inner[0].size
        total = size if total is None else lift.graph.binary("+", total, size)
    if len({array.rank for array in arrays}) > 1:
        raise WrongRank("A list holds arrays of different ranks.", "FO106")
    axis = Axis("item", total)
    if all(mask is None for mask in masks):
        return Listing(_behind(lift, arrays, axis), (axis,))
    there = []
    for mask, array in zip(masks, arrays, strict=True):
        own: Any = array.inner[0]
        if mask is None or own not in mask.dims:
            size = lift.graph.sequence((own.size,))
            ones = Tensor(lift.graph.call("ops.ones", size, dtype=lift.graph.const("bool")), (own,), (), "bool")
            mask = ones if mask is None else elementwise(lift, "logical_and", (mask, ones), "bool")
        there.append(replace(mask, inner=(own,)))
    return Listing(_behind(lift, arrays, axis), (axis,), replace(_behind(lift, there, axis), kind="bool"))


def _behind(lift: Lifting, arrays: list[Tensor], axis: Axis) -> Tensor:
    """Arrays one behind the other along their first inner dimension, which becomes the axis."""
    arrays = [front(lift, array) for array in arrays]
    first, kinds = arrays[0], {array.kind for array in arrays}
    if any(array.axes != first.axes for array in arrays):
        raise Refused("A list holds arrays that depend on different loops.", "FO106")
    if len(kinds) > 1:
        arrays = [array if array.kind == "float" else cast(lift, array, "float32") for array in arrays]
    nodes = lift.graph.sequence(tuple(array.node for array in arrays), True)
    made = lift.graph.call("ops.concatenate", nodes, axis=lift.graph.const(len(first.axes)))
    dims = (*first.axes, axis, *first.inner[1:])
    return Tensor(made, dims, first.inner[1:], arrays[0].kind if len(kinds) == 1 else "float", is_host=first.is_host)
