"""Operations that make, join and rearrange arrays, on lifted tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .algebra import align, front, is_one, number, operand
from .expression_graph import Node
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


def _places(axes: Any, *more: Any) -> list[Any]:
    """The numbers that one or several arguments hold; None for one that is not known."""
    if isinstance(axes, Known) and isinstance(axes.value, (tuple, list)):
        return list(axes.value)
    values = axes.values if isinstance(axes, Items) else (axes, *more)
    return [value.value if isinstance(value, Known) else None for value in values]


def stack(lift: Lifting, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    place = axis.value if isinstance(axis, Known) and axis.value is not None else 0
    if isinstance(x, Listing):
        made = listing_to_tensor(lift, x)
        if place == 0 or made.is_loose:
            return made
        place = place if place >= 0 else place + made.rank
        rest_dims = made.inner[1:]
        return replace(made, inner=(*rest_dims[:place], made.inner[0], *rest_dims[place:]))
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Known):
        return operand(lift, x)
    if not isinstance(x, Items) or not x.values:
        raise Refused("Something is stacked that is no list of arrays.")
    parts = [tensor(lift, value) for value in x.values]
    nodes, pattern = align(lift, parts)
    if pattern.valid is not None:
        raise Refused("Selections of elements are stacked.", "FO108")
    fresh = Axis("stacked", lift.graph.const(len(parts)))
    where_to = place if place >= 0 else place + pattern.rank + 1
    at = pattern.dims.index(pattern.inner[where_to]) if where_to < pattern.rank else len(pattern.dims)
    full = [_spread(lift, node, pattern, part) for node, part in zip(nodes, parts, strict=True)]
    node = lift.graph.call("ops.stack", lift.graph.sequence(tuple(full), is_list=True), axis=lift.graph.const(at))
    dims = (*pattern.dims[:at], fresh, *pattern.dims[at:])
    inner = (*pattern.inner[:where_to], fresh, *pattern.inner[where_to:])
    return Tensor(node, dims, inner, parts[0].kind, all(part.is_host for part in parts))


def _spread(lift: Lifting, node: Node, pattern: Tensor, part: Tensor) -> Node:
    if len(part.dims) == len(pattern.dims):
        return node
    sizes = tuple(axis.size for axis in pattern.dims)
    return lift.graph.call("ops.broadcast_to", node, lift.graph.sequence(sizes))  # type: ignore[arg-type]


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
    (over,) = axes_of(parts[0], axis if axis is not None else number(lift, 0))
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
    (over,) = axes_of(element, axis if axis is not None else number(lift, 0))
    if not is_one(over.size):
        return None
    place = element.inner.index(over)
    each = index(lift, element, [*[slice(None)] * place, number(lift, 0)])
    return stack(lift, replace(x, element=each), number(lift, place))


def expand(lift: Lifting, x: Any, axis: Any) -> Tensor:
    x = tensor(lift, x)
    place = axis.value if axis.value >= 0 else axis.value + x.rank + 1
    return index(lift, x, [*[slice(None)] * place, None])


def squeeze(lift: Lifting, x: Any, axis: Any = None) -> Tensor:
    x = tensor(lift, x)
    if axis is None:
        if any(one.size is None or one.size.kind != "const" for one in x.inner):
            raise Refused("squeeze() without an axis depends on the sizes.")
        ones = [at for at, one in enumerate(x.inner) if is_one(one.size)]
        return index(lift, x, [number(lift, 0) if at in ones else slice(None) for at in range(x.rank)])
    (over,) = axes_of(x, axis)
    return index(lift, x, [*[slice(None)] * x.inner.index(over), number(lift, 0)])


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
    sizes = () if shape is None else (*(shape.values if isinstance(shape, Items) else (shape,)), *more)
    numbers = _places(*sizes) if sizes else []
    if numbers in ([], [-1]):
        return x if x.rank == 1 else replace(x, is_loose=True)
    return _reshaped(
        lift, x, [size if known is None else number(lift, known) for size, known in _paired(sizes, numbers)]
    )


def _paired(sizes: Sequence[Any], numbers: list[Any]) -> list[tuple[Any, Any]]:
    """Sizes with what is known of them; one tuple of constants is as many sizes."""
    return list(zip(sizes, numbers, strict=True)) if len(sizes) == len(numbers) else [(None, one) for one in numbers]


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
        sizes = shape.values if isinstance(shape, Items) else () if shape is None else (shape,)
        if isinstance(shape, Known) and isinstance(shape.value, (tuple, list)):
            sizes = tuple(number(lift, size) for size in shape.value)
        # torch takes sizes one by one; what else may come second is a type.
        sizes += tuple(size for size in more if isinstance(size, Host) or type(getattr(size, "value", None)) is int)
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
    (over,) = axes_of(x, axis if axis is not None else number(lift, 0))
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
