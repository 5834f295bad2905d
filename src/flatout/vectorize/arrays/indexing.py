"""Indexing of lifted tensors: `a[i]` with a loop's variable names a dimension, other indices slice, mask or gather."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algebra import all_of, binary, cast, elementwise, number, operand, operated, placed, running, size_of, where
from .expression_graph import Node
from .lifted_values import Axis, Host, Known, Listing, Refused, Tensor, WrongRank
from .lifting import Lifting, Made


def index(lift: Lifting, tensor: Tensor, items: list[Any]) -> Tensor:
    """`tensor[items]`; an item is None, Ellipsis, a slice of values, a number or a tensor."""
    counted = sum(item.rank if _is_mask(item) else item is not None and item is not Ellipsis for item in items)
    if counted > tensor.rank:
        raise WrongRank(f"An index of {counted} places does not fit an array of rank {tensor.rank}.")
    only_adds = all(item is None or item == slice(None) for item in items)
    selects = tensor.valid is not None and not set(tensor.inner).isdisjoint(tensor.valid.dims)
    if tensor.is_loose or (selects and not only_adds):
        raise Refused("A selection of elements is indexed; its length depends on the data.", "FO108")
    place = 0
    for at, item in enumerate(items):
        if item is None:
            tensor = _with_new(lift, tensor, place)
            place += 1
        elif item is Ellipsis:
            place = tensor.rank - sum(other is not None for other in items[at + 1 :])
        elif isinstance(item, slice):
            tensor = _sliced(lift, tensor, place, item)
            place += 1
        elif _is_mask(item):
            rest = items[at + 1 :]
            if any(isinstance(other, Tensor) and other.rank for other in rest):
                raise Refused("An array is indexed by a mask and an array.", "FO108")
            tensor = index(lift, tensor, [*[slice(None)] * (place + item.rank), *rest]) if rest else tensor
            return select(lift, tensor, place, item)
        else:
            before = tensor.rank
            tensor = _picked(lift, tensor, place, item)
            place += tensor.rank - before + 1
    return tensor


def _is_mask(item: Any) -> bool:
    return isinstance(item, Tensor) and item.kind == "bool" and item.rank > 0


def _spec(lift: Lifting, tensor: Tensor, axis: Axis, item: Any) -> Node:
    at = tensor.dims.index(axis)
    if at and at == len(tensor.dims) - 1:
        return lift.graph.index(tensor.node, ("...", item))
    return lift.graph.index(tensor.node, (":",) * at + (item,))


def _with_new(lift: Lifting, tensor: Tensor, place: int) -> Tensor:
    fresh = Axis("one", lift.graph.const(1))
    if place < tensor.rank:
        at = tensor.dims.index(tensor.inner[place])
    else:
        at = tensor.dims.index(tensor.inner[-1]) + 1 if tensor.rank else len(tensor.dims)
    node = lift.graph.index(tensor.node, (":",) * at + (None,))
    dims = (*tensor.dims[:at], fresh, *tensor.dims[at:])
    return replace(tensor, node=node, dims=dims, inner=(*tensor.inner[:place], fresh, *tensor.inner[place:]))


def _sliced(lift: Lifting, tensor: Tensor, place: int, item: slice) -> Tensor:
    axis = tensor.inner[place]
    bounds = (item.start, item.stop, item.step)
    if all(bound is None for bound in bounds):
        return tensor
    if any(isinstance(bound, Tensor) for bound in bounds):
        one_row = _one_row(item)
        if one_row is not None:
            return _with_new(lift, _picked(lift, tensor, place, one_row), place)
        return _ragged(lift, tensor, axis, item)
    if item.start is None and item.stop is None and isinstance(item.step, Known) and item.step.value == -1:
        behind = lift.graph.const(tensor.dims.index(axis) - len(tensor.dims))
        return replace(tensor, node=lift.graph.call("ops.flip", tensor.node, axis=behind), position=None)
    largest = _largest(lift, tensor, axis, *bounds)
    if largest is not None:
        return largest
    for bound, more in ((item.start, 1), (item.stop, 0)):
        _learn_least(lift, tensor, axis, bound, more)
    if any(bound is not None and not isinstance(bound, (Host, Known)) for bound in bounds):
        raise Refused("A bound of a slice is neither a number nor a tensor.", "FO108")
    nodes = tuple(bound and bound.node for bound in bounds)
    node = _spec(lift, tensor, axis, nodes)
    fresh = Axis(axis.name, _length(lift, axis, bounds) or lift.graph.size(node, tensor.dims.index(axis)))
    return _recorded(lift, tensor, node, axis, nodes, fresh)


def _largest(lift: Lifting, tensor: Tensor, axis: Axis, start: Any, stop: Any, step: Any) -> Tensor | None:
    """`argsort(-x)[..., :k]` as the places of the k largest, which is sooner found than the whole order."""
    node, graph = tensor.node, lift.graph
    if start is not None or step is not None or not isinstance(stop, Known) or stop.value < 1 or axis.size is None:
        return None
    is_falling = node.kind == "call" and node.parts[0] == "ops.argsort" and node.parts[1][0].kind == "negative"
    is_last = tensor.dims[-1] is axis and is_falling and dict(node.parts[2]).get("axis") is graph.const(-1)
    if not is_last or node in lift.stable:
        return None  # In a stable sort the first of equal entries is promised, and top_k() promises none.
    count = graph.call("min", stop.node, axis.size)
    made = graph.index(graph.call("ops.top_k", node.parts[1][0].parts[0], count), (graph.const(1),))
    return exchanged(tensor, made, axis, Axis("top", count))


def _length(lift: Lifting, axis: Axis, bounds: tuple[Any, ...]) -> Node | None:
    """The length of `[k:]`, `[:-k]` and `[k:-k]`, as an expression that is the same for every array of that size."""
    start, stop, step = bounds
    if step is not None or axis.size is None or any(isinstance(bound, Host) for bound in bounds):
        return None
    first, last = (0 if bound is None else bound.value for bound in (start, stop))
    if first < 0 or last > 0 or (stop is not None and last == 0):
        return None
    for bound in (start, stop):
        if bound is not None:
            lift.stays(bound.node, bound.value)
    return _moved(lift, axis.size, last - first)


def _moved(lift: Lifting, size: Node, by: int) -> Node:
    """A size, and as much more."""
    moved = operated(lift, "+", size_of(lift, size), number(lift, by))
    return lift.graph.const(max(0, moved.value)) if isinstance(moved, Known) else moved.node  # type: ignore[no-any-return]


def _one_row(item: slice) -> Tensor | None:
    """`i` for `[i : i + 1]`."""
    start, stop = item.start, item.stop
    if not isinstance(start, Tensor) or not isinstance(stop, Tensor) or item.step is not None:
        return None
    if start.position and stop.position and start.position[0] is stop.position[0]:
        return start if stop.position[1] - start.position[1] == 1 else None
    node = stop.node
    is_next = node.kind in ("binary", "call") and start.node in tuple(node.inputs())
    return start if is_next and any(part.parts == ("1",) for part in node.inputs()) else None


def exchanged(tensor: Tensor, node: Node, old: Axis, new: Axis | None, is_inner: bool = True) -> Tensor:
    """An array with another dimension, or none, in place of one, which may be a loop's."""
    dims = tuple(new if axis is old else axis for axis in tensor.dims if axis is not old or new)
    inner = tuple(new if axis is old else axis for axis in tensor.inner if axis is not old or (new and is_inner))
    return replace(tensor, node=node, dims=dims, inner=inner, position=None)  # type: ignore[arg-type]


