"""Values that the user's code reads on the host: they stay on the device, and lose their gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.lifted_values import Items, Listing, Tensor
from flatout.vectorize.arrays.lifting import Lifting


def on_host(lift: Lifting, value: Any) -> Any:
    """A value as the user's code reads it: a Python or NumPy number, through which no gradient flows."""
    if isinstance(value, Items):
        return Items(tuple(on_host(lift, item) for item in value.values), value.is_list)
    if isinstance(value, Listing):
        return Listing(on_host(lift, value.element), value.axes, value.keep)
    if not isinstance(value, Tensor) or value.kind == "number":
        return value
    lift.changes.add("FO201")
    if value.is_host or not lift.carries_gradient(value.node) or value.kind in ("int", "bool"):
        return replace(value, is_host=True)
    return replace(value, node=lift.graph.call("ops.stop_gradient", value.node), is_host=True)
