"""Attributes of lifted values: shapes, `.T`, columns of a table; other names become methods, called later."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.lifted_values import (
    Bag,
    Groups,
    Host,
    Items,
    Known,
    Listing,
    Match,
    Method,
    Places,
    Record,
    Refused,
    Sum,
    TableRow,
    Tensor,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.lookups.lookups import is_frame, is_series

from .shapes import SHAPES
from .subscripts import column_of_row, pick


def attribute(lift: Lifting, value: Any, name: str) -> Any:
    """`value.name`."""
    graph = lift.graph
    if isinstance(value, Tensor):
        if name in ("shape", "ndim"):
            return SHAPES[name](lift, value)
        if name in ("T", "mT"):
            return replace(value, inner=value.inner[::-1])
        if name == "dtype":
            return Known("dtype", graph.make("attribute", value.node, "dtype"), "dtype")
        if name == "data":
            return detached(lift, value)
        if name == "values":
            return replace(value, is_series=False)
        return Method(value, name)
    if isinstance(value, Match):
        if name in ("iloc", "values", "iat", "item", "squeeze", "to_numpy"):
            return Method(value, name)
        node = graph.const(name)
        return pick(lift, value, [Known(name, node)], False)
    if isinstance(value, (Record, Groups)):
        return value.columns[name] if isinstance(value, Record) and name in value.columns else Method(value, name)
    if isinstance(value, TableRow):
        return Method(value, name) if name in ("item", "to_dict") else column_of_row(lift, value, name)
    if isinstance(value, Items) and name in ("values", "indices") and len(value.values) == 2:
        return value.values[name == "indices"]  # Of what torch's max, min, sort and topk give.
    if isinstance(value, Places) and name == "shape":
        return SHAPES[name](lift, value)
    if isinstance(value, (Items, Listing, Bag, Method, Places)):
        return Method(value, name)
    if isinstance(value, Sum) and name == "write":
        return Method(value, name)  # Of a TensorArray, which is filled as a list is.
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is read while a loop carries it from step to step.", "FO106")
    if isinstance(value, Host):
        raise Refused(f"The attribute {name!r} of a number.")
    if isinstance(value, Known):
        return _of_known(lift, value, name)
    raise Refused(f"The attribute {name!r} of something that has none.")


def detached(lift: Lifting, value: Tensor) -> Tensor:
    """An array that carries no gradient."""
    if not lift.carries_gradient(value.node):
        return value
    return replace(value, node=lift.graph.call("ops.stop_gradient", value.node))


def _of_known(lift: Lifting, value: Known, name: str) -> Any:
    graph = lift.graph
    if (is_frame(value) or is_series(value)) and name in ("loc", "iloc", "at", "iat", "values", "get", "map"):
        if name == "values":
            return Known(value.value.to_numpy(), graph.make("attribute", value.node, "values"))
        return Method(value, name)
    if isinstance(value.value, (dict, list)) and callable(getattr(value.value, name, None)):
        return Method(value, name)
    try:
        found = getattr(value.value, name)
    except AttributeError as error:
        raise Refused(f"There is no attribute {name!r}.") from error
    node = graph.make("attribute", value.node, name)
    if found is None or isinstance(found, bool):
        node = graph.const(found) if isinstance(value.value, types.ModuleType) else node
    path = f"{value.value.__name__}.{name}" if isinstance(value.value, types.ModuleType) else None
    if isinstance(value.value, type) and name == "apply" and "autograd" in str(value.value.__mro__):
        raise Refused("A function has a gradient that the user defined: it cannot be derived from the body.", "FO101")
    is_bound = isinstance(found, types.MethodType) and not isinstance(value.value, types.ModuleType)
    is_method = callable(found) and not isinstance(value.value, (types.ModuleType, type))
    if is_bound or (is_method and not isinstance(found, types.FunctionType)):
        return Method(value, name)
    return Known(found, node, path)
