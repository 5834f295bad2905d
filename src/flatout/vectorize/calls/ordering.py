"""`sorted`, and `max` and `min` with a key, on lifted values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import cast, changed, elementwise, number, on_host, relabelled, where
from flatout.vectorize.arrays.along_axis import ordered
from flatout.vectorize.arrays.indexing import gather, index
from flatout.vectorize.arrays.lifted_values import Axis, Bag, Items, Listing, Plain, Refused, Stream, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor

from . import operations
from .reader import Reader


def sorted_values(run: Reader, values: Any, key: Any = None, reverse: Plain = False) -> Any:
    """`sorted(values)`, perhaps in reverse; as a key orders them, equal ones stay in their order, in reverse too."""
    if isinstance(values, Bag) and key is None:
        return values  # What follows may not depend on the order; the verification sees to it.
    if key is not None:
        flow, keys = _keyed(run, key, values, "sorted")
        order = ordered(run.lift, keys, how="argsort", descending=reverse, stable=True)
        return _in_order(run.lift, flow.element, flow.axes[0], order)
    numbers = tensor(run.lift, values)
    if numbers.rank != 1 or numbers.valid is not None:
        raise Refused("sorted() of a selection, or of rows.", "FO205")
    run.lift.changes.add("FO205")
    return ordered(run.lift, numbers, how="sort", descending=reverse)


def extreme_by(run: Reader, how: str, key: Any, value: Any) -> Any:
    """`max(values, key=f)`: the first of those for which f is largest."""
    flow, keys = _keyed(run, key, value, how)
    lift = run.lift
    # A comparison with NaN fails: the first element stays if its key is NaN, any other is passed over.
    missing = elementwise(lift, "isnan", (keys,), "bool")
    best = first_best(lift, how, where(lift, missing, number(lift, -1e30 if how == "max" else 1e30), keys))
    first = index(lift, missing, [number(lift, 0)])
    return picked(lift, flow.element, flow.axes[0], where(lift, first, number(lift, 0), best))


def first_best(lift: Lifting, how: str, keys: Tensor) -> Tensor:
    """The first place where the numbers along the only inner dimension are largest or least."""
    # Keras orders -0.0 before 0.0 where it looks for the least and the largest; Python takes them for equal.
    zero = elementwise(lift, "equal", (keys, number(lift, 0.0)), "bool", "==")
    best = operations.apply(lift, f"arg{how}", [where(lift, zero, number(lift, 0.0), keys)], {})
    return cast(lift, best, "int32")


def _keyed(run: Reader, key: Any, value: Any, function: str) -> tuple[Stream, Tensor]:
    """What is ordered, and the numbers that order it, as a vector."""
    flow = run.stream(value)
    if isinstance(flow, Items) or flow.keep is not None or len(flow.axes) != 1:
        raise Refused(f"{function}() with a key of a selection, or of values of different kinds.", "FO205")
    (axis,) = flow.axes
    keys = tensor(run.lift, run.each_step(flow, lambda: run.call(key, [flow.element])))
    if keys.rank or axis not in keys.dims or keys.valid is not None:
        raise Refused(f"{function}() by a key that is no number for each element.", "FO205")
    run.lift.changes.add("FO205")
    return flow, replace(on_host(run.lift, keys), inner=(axis,), position=None)


def _in_order(lift: Lifting, element: Any, axis: Axis, order: Tensor) -> Any:
    """What a loop gives, rearranged, as a list."""
    place = Axis("place", axis.size)
    at = replace(relabelled(order, {order.inner[0]: place}), inner=())
    return Listing(picked(lift, element, axis, at), (place,))


def picked(lift: Lifting, element: Any, axis: Axis, at: Tensor) -> Any:
    """What a loop gives at the steps of which these are the places."""

    def gathered(part: Tensor) -> Tensor:
        if axis not in part.dims:
            return part
        if part.position == (axis, 0) and axis.start is None:
            return replace(at, kind="int", is_host=True)
        return gather(lift, replace(part, inner=(axis, *part.inner), position=None), 0, at)

    return changed(element, gathered)
