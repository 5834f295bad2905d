"""Arrays that are cut into parts: `split`, `chunk`, `select`, `narrow`, `tf.slice`, in each library's spelling."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .algebra import binary, number
from .indexing import index
from .lifted_values import Axis, Host, Items, Known, Listing, Refused, Tensor, WrongRank
from .lifting import Lifting
from .ragged import positions
from .shaping import axes_of, tensor


def split(lift: Lifting, x: Any, sections: Any, axis: Any = None, *, is_size: bool = False) -> Items | Listing:
    """`ops.split`, `np.split`, `torch.chunk`: as many parts of the same size, parts of given sizes, or single slices.

    Args:
        lift: What is known of the function.
        x: The array.
        sections: How many parts; a list: the places where to cut.
        axis: Along which dimension.
        is_size: Whether `sections` gives the sizes of the parts, as torch's does, and TensorFlow's where it is a list.
    """
    x = tensor(lift, x)
    if isinstance(sections, Items) and all(isinstance(value, Known) for value in sections.values):
        sections = Known([value.value for value in sections.values], sections.values[0].node)
    (over,) = axes_of(x, axis if axis is not None else number(lift, 0))
    place = x.inner.index(over)
    if over.size is None or not isinstance(sections, (Known, Host)):
        raise Refused("An array is split into a number of parts that depends on the data.", "FO108")

    def part(start: Any, stop: Any) -> Tensor:
        return index(lift, x, [*[slice(None)] * place, slice(start, stop)])

    if isinstance(sections, Known) and isinstance(sections.value, (list, tuple)):
        cuts = list(itertools.accumulate(sections.value))[:-1] if is_size else list(sections.value)
        bounds = [None, *(number(lift, cut) for cut in cuts), None]
        return Items(tuple(part(*pair) for pair in itertools.pairwise(bounds)), True)
    is_single = isinstance(sections, Known) and sections.value == 1 if is_size else isinstance(sections, Host)
    if is_single:
        if not is_size and sections.node is not over.size:
            lift.guards.append((lift.graph.binary("==", sections.node, over.size), True))
        loop = Axis("part", over.size)
        named = positions(lift, loop)
        row = index(lift, x, [*[slice(None)] * place, replace(named, position=(loop, 0))])
        return Listing(index(lift, row, [*[slice(None)] * place, None]), (loop,))
    if is_size or not isinstance(sections, Known):
        raise Refused("An array is split into a number of parts that depends on its size.", "FO108")
    graph, count = lift.graph, int(sections.value)
    if over.size.kind == "const":
        if int(over.size.parts[0]) % count:
            raise WrongRank(f"A dimension of {over.size.parts[0]} is split into {count} parts.")
        sizes: list[Any] = [number(lift, int(over.size.parts[0]) // count * k) for k in range(count + 1)]
    else:
        lift.guards.append((graph.binary("==", graph.binary("%", over.size, graph.const(count)), graph.const(0)), True))
        one = graph.binary("//", over.size, graph.const(count))
        sizes = [Host(one if k == 1 else graph.binary("*", graph.const(k), one)) for k in range(count + 1)]
    bounds = [None, *sizes[1:-1], None]
    return Items(tuple(part(*pair) for pair in itertools.pairwise(bounds)), True)


def _by_size(lift: Lifting, x: Any, sections: Any, axis: Any = None) -> Items | Listing:
    """`torch.split`: a number is the size of every part, a list has the sizes."""
    return split(lift, x, sections, axis, is_size=True)


def _by_count_or_sizes(
    lift: Lifting, x: Any = None, sections: Any = None, axis: Any = None, value: Any = None
) -> Items | Listing:
    """`tf.split`: a number is how many parts, a list has the sizes."""
    is_count = isinstance(sections, Host) or (isinstance(sections, Known) and isinstance(sections.value, int))
    return split(lift, x if value is None else value, sections, axis, is_size=not is_count)


def _select(lift: Lifting, x: Any, axis: Any, indices: Any) -> Tensor:
    """`torch.select(x, dim, index)`."""
    x = tensor(lift, x)
    (over,) = axes_of(x, axis)
    return index(lift, x, [*[slice(None)] * x.inner.index(over), indices])


def _narrow(lift: Lifting, x: Any, axis: Any, start: Any, length: Any) -> Tensor:
    """`torch.narrow(x, dim, start, length)`."""
    return _select(lift, x, axis, _part(lift, start, length))


def _slice(lift: Lifting, x: Any, start_indices: Any, shape: Any) -> Tensor:
    """`tf.slice(x, begin, size)` and `ops.slice`; a size of -1 is the rest."""
    starts, lengths = (_listed(lift, value) for value in (start_indices, shape))
    if starts is None or lengths is None or len(starts) != len(lengths):
        raise Refused("A slice of which the bounds are not known.", "FO108")
    return index(lift, tensor(lift, x), [_part(lift, *pair) for pair in zip(starts, lengths, strict=True)])


def _listed(lift: Lifting, value: Any) -> list[Any] | None:
    if isinstance(value, Known) and isinstance(value.value, (list, tuple)):
        return [number(lift, item) for item in value.value]
    return list(value.values) if isinstance(value, Items) else None


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
    "select_one": _select, "narrow": _narrow, "slice": _slice,
}  # fmt: skip
