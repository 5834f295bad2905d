"""Attributes of lifted values: shapes, `.T`, columns of a table; other names become methods, called later."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import binary, cast
from flatout.vectorize.arrays.lifted_values import (
    Axis,
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
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.lookups.lookups import is_frame, is_series


def attribute(run: Any, value: Any, name: str) -> Any:
    """`value.name`."""
    graph = run.lift.graph
    if isinstance(value, Tensor):
        if name == "shape":
            return shape(value, run.lift)
        if name == "ndim":
            return Known(value.rank, graph.const(value.rank))
        if name in ("T", "mT"):
            return replace(value, inner=value.inner[::-1])
        if name == "dtype":
            return Known("dtype", graph.make("attribute", value.node, "dtype"), "dtype")
        if name == "data":
            return detached(run, value)
        if name == "values":
            return replace(value, is_series=False)
        return Method(value, name)
    if isinstance(value, Match):
        if name in ("iloc", "values", "iat", "item", "squeeze", "to_numpy"):
            return Method(value, name)
        node = graph.const(name)
        return pick_column(run, value, Known(name, node))
    if isinstance(value, (Record, Groups)):
        return value.columns[name] if isinstance(value, Record) and name in value.columns else Method(value, name)
    if isinstance(value, TableRow):
        return Method(value, name) if name in ("item", "to_dict") else _column(run, value, name)
    if isinstance(value, Items) and name in ("values", "indices") and len(value.values) == 2:
        return value.values[name == "indices"]  # Of what torch's max, min, sort and topk give.
    if isinstance(value, Places) and name == "shape":
        return Items(
            (counted(run.lift, value.mask, value.mask.inner), Known(value.mask.rank, graph.const(value.mask.rank)))
        )
    if isinstance(value, (Items, Listing, Bag, Method, Places)):
        return Method(value, name)
    if isinstance(value, Sum) and name == "write":
        return Method(value, name)  # Of a TensorArray, which is filled as a list is.
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is read while a loop carries it from step to step.", "FO106")
    if isinstance(value, Host):
        raise Refused(f"The attribute {name!r} of a number.")
    if isinstance(value, Known):
        return _of_static(run, value, name)
    raise Refused(f"The attribute {name!r} of something that has none.")


def shape(value: Tensor, lift: Lifting | None = None) -> Items:
    """The sizes that the user's code sees, as numbers; how many are selected, as a tensor."""
    if value.valid is not None and set(value.valid.dims) & set(value.inner):
        chosen = [axis for axis in value.inner if axis in value.valid.dims]
        if lift is None or value.is_loose or chosen != [value.inner[0]]:
            raise Refused("The shape of a selection depends on the data.", "FO108")
        rest = tuple(_size(axis.size) for axis in value.inner[1:])
        return Items((counted(lift, value.valid, value.inner[:1]), *rest))
    if value.is_loose:
        raise Refused("The shape of a selection depends on the data.", "FO108")
    return Items(tuple(_size(axis.size) for axis in value.inner))


def counted(lift: Lifting, keep: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """How many elements are selected."""
    total = replace(cast(lift, keep, "float32"), inner=())
    for axis in axes:
        if axis in total.dims:
            total = reduce(lift, "sum", total, (axis,))
        else:
            total = binary(lift, "*", total, Host(axis.size))  # type: ignore[arg-type]
    return replace(total, is_host=True)


def _size(node: Any) -> Any:
    if node.kind == "const":
        return Known(int(node.parts[0]), node)
    return Host(node)


def detached(run: Any, value: Tensor) -> Tensor:
    """An array that carries no gradient."""
    if not run.lift.carries_gradient(value.node):
        return value
    return replace(value, node=run.lift.graph.call("ops.stop_gradient", value.node))


def pick_column(run: Any, match: Match, name: Known) -> Any:
    from .subscripts import pick

    return pick(run, match, [name], False)


def _column(run: Any, row: TableRow, name: str) -> Any:
    from .subscripts import column_of_row

    return column_of_row(run, row, name)


def _of_static(run: Any, value: Known, name: str) -> Any:
    graph = run.lift.graph
    if (is_frame(value) or is_series(value)) and name in ("loc", "iloc", "at", "iat", "values", "get", "map"):
        if name == "values":
            return Known(value.value.to_numpy(), graph.make("attribute", value.node, "values"))
        return Method(value, name)
    if isinstance(value.value, (dict, list)) and name in (
        "get",
        "items",
        "keys",
        "values",
        "append",
        "index",
        "update",
    ):
        return Method(value, name)
    try:
        found = getattr(value.value, name)
    except AttributeError as error:
        raise Refused(f"There is no attribute {name!r}.") from error
    node = graph.make("attribute", value.node, name)
    if found is None or isinstance(found, bool):
        node = graph.const(found) if isinstance(value.value, types.ModuleType) else node
    path = f"{value.value.__name__}.{name}" if isinstance(value.value, types.ModuleType) else None
    if isinstance(found, types.MethodType) and not isinstance(value.value, types.ModuleType):
        return Method(value, name)
    if (
        isinstance(value.value, type)
        and name == "apply"
        and any("autograd" in str(base) for base in value.value.__mro__)
    ):
        raise Refused("A function has a gradient that the user defined: it cannot be derived from the body.", "FO101")
    if (
        callable(found)
        and not isinstance(value.value, (types.ModuleType, type))
        and not isinstance(found, types.FunctionType)
    ):
        return Method(value, name)
    return Known(found, node, path)
