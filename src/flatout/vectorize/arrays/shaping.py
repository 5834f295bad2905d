"""Operations that make, join, rearrange and cut arrays, on lifted tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .algebra import align, binary, front, is_one, number, operand
from .indexing import index, listing_to_tensor
from .lifted_values import Axis, Host, Items, Known, Listing, Refused, Tensor, WrongRank
from .lifting import Lifting
from .ragged import positions
from .reductions import reduce


def tensor(lift: Lifting, value: Any) -> Tensor:
    """Anything array-like, lists included, as a tensor."""
    if isinstance(value, Listing):
        return listing_to_tensor(lift, value)
    if isinstance(value, Items):
        return stack(lift, value)
    return operand(lift, value)


def axes_of(x: Tensor, axis: Any) -> tuple[Axis, ...]:
    """The inner dimensions that an `axis` argument names."""
    if axis is None or (isinstance(axis, Known) and axis.value is None):
        return x.inner
    chosen = []
    for place in _places(axis):
        if not isinstance(place, int):
            raise Refused("The axis of a reduction is not a constant.")
        if not -x.rank <= place < x.rank:
            raise WrongRank(f"Axis {place} of an array of rank {x.rank}.")
        chosen.append(x.inner[place])
    return tuple(chosen)


def axis_of(x: Tensor, axis: Any, default: int = 0) -> Axis:
    """The one dimension that an `axis` argument names."""
    (over,) = axes_of(x, default if axis is None else axis)
    return over


def at_axis(lift: Lifting, x: Any, axis: Any, indices: Any) -> Tensor:
    """`x[..., indices, ...]` at the dimension that an `axis` argument names."""
    x = tensor(lift, x)
    return index(lift, x, [*[slice(None)] * x.inner.index(axis_of(x, axis)), indices])


def sizes_of(lift: Lifting, *given: Any) -> tuple[Any, ...]:
    """Sizes or places that are given one by one, or as one tuple."""
    first = given[0] if given else None
    if isinstance(first, Known) and isinstance(first.value, (tuple, list)):
        return (*(number(lift, size) for size in first.value), *given[1:])
    return (*first.values, *given[1:]) if isinstance(first, Items) else given


def _places(axes: Any, *more: Any) -> list[Any]:
    """The numbers that one or several arguments hold; None for one that is not known."""
    if isinstance(axes, Known) and isinstance(axes.value, (tuple, list)):
        return list(axes.value)
    values = axes.values if isinstance(axes, Items) else (axes, *more)
    return [value if isinstance(value, int) else value.value if isinstance(value, Known) else None for value in values]


def stack(lift: Lifting, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    place = axis.value if isinstance(axis, Known) and axis.value is not None else 0
    if isinstance(x, Listing):
        made = listing_to_tensor(lift, x)
        if place == 0 or made.is_loose:
            return made
        first, *others = made.inner
        others.insert(place if place >= 0 else place + made.rank, first)
        return replace(made, inner=tuple(others))
    if isinstance(x, (Tensor, Known)):
        return operand(lift, x)
    if not isinstance(x, Items) or not x.values:
        raise Refused("Something is stacked that is no list of arrays.")
    parts = [tensor(lift, value) for value in x.values]
    nodes, pattern, _ = align(lift, parts)
    if pattern.valid is not None:
        raise Refused("Selections of elements are stacked.", "FO108")
    fresh = Axis("stacked", lift.graph.const(len(parts)))
    where_to = place if place >= 0 else place + pattern.rank + 1
    at = pattern.dims.index(pattern.inner[where_to]) if where_to < pattern.rank else len(pattern.dims)
    shape = lift.graph.sequence(tuple(axis.size for axis in pattern.dims))  # type: ignore[misc]
    full = [
        node if len(part.dims) == len(pattern.dims) else lift.graph.call("ops.broadcast_to", node, shape)
        for node, part in zip(nodes, parts, strict=True)
    ]
    node = lift.graph.call("ops.stack", lift.graph.sequence(tuple(full), is_list=True), axis=lift.graph.const(at))
    dims = (*pattern.dims[:at], fresh, *pattern.dims[at:])
    inner = (*pattern.inner[:where_to], fresh, *pattern.inner[where_to:])
    return Tensor(node, dims, inner, parts[0].kind, all(part.is_host for part in parts))


def concatenate(lift: Lifting, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    if isinstance(x, Listing):
        rows = _rows_of_one(lift, x, axis)
        if rows is not None:
            return rows
        made = listing_to_tensor(lift, x)
        return replace(made, is_loose=True)  # The rows of all elements, one after the other.
    if not isinstance(x, Items):
        raise Refused("Something is concatenated that is no list of arrays.")
    parts = [front(lift, tensor(lift, value)) for value in x.values]
    if any(part.axes or part.valid is not None or part.rank != parts[0].rank for part in parts):
        raise Refused("Arrays that depend on a loop are concatenated.")
    over = axis_of(parts[0], axis)
    place = parts[0].inner.index(over)
    nodes = lift.graph.sequence(tuple(part.node for part in parts), is_list=True)
    node = lift.graph.call("ops.concatenate", nodes, axis=lift.graph.const(place))
    fresh = Axis("joined", lift.graph.size(node, place))
    inner = tuple(fresh if axis is over else axis for axis in parts[0].inner)
    return replace(parts[0], node=node, dims=inner, inner=inner, domain=None)


def _rows_of_one(lift: Lifting, x: Listing, axis: Any) -> Tensor | None:
    """Arrays that have one row each, joined along it: as many rows as there are arrays."""
    element = tensor(lift, x.element)
    if not element.rank or len(x.axes) != 1 or x.keep is not None:
        return None
    over = axis_of(element, axis)
    if not is_one(over.size):
        return None
    each = at_axis(lift, element, axis, number(lift, 0))
    return stack(lift, replace(x, element=each), number(lift, element.inner.index(over)))


def expand(lift: Lifting, x: Any, axis: Any) -> Tensor:
    x = tensor(lift, x)
    place = axis.value if axis.value >= 0 else axis.value + x.rank + 1
    return index(lift, x, [*[slice(None)] * place, None])


def squeeze(lift: Lifting, x: Any, axis: Any = None) -> Tensor:
    x = tensor(lift, x)
    if axis is None:
        if any(one.size is None or one.size.kind != "const" for one in x.inner):
            raise Refused("squeeze() without an axis depends on the sizes.")
        return index(lift, x, [number(lift, 0) if is_one(one.size) else slice(None) for one in x.inner])
    return at_axis(lift, x, axis, number(lift, 0))


def transpose(lift: Lifting, x: Any, axes: Any = None, *more: Any) -> Tensor:
    x = tensor(lift, x)
    if axes is None:
        return replace(x, inner=x.inner[::-1])
    places = _places(axes, *more)
    if sorted(place % x.rank if isinstance(place, int) else -1 for place in places) != list(range(x.rank)):
        raise WrongRank("The dimensions of an array are put into an order that does not fit it.")
    return replace(x, inner=tuple(x.inner[place] for place in places))


def swap(lift: Lifting, x: Any, first: Any, second: Any) -> Tensor:
    x = tensor(lift, x)
    inner = list(x.inner)
    a, b = first.value, second.value
    inner[a], inner[b] = inner[b], inner[a]
    return replace(x, inner=tuple(inner))


def flatten(lift: Lifting, x: Any, shape: Any = None, *more: Any) -> Tensor:
    """`reshape`, `ravel` and `flatten`; to one dimension it is allowed where a whole reduction follows."""
    x = tensor(lift, x)
    sizes = () if shape is None else sizes_of(lift, shape, *more)
    if not sizes or (len(sizes) == 1 and isinstance(sizes[0], Known) and sizes[0].value == -1):
        return x if x.rank == 1 else replace(x, is_loose=True)
    return _reshaped(lift, x, [number(lift, size.value) if isinstance(size, Known) else size for size in sizes])


def _reshaped(lift: Lifting, x: Tensor, sizes: list[Any]) -> Tensor:
    """The inner dimensions in another shape; those of loops stay in front."""
    if x.valid is not None or x.is_loose or any(not isinstance(size, (Known, Host)) for size in sizes):
        raise Refused("A selection is reshaped, or to sizes that depend on the data.", "FO108")
    open_places = [at for at, size in enumerate(sizes) if isinstance(size, Known) and size.value == -1]
    given = [None if at in open_places else size.node for at, size in enumerate(sizes)]
    if len(given) == x.rank and all(node in (None, axis.size) for node, axis in zip(given, x.inner, strict=True)):
        return x
    x = front(lift, x)
    if any(axis.size is None or axis.size.kind == "pending" for axis in x.axes):
        raise Refused("An array is reshaped in a loop of unknown length.", "FO108")
    nodes = (*(axis.size for axis in x.axes), *(size.node for size in sizes))
    node = lift.graph.call("ops.reshape", x.node, lift.graph.sequence(nodes))  # type: ignore[arg-type]
    lengths = (size or lift.graph.size(node, len(x.axes) + at) for at, size in enumerate(given))
    inner = tuple(Axis("d", length) for length in lengths)
    return Tensor(node, (*x.axes, *inner), inner, x.kind, x.is_host)


def filled(function: str) -> Callable[..., Tensor]:
    def make(lift: Lifting, shape: Any = None, *more: Any, **rest: Any) -> Tensor:
        # torch takes sizes one by one; what else may come second is a type.
        more = tuple(size for size in more if isinstance(size, Host) or type(getattr(size, "value", None)) is int)
        sizes = () if shape is None else sizes_of(lift, shape, *more)
        if any(not isinstance(size, (Known, Host)) for size in sizes):
            raise Refused("An array is made with a size that depends on the data.", "FO108")
        inner = tuple(Axis("made", size.node) for size in sizes)
        node = lift.graph.call(f"ops.{function}", lift.graph.sequence(tuple(size.node for size in sizes)))
        return Tensor(node, inner, inner, "float")

    return make


def arange(lift: Lifting, start: Any, stop: Any = None, **rest: Any) -> Tensor:
    if stop is None and isinstance(start, (Known, Host)):
        axis = Axis("place", start.node)
        return replace(positions(lift, axis), inner=(axis,), is_host=True)
    bounds = (start, stop)
    if all(isinstance(bound, Host) or (isinstance(bound, Known) and isinstance(bound.value, int)) for bound in bounds):
        axis = Axis("place", lift.graph.binary("-", stop.node, start.node))
        return Tensor(lift.graph.call("ops.arange", start.node, stop.node), (axis,), (axis,), "int", is_host=True)
    raise Refused("arange() with a step, or with bounds that are no whole numbers, is not known here.")


def linspace(lift: Lifting, start: Any, stop: Any, num: Any) -> Tensor:
    if any(not isinstance(value, (Known, Host)) for value in (start, stop, num)):
        raise Refused("linspace() with bounds or a length that depend on the data.", "FO108")
    axis = Axis("place", num.node)
    node = lift.graph.call("ops.linspace", start.node, stop.node, num.node)
    return Tensor(node, (axis,), (axis,), "float", is_host=True)


def eye(lift: Lifting, size: Any, **rest: Any) -> Tensor:
    inner = (Axis("row", size.node), Axis("column", size.node))
    return Tensor(lift.graph.call("ops.eye", size.node), inner, inner, "float")


def unstack(lift: Lifting, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    x = tensor(lift, x)
    over = axis_of(x, axis)
    return replace(x, inner=(over, *(other for other in x.inner if other is not over)))


def diagonal(lift: Lifting, x: Any, offset: Any = None, **rest: Any) -> Tensor:
    """The diagonal of a square matrix."""
    x = front(lift, tensor(lift, x))
    if rest or (offset is not None and not (isinstance(offset, Known) and offset.value == 0)):
        raise Refused("Another diagonal than that of the last two dimensions is not known here.")
    if x.rank != 2 or x.valid is not None or x.is_loose:
        raise WrongRank("The diagonal of an array that is no matrix.")
    node = lift.graph.call("ops.diagonal", x.node, axis1=lift.graph.const(-2), axis2=lift.graph.const(-1))
    # Of a matrix with fewer columns than rows it is as long as a row.
    size = x.inner[0].size if x.inner[0].size is x.inner[1].size else lift.graph.size(node, len(x.dims) - 2)
    fresh = Axis("diagonal", size)
    return replace(x, node=node, dims=(*x.axes, fresh), inner=(fresh,), position=None, domain=None)


def trace(lift: Lifting, x: Any, **rest: Any) -> Tensor:
    entries = diagonal(lift, x, **rest)
    return reduce(lift, "sum", entries, entries.inner)


def split(lift: Lifting, x: Any, sections: Any, axis: Any = None, *, is_size: bool = False) -> Items | Listing:
    """`ops.split`, `np.split`, `torch.chunk`: `sections` is how many parts there are, or the places where to cut.

    With `is_size` it has the sizes of the parts, as torch's has, and TensorFlow's where it is a list.
    """
    x = tensor(lift, x)
    if isinstance(sections, Items) and all(isinstance(value, Known) for value in sections.values):
        sections = Known([value.value for value in sections.values], sections.values[0].node)
    over, graph = axis_of(x, axis), lift.graph
    if over.size is None or not isinstance(sections, (Known, Host)):
        raise Refused("An array is split into a number of parts that depends on the data.", "FO108")
    asked = sections.value if isinstance(sections, Known) else None
    cuts: list[Any]
    if isinstance(asked, (list, tuple)):
        cuts = [number(lift, cut) for cut in (list(itertools.accumulate(asked))[:-1] if is_size else asked)]
    elif asked == (1 if is_size else None):
        if not is_size and sections.node is not over.size:
            lift.guards.append((graph.binary("==", sections.node, over.size), True))
        loop = Axis("part", over.size)
        row = at_axis(lift, x, axis, replace(positions(lift, loop), position=(loop, 0)))
        return Listing(index(lift, row, [*[slice(None)] * x.inner.index(over), None]), (loop,))
    elif is_size or asked is None:
        raise Refused("An array is split into a number of parts that depends on its size.", "FO108")
    elif over.size.kind == "const":
        each, rest = divmod(int(over.size.parts[0]), asked)
        if rest:
            raise WrongRank(f"A dimension of {over.size.parts[0]} is split into {asked} parts.")
        cuts = [number(lift, each * k) for k in range(1, asked)]
    else:
        count = graph.const(asked)
        lift.guards.append((graph.binary("==", graph.binary("%", over.size, count), graph.const(0)), True))
        one = graph.binary("//", over.size, count)
        cuts = [Host(one if k == 1 else graph.binary("*", graph.const(k), one)) for k in range(1, asked)]
    bounds = itertools.pairwise([None, *cuts, None])
    return Items(tuple(at_axis(lift, x, axis, slice(*pair)) for pair in bounds), True)


def _by_size(lift: Lifting, x: Any, sections: Any, axis: Any = None) -> Items | Listing:
    """`torch.split`: a number is the size of every part, a list has the sizes."""
    return split(lift, x, sections, axis, is_size=True)


def _by_count_or_sizes(
    lift: Lifting, x: Any = None, sections: Any = None, axis: Any = None, value: Any = None
) -> Items | Listing:
    """`tf.split`: a number is how many parts, a list has the sizes."""
    is_count = isinstance(sections, Host) or (isinstance(sections, Known) and isinstance(sections.value, int))
    return split(lift, x if value is None else value, sections, axis, is_size=not is_count)


def _narrow(lift: Lifting, x: Any, axis: Any, start: Any, length: Any) -> Tensor:
    """`torch.narrow(x, dim, start, length)`."""
    return at_axis(lift, x, axis, _part(lift, start, length))


def _slice(lift: Lifting, x: Any, start_indices: Any, shape: Any) -> Tensor:
    """`tf.slice(x, begin, size)` and `ops.slice`; a size of -1 is the rest."""
    if not all(isinstance(value, (Known, Items)) for value in (start_indices, shape)):
        raise Refused("A slice of which the bounds are not known.", "FO108")
    parts = zip(sizes_of(lift, start_indices), sizes_of(lift, shape), strict=True)
    return index(lift, tensor(lift, x), [_part(lift, *pair) for pair in parts])


def _part(lift: Lifting, start: Any, length: Any) -> slice:
    is_first = isinstance(start, Known) and start.value == 0
    if isinstance(length, Known) and length.value == -1:
        return slice(None if is_first else start, None)
    if isinstance(start, Known) and isinstance(length, Known):
        return slice(start, number(lift, start.value + length.value))
    if isinstance(start, (Known, Host)) and isinstance(length, (Known, Host)):
        return slice(start, length if is_first else Host(lift.graph.binary("+", start.node, length.node)))
    return slice(start, binary(lift, "+", start, length))


SPLITTING: dict[str, Callable[..., Any]] = {
    "split": split, "chunk": split, "split_by_size": _by_size, "split_by_count_or_sizes": _by_count_or_sizes,
    "select_one": at_axis, "narrow": _narrow, "slice": _slice,
}  # fmt: skip
