"""`sorted`, and `max` and `min` with a key, on lifted values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import cast, elementwise, number, relabelled, where
from flatout.vectorize.arrays.indexing import gather, index
from flatout.vectorize.arrays.lifted_values import Axis, Bag, Items, Known, Listing, Refused, Stream, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.loops.iterated_axes import stream

from . import operations
from .reader import Reader


def sorted_values(run: Reader, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`sorted(values)`, perhaps in reverse: numbers alone."""
    reverse, key = kwargs.pop("reverse", None), kwargs.pop("key", None)
    if isinstance(args[0], Bag) and key is None:
        return args[0]  # What follows may not depend on the order; the verification sees to it.
    if kwargs or (reverse is not None and not isinstance(reverse, Known)):
        raise Refused("sorted() in an order that depends on the data.", "FO205")
    if key is not None and not (isinstance(key, Known) and key.value is None):
        return _sorted_by(run, key, args[0], reverse is not None and bool(reverse.value))
    values = tensor(run.lift, args[0])
    if values.rank != 1 or values.valid is not None:
        raise Refused("sorted() of a selection, or of rows.", "FO205")
    run.lift.changes.add("FO205")
    rising = operations.apply(run.lift, "sort", [values], {})
    return operations.apply(run.lift, "flip", [rising], {}) if reverse is not None and reverse.value else rising


def _sorted_by(run: Reader, key: Any, value: Any, is_falling: bool) -> Any:
    """`sorted(values, key=f)`: as f orders them; equal ones stay in their order, in reverse too."""
    flow, keys = _keyed(run, key, value, "sorted")
    words = {"stable": number(run.lift, True)}
    words |= {"descending": number(run.lift, True)} if is_falling else {}
    return _in_order(run.lift, flow.element, flow.axes[0], operations.apply(run.lift, "argsort", [keys], words))


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
    flow = stream(run.lift, value)
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
    if isinstance(element, Items):
        return Items(tuple(picked(lift, item, axis, at) for item in element.values), element.is_list)
    if not isinstance(element, Tensor) or axis not in element.dims:
        return element
    if element.position == (axis, 0) and axis.start is None:
        return replace(at, kind="int", is_host=True)
    return gather(lift, replace(element, inner=(axis, *element.inner), position=None), 0, at)
