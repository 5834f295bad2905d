"""Slices whose bounds depend on the data: all elements stay, and a mask says which of them there are."""

from __future__ import annotations

from dataclasses import replace

from .algebra import binary, both, number, operand, where
from .expression_graph import Node
from .lifted_values import Axis, Host, Refused, Tensor
from .lifting import Lifting


def ragged(lift: Lifting, tensor: Tensor, axis: Axis, item: slice) -> Tensor:
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
            bound = _from_the_end(lift, bound, axis)
        mask = both(lift, mask, binary(lift, symbol, positions(lift, axis), bound))
    assert mask is not None
    start, stop = (None if bound is None else operand(lift, bound).node for bound in (item.start, item.stop))
    lift.slices[mask.node] = start, stop
    return replace(tensor, valid=replace(mask, inner=()), position=None)


def _from_the_end(lift: Lifting, bound: Tensor, axis: Axis) -> Tensor:
    """A bound of a slice, of which Python counts a negative one from the end."""
    assert axis.size is not None
    below = binary(lift, "<", bound, number(lift, 0))
    behind = binary(lift, "+", bound, Host(axis.size))
    return replace(where(lift, below, behind, bound), kind=bound.kind, is_host=bound.is_host)


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