def _recorded(lift: Lifting, tensor: Tensor, node: Node, axis: Axis, item: Any, new: Axis | None) -> Tensor:
    """What a slice or a number picks, and how to pick it again."""
    result = exchanged(tensor, node, axis, new)

    def again(parts: list[Tensor], labels: dict[Axis, Axis]) -> Tensor:
        there = labels.get(axis, axis)
        picked = _spec(lift, parts[0], there, item)
        return exchanged(parts[0], picked, there, None if new is None else labels.get(new, new))

    lift.made.setdefault(node, Made(result.dims, (replace(tensor, valid=None),), again))
    return result


def _picked(lift: Lifting, tensor: Tensor, place: int, item: Any) -> Tensor:
    axis = tensor.inner[place]
    if isinstance(item, (Host, Known)):
        if isinstance(item, Known) and not hasattr(item.value, "__index__"):
            raise WrongRank(f"An array is indexed by {item.value!r}.")
        _learn_least(lift, tensor, axis, item, 1)
        return _recorded(lift, tensor, _spec(lift, tensor, axis, item.node), axis, item.node, None)
    if not isinstance(item, Tensor):
        raise Refused("An array is indexed by something that is no number.", "FO108")
    if item.position is not None and item.position[0] not in tensor.dims:
        return _along_loop(lift, tensor, axis, item)
    return gather(lift, tensor, place, item)


