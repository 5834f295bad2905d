"""What is iterated, as axes: ranges, arrays, lists, and several of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import (
    all_of,
    binary,
    number,
    opened,
    operand,
    operated,
    relabelled,
    relabelled_value,
    size_of,
)
from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.indexing import index, positions
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Groups,
    Host,
    Items,
    Known,
    Listing,
    Places,
    Range,
    Refused,
    Several,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.lookups.batch_frames import parts_of
from flatout.vectorize.lookups.lookups import distinct, is_table


def stream(lift: Lifting, value: Any) -> Listing | Items:
    """How a value is iterated: as axes, or as the few values that it is."""
    if isinstance(value, Items):
        return value
    if isinstance(value, Range):
        return range_of(lift, value)
    if isinstance(value, Listing):
        fresh = tuple(Axis(axis.name, axis.size, axis.start) for axis in value.axes)
        labels = dict(zip(value.axes, fresh, strict=True))
        element = relabelled_value(value.element, labels)
        return Listing(element, fresh, None if value.keep is None else relabelled(value.keep, labels))
    if isinstance(value, Tensor):
        if not value.rank:
            raise WrongRank("A number is iterated.")
        first, valid = value.inner[0], value.valid
        if valid is not None and first in valid.dims:
            value = replace(value, valid=None, is_loose=False)
            steps = stream(lift, value)
            assert isinstance(steps, Listing)
            return replace(steps, keep=relabelled(valid, {first: steps.axes[0]}))
        if value.node.kind == "call" and value.node.parts[0] == "ops.arange" and len(value.node.parts[1]) == 1:
            return range_of(lift, Range(number(lift, 0), Host(value.node.parts[1][0])))
        axis = Axis("row", first.size)
        return Listing(index(lift, value, [variable(lift, axis)]), (axis,))
    if isinstance(value, Bag) and not value.others:
        return stream(lift, distinct(lift, value.entries))
    if isinstance(value, Several):
        return _several(lift, value)
    if isinstance(value, Known):
        return _static(lift, value)
    if isinstance(value, Groups):
        return parts_of(lift, value)
    if isinstance(value, Places):
        raise WrongRank("A loop runs over the places of a mask of several dimensions.")
    raise Refused("A loop runs over something that is no array, range or list.")


def few_steps(lift: Lifting, over: Any, most: int) -> Items | None:
    """The steps of a loop over a few constants, to be written out; else None."""
    try:
        made = stream(lift, _written_out(lift, over, most + 1))
    except Refused:
        return None
    return made if isinstance(made, Items) and len(made.values) <= most else None


def _written_out(lift: Lifting, over: Any, most: int) -> Any:
    match over:
        case Several():
            return Several(over.how, tuple(_written_out(lift, value, most) for value in over.values))
        case Range(start=Known(), stop=Known(), step=Known() | None):
            numbers = range(over.start.value, over.stop.value, over.step.value if over.step else 1)
            for bound in filter(None, (over.start, over.stop, over.step) if len(numbers) < most else ()):
                lift.stays(bound.node, bound.value)
            return Items(tuple(number(lift, k) for k in numbers[:most]))
        case Known(value=list() | tuple() | np.ndarray()):
            return opened(lift, Known(list(over.value[:most]), over.node))
        case Known(value=Mapping()):
            return Items(tuple(number(lift, key) for key in list(over.value)[:most]))
    return over


def variable(lift: Lifting, axis: Axis) -> Tensor:
    """All values of a loop's variable."""
    graph = lift.graph
    assert axis.size is not None
    if axis.start is None:
        node = graph.call("ops.arange", axis.size)
    else:
        stop = operated(lift, "+", size_of(lift, axis.size), size_of(lift, axis.start))
        node = graph.call("ops.arange", axis.start, stop.node)
    return Tensor(node, (axis,), (), "int", is_host=True, position=(axis, 0))


def range_of(lift: Lifting, value: Range, most: Node | None = None) -> Listing:
    """The steps of a range; `most`: as many as there can be, where a bound is of the data."""
    step = 1 if value.step is None else value.step.value if isinstance(value.step, Known) else None
    if isinstance(value.step, Known):
        lift.stays(value.step.node, step)
    if step == -1:
        first, last = (operated(lift, "+", bound, number(lift, 1)) for bound in (value.stop, value.start))
        return backwards(range_of(lift, Range(first, last)))
    if step != 1:
        return _stepping(lift, value, step)
    start, stop = value.start, value.stop
    lift.sized_by(stop)
    lift.sized_by(start)
    if not isinstance(start, (Known, Host, Tensor)) or not isinstance(stop, (Known, Host, Tensor)):
        raise Refused("A range has a bound that is no number.")
    begin = number(lift, 0) if isinstance(start, Tensor) else start
    first = None if begin.node is lift.graph.const(0) else begin.node
    if isinstance(stop, Tensor):
        size = most or _bound(lift, stop)
    else:
        size = _steps_in(lift, operated(lift, "-", stop, begin))
    axis = Axis("i", size, first)
    at = variable(lift, axis)
    keep: Tensor | None = None
    if isinstance(start, Tensor):
        keep = binary(lift, ">=", at, start)
    if isinstance(stop, Tensor):
        keep = all_of(lift, keep, binary(lift, "<", at, stop))
    return Listing(at, (axis,), keep)


