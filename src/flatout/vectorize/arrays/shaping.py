"""Operations that make, join, rearrange, cut and measure arrays, on lifted tensors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from .algebra import align, front, is_one, number, opened, operand, operated, size_of
from .indexing import index, listing_to_tensor, positions
from .lifted_values import (
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Places,
    Plain,
    Read,
    Refused,
    Size,
    Tensor,
    Whole,
    WrongRank,
)
from .lifting import Lifting
from .reductions import counted, reduce


def tensor(lift: Lifting, value: Any) -> Tensor:
    """Anything array-like, lists included, as a tensor."""
    if isinstance(value, Listing):
        return listing_to_tensor(lift, value)
    if isinstance(value, Items):
        return stack(lift, value)
    return operand(lift, value)


def axes_of(x: Tensor, axis: Plain) -> tuple[Axis, ...]:
    """The inner dimensions that an `axis` argument names."""
    if axis is None:
        return x.inner
    chosen = []
    for place in axis if isinstance(axis, (list, tuple)) else (axis,):
        if not -x.rank <= place < x.rank:
            raise WrongRank(f"Axis {place} of an array of rank {x.rank}.")
        chosen.append(x.inner[place])
    return tuple(chosen)


def axis_of(x: Tensor, axis: Plain, default: int = 0) -> Axis:
    """The one dimension that an `axis` argument names."""
    (over,) = axes_of(x, default if axis is None else axis)
    return over


def at_axis(lift: Lifting, x: Tensor, axis: Plain, indices: Any) -> Tensor:
    """`x[..., indices, ...]` at the dimension that an `axis` argument names."""
    return index(lift, x, [*[slice(None)] * x.inner.index(axis_of(x, axis)), indices])


def sizes_of(lift: Lifting, *given: Any) -> tuple[Any, ...]:
    """Sizes that are given one by one, or as one tuple; all are known when the loss is traced."""
    first = opened(lift, given[0]) if given else None
    sizes = (*first.values, *given[1:]) if isinstance(first, Items) else given
    if any(not isinstance(size, (Known, Host)) for size in sizes):
        raise Refused("An array is made, or reshaped, with a size that depends on the data.", "FO108")
    return sizes


def stack(lift: Lifting, x: Any, axis: Plain = 0, **rest: Any) -> Tensor:
    if isinstance(x, Listing):
        made = listing_to_tensor(lift, x)
        if axis == 0 or made.is_loose:
            return made
        first, *others = made.inner
        others.insert(axis if axis >= 0 else axis + made.rank, first)
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
    where_to = axis if axis >= 0 else axis + pattern.rank + 1
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


def concatenate(lift: Lifting, x: Any, axis: Plain = None, **rest: Any) -> Tensor:
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


def _rows_of_one(lift: Lifting, x: Listing, axis: Plain) -> Tensor | None:
    """Arrays that have one row each, joined along it: as many rows as there are arrays."""
    element = tensor(lift, x.element)
    if not element.rank or len(x.axes) != 1 or x.keep is not None:
        return None
    over = axis_of(element, axis)
    if not is_one(over.size):
        return None
    each = at_axis(lift, element, axis, number(lift, 0))
    return stack(lift, replace(x, element=each), element.inner.index(over))


def expand(lift: Lifting, x: Tensor, axis: Plain) -> Tensor:
    return index(lift, x, [*[slice(None)] * (axis if axis >= 0 else axis + x.rank + 1), None])


def squeeze(lift: Lifting, x: Tensor, axis: Plain = None) -> Tensor:
    if axis is not None:
        return at_axis(lift, x, axis, number(lift, 0))
    if any(one.size is None or one.size.kind != "const" for one in x.inner):
        raise Refused("squeeze() without an axis depends on the sizes.")
    return index(lift, x, [number(lift, 0) if is_one(one.size) else slice(None) for one in x.inner])


def transpose(lift: Lifting, x: Tensor, axes: Plain = None, *more: Plain) -> Tensor:
    if axes is None:
        return replace(x, inner=x.inner[::-1])
    places = list(axes) if isinstance(axes, (list, tuple)) else [axes, *more]
    if sorted(place % x.rank for place in places) != list(range(x.rank)):
        raise WrongRank("The dimensions of an array are put into an order that does not fit it.")
    return replace(x, inner=tuple(x.inner[place] for place in places))


def swap(lift: Lifting, x: Tensor, first: Plain, second: Plain) -> Tensor:
    inner = list(x.inner)
    inner[first], inner[second] = inner[second], inner[first]
    return replace(x, inner=tuple(inner))


def flatten(lift: Lifting, x: Tensor, shape: Any = None, *more: Any) -> Tensor:
    """`reshape`, `ravel` and `flatten`; to one dimension it is allowed where a whole reduction follows."""
    sizes = () if shape is None else sizes_of(lift, shape, *more)
    if not sizes or (len(sizes) == 1 and isinstance(sizes[0], Known) and sizes[0].value == -1):
        return x if x.rank == 1 else replace(x, is_loose=True)
    return _reshaped(lift, x, sizes)


def _reshaped(lift: Lifting, x: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    """The inner dimensions in another shape; those of loops stay in front."""
    if x.valid is not None or x.is_loose:
        raise Refused("A selection is reshaped.", "FO108")
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


def filled(lift: Lifting, shape: Any = None, *more: Any, how: str, **rest: Any) -> Tensor:
    """`ops.zeros`, `ops.ones`."""
    # torch takes sizes one by one; what else may come second is a type.
    more = tuple(size for size in more if isinstance(size, Host) or type(getattr(size, "value", None)) is int)
    sizes = () if shape is None else sizes_of(lift, shape, *more)
    inner = tuple(Axis("made", size.node) for size in sizes)
    node = lift.graph.call(f"ops.{how}", lift.graph.sequence(tuple(size.node for size in sizes)))
    return Tensor(node, inner, inner, "float")


def arange(lift: Lifting, start: Size, stop: Size | None = None, **rest: Any) -> Tensor:
    if stop is None:
        axis = Axis("place", start.node)
        return replace(positions(lift, axis), inner=(axis,))
    if not all(isinstance(bound, Host) or isinstance(bound.value, int) for bound in (start, stop)):
        raise Refused("arange() with bounds that are no whole numbers is not known here.")
    axis = Axis("place", lift.graph.binary("-", stop.node, start.node))
    return Tensor(lift.graph.call("ops.arange", start.node, stop.node), (axis,), (axis,), "int", is_host=True)


def linspace(lift: Lifting, start: Size, stop: Size, num: Size) -> Tensor:
    axis = Axis("place", num.node)
    node = lift.graph.call("ops.linspace", start.node, stop.node, num.node)
    return Tensor(node, (axis,), (axis,), "float", is_host=True)


def eye(lift: Lifting, size: Size, **rest: Any) -> Tensor:
    inner = (Axis("row", size.node), Axis("column", size.node))
    return Tensor(lift.graph.call("ops.eye", size.node), inner, inner, "float")


def unstack(lift: Lifting, x: Tensor, axis: Plain = None, **rest: Any) -> Tensor:
    over = axis_of(x, axis)
    return replace(x, inner=(over, *(other for other in x.inner if other is not over)))


def diagonal(lift: Lifting, x: Whole, offset: Plain = 0) -> Tensor:
    """The diagonal of a square matrix."""
    x = front(lift, x)
    if offset or x.rank != 2:
        raise WrongRank("Another diagonal than that of a matrix is not known here.")
    node = lift.graph.call("ops.diagonal", x.node, axis1=lift.graph.const(-2), axis2=lift.graph.const(-1))
    # Of a matrix with fewer columns than rows it is as long as a row.
    size = x.inner[0].size if x.inner[0].size is x.inner[1].size else lift.graph.size(node, len(x.dims) - 2)
    fresh = Axis("diagonal", size)
    return replace(x, node=node, dims=(*x.axes, fresh), inner=(fresh,), position=None, domain=None)


def trace(lift: Lifting, x: Whole, offset: Plain = 0) -> Tensor:
    entries = diagonal(lift, x, offset)
    return reduce(lift, "sum", entries, entries.inner)


def split(lift: Lifting, x: Tensor, sections: Any, axis: Plain = None, *, is_size: bool = False) -> Items | Listing:
    """`ops.split`, `np.split`, `torch.chunk`: `sections` is how many parts there are, or the places where to cut.

    With `is_size` it has the sizes of the parts, as torch's has, and TensorFlow's where it is a list.
    """
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
            lift.guard(graph.binary("==", sections.node, over.size))
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
        lift.stays(graph.binary("%", over.size, count), 0)
        one = graph.binary("//", over.size, count)
        cuts = [Host(one if k == 1 else graph.binary("*", graph.const(k), one)) for k in range(1, asked)]
    bounds = itertools.pairwise([None, *cuts, None])
    return Items(tuple(at_axis(lift, x, axis, slice(*pair)) for pair in bounds), True)


def split_as_tensorflow(
    lift: Lifting, x: Tensor | None = None, sections: Any = None, axis: Plain = None, value: Tensor | None = None
) -> Items | Listing:
    """`tf.split`: a number is how many parts, a list has the sizes."""
    is_count = isinstance(sections, Host) or (isinstance(sections, Known) and isinstance(sections.value, int))
    return split(lift, x or value, sections, axis, is_size=not is_count)  # type: ignore[arg-type]


def narrow(lift: Lifting, x: Tensor, axis: Plain, start: Any, length: Any) -> Tensor:
    """`torch.narrow(x, dim, start, length)`."""
    return at_axis(lift, x, axis, _part(lift, start, length))


def sliced(lift: Lifting, x: Tensor, start_indices: Any, shape: Any) -> Tensor:
    """`tf.slice(x, begin, size)` and `ops.slice`; a size of -1 is the rest."""
    starts, sizes = (opened(lift, given).values for given in (start_indices, shape))
    return index(lift, x, [_part(lift, *pair) for pair in zip(starts, sizes, strict=True)])


def _part(lift: Lifting, start: Any, length: Any) -> slice:
    first = None if isinstance(start, Known) and start.node is lift.graph.const(0) else start
    is_rest = isinstance(length, Known) and length.value == -1
    return slice(first, None if is_rest else operated(lift, "+", start, length))


def shape(lift: Lifting, value: Tensor) -> Items:
    """The sizes that the user's code sees, as numbers; how many are selected, as a tensor."""
    chosen = () if value.valid is None else tuple(axis for axis in value.inner if axis in value.valid.dims)
    if value.is_loose or chosen not in ((), value.inner[:1]):
        raise Refused("The shape of a selection depends on the data.", "FO108")
    first = [] if value.valid is None or not chosen else [counted(lift, value.valid, chosen)]
    return Items((*first, *(size_of(lift, axis.size) for axis in value.inner[len(first) :])))  # type: ignore[arg-type]


def _shape(lift: Lifting, value: Any) -> Any:
    if isinstance(value, Places):
        count = counted(lift, value.mask, value.mask.inner)
        return Items((count, number(lift, value.mask.rank)))
    return shape(lift, tensor(lift, value))


def _size(lift: Lifting, value: Any) -> Any:
    if isinstance(value, Tensor) and value.valid is not None and set(value.valid.dims) & set(value.inner):
        return counted(lift, value.valid, value.inner)
    whole = tensor(lift, value)
    sizes = shape(lift, replace(whole, is_loose=False) if whole.valid is None else whole).values
    return functools.reduce(partial(operated, lift, "*"), sizes)


def _rank(lift: Lifting, x: Tensor) -> Known:
    return number(lift, x.rank)


def _read(lift: Lifting, x: Read) -> Tensor:
    return x


SHAPES: dict[str, Callable[..., Any]] = {
    "shape": _shape, "size": _size, "numel": _size, **dict.fromkeys(("rank", "ndim", "dim"), _rank),
    "convert_to_numpy": _read,
}  # fmt: skip