def _along_loop(lift: Lifting, tensor: Tensor, axis: Axis, item: Tensor) -> Tensor:
    """`a[i + c]` with the variable of a loop: the dimension becomes the loop's axis."""
    assert item.position is not None
    loop, offset = item.position
    if loop.size is not None and loop.size.kind == "pending":
        loop.size = axis.size  # The bound is known from the data; no valid index goes beyond this dimension.
    start = int(loop.start.parts[0]) if loop.start and loop.start.kind == "const" else None if loop.start else 0
    if start is None or loop.size is None or axis.size is None:
        return gather(lift, tensor, tensor.inner.index(axis), item)
    lowest = start + offset
    if lowest == 0 and loop.size is axis.size:
        return exchanged(tensor, tensor.node, axis, loop, is_inner=False)
    if lowest < 0:
        if loop.size is not axis.size or -lowest > 8:
            raise Refused("An index runs below 0, where Python counts from the end.", "FO101")
        shift, at = lift.graph.const(-lowest), lift.graph.const(tensor.dims.index(axis))
        rolled = lift.graph.call("ops.roll", tensor.node, shift, axis=at)
        return exchanged(tensor, rolled, axis, loop, is_inner=False)
    if tensor.node.kind == "name" and loop.size.kind == "const":
        lift.hints.append(("size", tensor.node.parts[0], tensor.dims.index(axis), int(loop.size.parts[0])))
    first = lift.graph.const(lowest) if lowest else None
    last = _moved(lift, loop.size, lowest)
    part = _spec(lift, tensor, axis, (first, None if last is axis.size else last, None))
    return exchanged(tensor, part, axis, loop, is_inner=False)


def _learn_least(lift: Lifting, tensor: Tensor, axis: Axis, place: Any, more: int) -> None:
    """A parameter that is read at a place has at least so many entries there."""
    if tensor.node.kind == "name" and isinstance(place, Known) and isinstance(place.value, int) and place.value > 0:
        lift.hints.append(("least", tensor.node.parts[0], tensor.dims.index(axis), place.value + more))


def gather(lift: Lifting, tensor: Tensor, place: int, item: Tensor) -> Tensor:
    """`a[..., item, ...]` with numbers from a tensor."""
    axis = tensor.inner[place]
    lift.learn("index", item, axis.size)
    lift.exact(item)
    if item.valid is not None:
        every = None if axis.size is None else lift.graph.call("ops.arange", axis.size)
        if item.rank == 1 and item.inner[0] in item.valid.dims and item.node is every:  # Places that a mask selects.
            return select(lift, tensor, place, replace(item.valid, inner=item.inner))
        raise Refused("A selection of elements is used as an index.", "FO108")
    codes = cast(lift, item, "int32")
    mask = running(lift, codes) if codes.domain and not codes.rank else None
    if mask is not None:  # 0 where the statement does not run: `if label != 255: row[label]` reads within the row.
        codes = replace(where(lift, mask, codes, number(lift, 0)), kind="int", is_host=codes.is_host)
    at = tensor.dims.index(axis)
    if not any(loop in tensor.dims for loop in item.axes):
        node = lift.graph.call("ops.take", tensor.node, codes.node, axis=lift.graph.const(at - len(tensor.dims)))
        dims = (*tensor.dims[:at], *codes.dims, *tensor.dims[at + 1 :])
        here = tensor.inner.index(axis)
        inner = (*tensor.inner[:here], *codes.inner, *tensor.inner[here + 1 :])
        return replace(tensor, node=node, dims=dims, inner=inner, position=None, domain=None)
    return _gathered_along(lift, tensor, axis, codes)