def _steps_in(lift: Lifting, span: Known | Host) -> Node:
    return lift.graph.const(max(0, int(span.node.parts[0]))) if span.node.kind == "const" else span.node


def backwards(flow: Listing) -> Listing:
    """The same steps, from the last to the first."""
    for axis in flow.axes:
        axis.is_reversed = not axis.is_reversed
    return flow


def in_order(lift: Lifting, element: Any, axes: tuple[Axis, ...]) -> Any:
    """What a loop appends, in the order of its steps; one that runs backwards begins with the last."""
    turned = [axis for axis in axes if axis.is_reversed]
    if not turned:
        return element
    tensor = operand(lift, element)
    if tensor.valid is not None or not set(turned) <= set(tensor.dims):
        raise Refused("A list is filled backwards with selections, or with the same value.", "FO106")
    places = [lift.graph.const(tensor.dims.index(axis)) for axis in turned]
    at = places[0] if len(places) == 1 else lift.graph.sequence(tuple(places))
    return replace(tensor, node=lift.graph.call("ops.flip", tensor.node, axis=at), position=None)


def _stepping(lift: Lifting, value: Range, step: int | None) -> Listing:
    """`range(start, stop, step)`: every step-th index, as an array of indices."""
    bounds = (value.start, value.stop)
    if step is None or step < 1 or not all(isinstance(bound, (Known, Host)) for bound in bounds):
        raise Refused("A range has a step that is no positive constant, or bounds from the data.")
    span = operated(lift, "-", operated(lift, "+", value.stop, number(lift, step - 1)), value.start)
    axis = Axis("i", _steps_in(lift, operated(lift, "//", span, number(lift, step))))
    at = operated(lift, "*", replace(variable(lift, axis), position=None), number(lift, step))
    return Listing(replace(operated(lift, "+", at, value.start), kind="int", position=None), (axis,))


def _bound(lift: Lifting, stop: Tensor) -> Node:
    """A size that no step can exceed: that of the other loop, or of the first array that the variable indexes."""
    if stop.position and stop.position[0].start is None and stop.position[1] <= 1 and stop.position[0].size is not None:
        return stop.position[0].size
    lift.changes.add("FO201")
    return lift.graph.make("pending", object())


def _several(lift: Lifting, value: Several) -> Listing | Items:
    if value.how == "enumerate":
        inside, first = stream(lift, value.values[0]), value.values[1]
        if isinstance(inside, Items):
            pairs = (Items((number(lift, k), item)) for k, item in enumerate(inside.values, first))
            return Items(tuple(pairs))
        if inside.keep is not None or len(inside.axes) != 1 or inside.axes[0].is_reversed:
            raise Refused("A selection is enumerated; its numbers depend on the data.", "FO108")
        at = inside.axes[0]
        count = replace(positions(lift, at), position=(at, 0) if at.start is None else None)
        count = replace(operated(lift, "+", count, number(lift, first)), kind="int")
        return replace(inside, element=Items((count, inside.element)))
    if value.how == "reversed":
        inside = stream(lift, value.values[0])
        if isinstance(inside, Items):
            return Items(inside.values[::-1], inside.is_list)
        if inside.keep is not None or len(inside.axes) != 1:
            raise Refused("A selection is read from its end.", "FO108")
        return backwards(inside)
    if value.how == "zip" and _is_together(value.values):
        first = value.values[0]
        return stream(lift, Listing(Items(tuple(one.element for one in value.values)), first.axes, first.keep))
    if value.how == "zip":
        return _zipped(lift, [stream(lift, item) for item in _shortened(lift, value.values)])
    parts = [stream(lift, item) for item in value.values]
    streams = [part for part in parts if isinstance(part, Listing)]
    if len(streams) < len(parts):
        raise Refused("A product of lists that have no array form.", "FO103")
    axes = tuple(axis for part in streams for axis in part.axes)
    keep = all_of(lift, *(part.keep for part in streams))
    return Listing(Items(tuple(part.element for part in streams)), axes, keep)


