"""Sizes of lifted values, as the user's code sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import binary, number
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Places, Read, Refused, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import counted
from flatout.vectorize.arrays.shaping import tensor


def shape(lift: Lifting, value: Tensor) -> Items:
    """The sizes that the user's code sees, as numbers; how many are selected, as a tensor."""
    if value.valid is not None and set(value.valid.dims) & set(value.inner):
        chosen = [axis for axis in value.inner if axis in value.valid.dims]
        if value.is_loose or chosen != [value.inner[0]]:
            raise Refused("The shape of a selection depends on the data.", "FO108")
        rest = tuple(_number_of(axis.size) for axis in value.inner[1:])
        return Items((counted(lift, value.valid, value.inner[:1]), *rest))
    if value.is_loose:
        raise Refused("The shape of a selection depends on the data.", "FO108")
    return Items(tuple(_number_of(axis.size) for axis in value.inner))


def _number_of(node: Any) -> Any:
    if node.kind == "const":
        return Known(int(node.parts[0]), node)
    return Host(node)


def _shape(lift: Lifting, value: Any) -> Any:
    if isinstance(value, Places):
        count = counted(lift, value.mask, value.mask.inner)
        return Items((count, number(lift, value.mask.rank)))
    return shape(lift, tensor(lift, value))


def _size(lift: Lifting, value: Any) -> Any:
    if isinstance(value, Places):
        return binary(lift, "*", counted(lift, value.mask, value.mask.inner), number(lift, value.mask.rank))
    if isinstance(value, Tensor) and value.valid is not None and set(value.valid.dims) & set(value.inner):
        return counted(lift, value.valid, value.inner)
    whole = tensor(lift, value)
    sizes = shape(lift, replace(whole, is_loose=False) if whole.valid is None else whole).values
    total = sizes[0]
    for size in sizes[1:]:
        total = Host(lift.graph.binary("*", total.node, size.node))
    return total


def _rank(lift: Lifting, x: Tensor) -> Known:
    return number(lift, x.rank)


def _read(lift: Lifting, x: Read) -> Tensor:
    return x


SHAPES: dict[str, Callable[..., Any]] = {
    "shape": _shape, "size": _size, "numel": _size, **dict.fromkeys(("rank", "ndim", "dim"), _rank),
    "convert_to_numpy": _read,
}  # fmt: skip