def _gathered_along(lift: Lifting, tensor: Tensor, axis: Axis, codes: Tensor) -> Tensor:
    """Different indices for each step of a loop that the array has as a dimension already."""
    graph, at = lift.graph, tensor.dims.index(axis)
    new = [*(loop for loop in codes.axes if loop not in tensor.dims), *codes.inner]
    if len(new) > 1 or any(other is not axis and other in tensor.dims for other in new):
        raise Refused("An index depends on several loops in a way that has no array form here.", "FO103")
    # The place of `axis` is taken by the dimension that the index adds, or by one of 1 that is dropped again.
    fresh = new[0] if new else Axis("picked", graph.const(1))
    dims = tuple(fresh if other is axis else other for other in tensor.dims)
    index_node, behind = placed(lift, codes, dims, is_full=True), graph.const(at - len(dims))
    node = graph.call("ops.take_along_axis", tensor.node, index_node, axis=behind)
    if not new:
        node = graph.call("ops.squeeze", node, axis=behind)
    return replace(exchanged(tensor, node, axis, fresh if new else None, is_inner=bool(codes.rank)), domain=None)


def select(lift: Lifting, tensor: Tensor, place: int, mask: Tensor) -> Tensor:
    """`a[mask]`: all elements stay, with a mask; only reductions of the whole may follow."""
    lift.changes.add("FO108")
    labels = dict(zip(mask.inner, tensor.inner[place : place + mask.rank], strict=True))
    dims = tuple(labels.get(axis, axis) for axis in mask.dims)
    valid = replace(mask, dims=dims, inner=(), valid=None)
    # Chosen by one dimension, `a[mask]` has the dimensions of `a`; by several, these are one in the user's code.
    return replace(tensor, valid=valid, is_loose=mask.rank > 1, position=None)


def listing_to_tensor(lift: Lifting, listing: Listing) -> Tensor:
    """`stack(list)`: the loop's axis becomes the first inner dimension."""
    rows = listing.element
    element = listing_to_tensor(lift, rows) if isinstance(rows, Listing) else operand(lift, rows)
    for axis in listing.axes:
        if axis not in element.dims:
            node = lift.graph.call("ops.zeros", lift.graph.sequence((axis.size,)))  # type: ignore[arg-type]
            spread = Tensor(node, (axis,), (), "float")
            element = elementwise(lift, "add", (element, spread), element.kind, "+")
    valid = element.valid
    if listing.keep is not None:
        if valid is not None:
            raise Refused("A selection of selections has no masked form here.", "FO108")
        valid = replace(listing.keep, inner=())
    inner = (*listing.axes, *element.inner)
    loose = element.is_loose or len(listing.axes) > 1
    return replace(element, inner=inner, valid=valid, is_loose=loose, position=None, domain=None)


def _ragged(lift: Lifting, tensor: Tensor, axis: Axis, item: slice) -> Tensor:
    """A slice whose bounds depend on the data: all elements stay, with a mask that says which exist."""
    if item.step is not None:
        raise Refused("A slice with a step has a bound that depends on the data.", "FO108")
    lift.changes.add("FO108")
    mask: Tensor | None = None
    for bound, symbol in ((item.start, ">="), (item.stop, "<")):
        if bound is None:
            continue
        bound = operand(lift, bound)
        lift.learn("count", bound, axis.size)
        if bound.kind != "number" and not (bound.position and bound.position[1] >= 0):
            # Python counts a negative one from the end.
            assert axis.size is not None
            below, behind = binary(lift, "<", bound, number(lift, 0)), binary(lift, "+", bound, Host(axis.size))
            bound = replace(where(lift, below, behind, bound), kind=bound.kind, is_host=bound.is_host)
        mask = all_of(lift, mask, binary(lift, symbol, positions(lift, axis), bound))
    assert mask is not None
    start, stop = (None if bound is None else operand(lift, bound).node for bound in (item.start, item.stop))
    lift.slices[mask.node] = start, stop
    return replace(tensor, valid=replace(mask, inner=()), position=None)


def positions(lift: Lifting, axis: Axis) -> Tensor:
    """0, 1, 2, ... along a dimension."""
    if axis.size is None:
        raise Refused("The length of a dimension is not known.", "FO108")
    return Tensor(lift.graph.call("ops.arange", axis.size), (axis,), (), "int", is_host=True)


def steps_of(lift: Lifting, size: Node) -> Node:
    """How many steps a loop takes: `range(2, n)` takes none where `n - 2` is negative."""
    if size.kind == "binary" and size.parts[0] == "-":
        return lift.graph.call("max", size, lift.graph.const(0))
    return size