def _is_together(values: tuple[Any, ...]) -> bool:
    """Whether lists were filled by the same loop, under the same condition."""
    lists = [value for value in values if isinstance(value, Listing) and value.keep is not None]
    same = all(one.axes == lists[0].axes and one.keep is lists[0].keep for one in lists)
    return bool(lists) and len(lists) == len(values) and same


def _shortened(lift: Lifting, values: tuple[Any, ...]) -> list[Any]:
    """Arrays of which one has so many rows less than another, as `zip(x, x[1:])`: zip() ends with the shortest."""
    lengths = [value.inner[0].size if isinstance(value, Tensor) and value.rank else None for value in values]
    if None in lengths:
        return list(values)
    less = [_less(size) for size in lengths]
    if len({size for size, _ in less}) != 1:
        return list(values)
    most = max(cut for _, cut in less)
    made = []
    for value, (_, cut) in zip(values, less, strict=True):
        made.append(value if cut == most else index(lift, value, [slice(None, number(lift, cut - most))]))
    return made


def _less(size: Any) -> tuple[Node, int]:
    """`n` and `k` of a length `n - k`."""
    is_cut = size.kind == "binary" and size.parts[0] == "-" and size.parts[2].kind == "const"
    return (size.parts[1], int(size.parts[2].parts[0])) if is_cut else (size, 0)


def _zipped(lift: Lifting, parts: list[Listing | Items]) -> Listing | Items:
    if all(isinstance(part, Items) for part in parts):
        return Items(tuple(Items(row) for row in zip(*(part.values for part in parts), strict=False)))  # type: ignore[union-attr]
    streams = [part for part in parts if isinstance(part, Listing)]
    first = streams[0]
    if len(streams) < len(parts) or any(len(part.axes) != 1 or part.keep is not None for part in streams):
        raise Refused("zip() of lists of which the lengths depend on the data, or are not known to agree.", "FO108")
    (axis,) = first.axes
    elements = []
    for part in streams:
        other = part.axes[0]
        if other.is_reversed != axis.is_reversed:
            raise Refused("zip() of arrays that are not known to have the same length.")
        if other.size is not axis.size:
            _must_agree(lift, axis.size, other.size)
        element = part.element if other.start is axis.start else _counted_from(lift, part.element, other, axis)
        elements.append(relabelled_value(element, {other: axis}))
    return Listing(Items(tuple(elements)), first.axes)


def _counted_from(lift: Lifting, element: Any, own: Axis, other: Axis) -> Any:
    """The variable of a range, as so much more than that of a range of the same length with another start."""
    starts = [lift.graph.const(0) if axis.start is None else axis.start for axis in (own, other)]
    away = operated(lift, "-", *(size_of(lift, start) for start in starts))
    if not isinstance(element, Tensor) or element.position != (own, 0) or not isinstance(away, Known):
        raise Refused("zip() of ranges that begin at different places.")
    return replace(element, position=(own, away.value))


def _must_agree(lift: Lifting, size: Node | None, other: Node | None) -> None:
    """Two lengths are taken to be equal; at a call where they are not, the original runs."""
    for node in (size, other):
        known = node is not None and (node.kind == "const" or (node.kind == "size" and node.parts[0].kind == "name"))
        counted = node is not None and node.kind == "call" and node.parts[0] == "len" and _is_named(node.parts[1][0])
        if not known and not counted:
            raise Refused("zip() of arrays that are not known to have the same length.")
    lift.guard(lift.graph.binary("==", size, other))  # type: ignore[arg-type]


def _is_named(node: Node) -> bool:
    """`name`, `self.name`."""
    return node.kind == "name" or (node.kind == "attribute" and _is_named(node.parts[0]))


def _static(lift: Lifting, value: Known) -> Listing | Items:
    content = value.value
    if isinstance(content, (list, tuple, np.ndarray)) and len(content):
        try:
            array = np.asarray(content)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind in "fiub" and array.ndim and not isinstance(content[0], Known):
            rows = operand(lift, Known(content, value.node))
            size = rows.inner[0].size if isinstance(content, np.ndarray) else lift.graph.call("len", value.node)
            if value.node.kind in ("list", "tuple", "const"):
                size = rows.inner[0].size
            axis = Axis("item", size)
            element = relabelled(replace(rows, inner=rows.inner[1:]), {rows.inner[0]: axis})
            return Listing(element, (axis,))
        return opened(lift, Known(list(content), value.node))  # type: ignore[no-any-return]
    if getattr(content, "shape", ()) and hasattr(content, "dtype") and not is_table(value):
        return stream(lift, operand(lift, value))
    raise Refused(f"A loop runs over a {type(content).__name__}.")
