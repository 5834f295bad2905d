"""Python's own functions of numbers, lists and sets, on lifted values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, front, number, operand, relabelled
from flatout.vectorize.arrays.exactness import fits, note_blurred
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Host,
    Items,
    Listing,
    Places,
    Range,
    Record,
    Refused,
    Several,
    Static,
    Tensor,
    Unknown,
    WrongRank,
)
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.interpreter import folds, iterating
from flatout.vectorize.interpreter.iterated_axes import Stream, steps_of, stream
from flatout.vectorize.interpreter.loop_totals import join, over_axes
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.lookups.lookups import distinct, members

from . import host_calls, operations, ordering
from .attributes import counted, shape


def _float(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, Host):
        return Host(run.lift.graph.call("float", value.node))
    if isinstance(value, Static):
        return Static(float(value.value), run.lift.graph.call("float", value.node))
    if not isinstance(value, Tensor):
        raise Refused("float() of something that is no number.", "FO201")
    if value.rank:
        raise WrongRank("float() of an array of more than one value.")
    value = on_host(run, value)
    return replace(value, is_wide=True) if value.kind in ("float", "any") else cast(run.lift, value, "float32")


def _int(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, (Host, Static)):
        node = run.lift.graph.call("int", value.node)
        return Host(node) if isinstance(value, Host) else Static(int(value.value), node)
    if not isinstance(value, Tensor):
        raise Refused("int() of something that is no number.", "FO201")
    if value.rank:
        raise WrongRank("int() of an array of more than one value.")
    value = on_host(run, value)
    note_blurred(run.lift, value)
    if value.domain:
        run.lift.hints.append(("whole", value.domain))
    return value if value.kind in ("int",) else replace(cast(run.lift, value, "int32"), is_host=True)


def _bool(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    condition = run.truth(args[0])
    return number(run.lift, condition) if isinstance(condition, bool) else condition


def _len(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    lift = run.lift
    if isinstance(value, Items):
        return number(lift, len(value.values))
    if isinstance(value, Tensor):
        if not value.rank:
            raise WrongRank("len() of a number.")
        if value.valid is not None and value.inner[0] in value.valid.dims:
            return counted(lift, value.valid, tuple(a for a in value.inner if a in value.valid.dims))
        return shape(value).values[0]
    if isinstance(value, Listing):
        if value.keep is not None:
            return counted(lift, value.keep, value.axes)
        node, *more = (steps_of(lift, axis.size) for axis in value.axes)  # type: ignore[arg-type]
        for size in more:
            node = lift.graph.binary("*", node, size)
        return Host(node)
    if isinstance(value, Bag):
        return members(lift, value.entries, value.others)
    if isinstance(value, Places):
        return counted(lift, value.mask, value.mask.inner)
    if isinstance(value, Range):
        flow = stream(lift, value)
        assert isinstance(flow, Stream)
        size = steps_of(lift, flow.axes[0].size)  # type: ignore[arg-type]
        return Host(size) if flow.keep is None else counted(lift, flow.keep, flow.axes)  # type: ignore[arg-type]
    if isinstance(value, Static):
        return Static(len(value.value), lift.graph.call("len", value.node))
    raise Refused("len() of something that is no list.")


def _reducing(how: str) -> Callable[..., Any]:
    """`sum`, `max`, `min`, `any`, `all` of Python."""

    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        lift = run.lift
        if len(args) > 1 and how in ("max", "min"):
            return _largest(run, how, args)
        value = args[0]
        if how in ("max", "min") and "key" in kwargs:
            return ordering.extreme_by(run, how, kwargs.pop("key"), value)
        begin = args[1] if len(args) > 1 else kwargs.pop("start", None)
        if set(kwargs) - {"default"}:
            raise Refused(f"{how}() with further arguments.")
        if isinstance(value, (Range, Several)):
            flow = stream(lift, value)
            value = flow if isinstance(flow, Items) else Listing(flow.element, flow.axes, flow.keep)
        if isinstance(value, Items):
            total = value.values[0]
            for item in value.values[1:]:
                total = join(lift, how, total, item)
            return total if begin is None else join(lift, how, begin, total)
        if isinstance(value, Listing):
            total = _over_listing(run, how, value)
        elif isinstance(value, Tensor):
            if value.rank != 1 and how in ("max", "min", "any", "all"):
                raise WrongRank(f"{how}() of an array of rank {value.rank}.")
            total = reduce(lift, how, value, value.inner[:1])
        elif isinstance(value, Static):
            python: Any = {"sum": sum, "max": max, "min": min, "any": any, "all": all}[how]
            return Static(python(value.value), lift.graph.call(how, value.node))
        else:
            raise Refused(f"{how}() of something that is no list.")
        return total if begin is None else join(lift, "sum", begin, total)

    return function


def _over_listing(run: Any, how: str, listing: Listing) -> Any:
    element = operand(run.lift, listing.element)
    if how in ("any", "all"):
        condition = run.truth(element)
        element = condition if isinstance(condition, Tensor) else element
        stacked = listing_to_tensor(run.lift, Listing(element, listing.axes, listing.keep))
        return reduce(run.lift, how, stacked, stacked.inner)
    if element.kind == "bool":
        element = cast(run.lift, element, "float32")
    return over_axes(run.lift, how, element, Stream(listing.axes, element, listing.keep))


def _largest(run: Any, how: str, args: list[Any]) -> Any:
    graph = run.lift.graph
    if all(isinstance(value, Static) for value in args):
        python: Any = {"max": max, "min": min}[how]
        return Static(python(value.value for value in args), graph.call(how, *(value.node for value in args)))
    if all(isinstance(value, (Static, Host)) for value in args):
        return Host(graph.call(how, *(value.node for value in args)))
    total = args[0]
    for value in args[1:]:
        total = elementwise(run.lift, {"max": "maximum", "min": "minimum"}[how], (total, value), "any")
    is_wide = any(isinstance(value, Tensor) and (value.is_wide or value.is_blurred) for value in args)
    is_rounded = any(
        isinstance(value, Static) and isinstance(value.value, float) and not fits(value.value) for value in args
    )
    return replace(total, is_blurred=True) if is_wide and is_rounded else total


def _abs(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, Static):
        return Static(abs(value.value), run.lift.graph.call("abs", value.node))
    if isinstance(value, Host):
        return Host(run.lift.graph.call("abs", value.node))
    return operations.apply(run.lift, "abs", [value], {})


def _set(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args:
        raise Refused("A set that is filled in a loop.")
    if isinstance(args[0], Static):
        return Static(set(args[0].value), run.lift.graph.call("set", args[0].node))
    entries = on_host(run, tensor(run.lift, args[0]))
    if entries.rank != 1:
        raise WrongRank(f"A set of an array of rank {entries.rank}.")
    return Bag(entries)


def _dict(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`dict(zip(keys, values))` of constants, and `dict(table)`."""
    if not args and all(isinstance(value, Static) for value in kwargs.values()):
        made = run.lift.graph.make(
            "calling", run.lift.graph.name("dict"), (), tuple((k, v.node) for k, v in kwargs.items())
        )
        return Static({key: value.value for key, value in kwargs.items()}, made)
    if not args:
        return Record(dict(kwargs))
    if len(args) != 1 or kwargs:
        raise Refused("A dict is made of other than constants.")
    (value,) = args
    graph = run.lift.graph
    if isinstance(value, Several) and value.how == "zip" and all(isinstance(one, Static) for one in value.values):
        pairs = graph.call("zip", *(one.node for one in value.values))
        return Static(dict(zip(*(one.value for one in value.values), strict=False)), graph.call("dict", pairs))
    if isinstance(value, Static):
        return Static(dict(value.value), graph.call("dict", value.node))
    raise Refused("A dict is made of other than constants.")


def _distinct(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The values that occur in an array: every entry that has none like it before it. Their order is not kept."""
    counts = kwargs.pop("return_counts", None)
    if kwargs or len(args) != 1:
        raise Refused("unique() with further arguments.", "FO107")
    values = on_host(run, tensor(run.lift, args[0]))
    if values.rank != 1 or values.valid is not None:
        raise WrongRank("unique() of an array that is no vector.")
    run.lift.changes.add("FO107")
    if values.domain:
        run.lift.hints.append(("whole", values.domain))
    found = distinct(run.lift, values)
    if not isinstance(counts, Static) or not counts.value:
        return found
    twin = replace(relabelled(values, {values.inner[0]: Axis("twin", values.inner[0].size)}), inner=())
    same = elementwise(run.lift, "equal", (found.element, twin), "bool", "==")
    number_of = counted(run.lift, same, tuple(axis for axis in twin.dims if axis not in values.axes))
    return Items((found, Listing(number_of, found.axes, found.keep)))


def _distinct_and_places(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`tf.unique(x)`: the values, and for every entry the place of its own, which has no array form here."""
    places = Unknown("The places that tf.unique() gives depend on the order of the values.", "FO107")
    return Items((_distinct(run, args[:1], {}), places))


def _quantile(share: float) -> Callable[..., Any]:
    """`percentile(x, q)` and `quantile(x, q)` of a whole array."""

    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2 or not isinstance(args[1], (Static, Host)):
            raise Refused("A percentile along an axis, or one from the data.", "FO205")
        values = front(run.lift, on_host(run, tensor(run.lift, args[0])))
        if values.valid is not None or (values.axes and values.rank != 1):
            raise Refused("A percentile of a selection, or of several dimensions in a loop.", "FO205")
        run.lift.changes.add("FO205")
        graph = run.lift.graph
        at = graph.binary("/", args[1].node, graph.const(share)) if share != 1 else args[1].node
        node = graph.call("ops.quantile", values.node, at, **({"axis": graph.const(-1)} if values.axes else {}))
        return Tensor(node, values.axes, (), "float", is_host=True)

    return function


def _median(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _quantile(1)(run, [*args, number(run.lift, 0.5)], kwargs)


def _to_host(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return on_host(run, tensor(run.lift, args[0]))


def _shape(run: Any, value: Any) -> Any:
    if isinstance(value, Places):
        count = counted(run.lift, value.mask, value.mask.inner)
        return Items((count, number(run.lift, value.mask.rank)))
    return shape(tensor(run.lift, value), run.lift)


def _size(run: Any, value: Any) -> Any:
    lift = run.lift
    if isinstance(value, Places):
        return binary(lift, "*", counted(lift, value.mask, value.mask.inner), number(lift, value.mask.rank))
    if isinstance(value, Tensor) and value.valid is not None and set(value.valid.dims) & set(value.inner):
        return counted(lift, value.valid, value.inner)
    whole = tensor(run.lift, value)
    sizes = shape(replace(whole, is_loose=False) if whole.valid is None else whole).values
    total = sizes[0]
    for size in sizes[1:]:
        total = Host(run.lift.graph.binary("*", total.node, size.node))
    return total


SHAPES: dict[str, Callable[..., Any]] = {
    "shape": _shape, "size": _size, "numel": _size,
    "rank": lambda run, value: number(run.lift, value.rank), "ndim": lambda run, value: number(run.lift, value.rank),
    "convert_to_numpy": lambda run, value: on_host(run, tensor(run.lift, value)),
}  # fmt: skip
HANDLERS: dict[str, Callable[..., Any]] = {
    "builtins.float": _float, "builtins.int": _int, "builtins.bool": _bool, "builtins.len": _len,
    "builtins.sum": _reducing("sum"), "builtins.max": _reducing("max"), "builtins.min": _reducing("min"),
    "builtins.any": _reducing("any"), "builtins.all": _reducing("all"), "builtins.abs": _abs,
    "builtins.set": _set, "builtins.dict": _dict,
    "tensorflow.add_n": _reducing("sum"), "tensorflow.math.add_n": _reducing("sum"),
    "tensorflow.TensorArray": lambda run, args, kwargs: Items((), True),
    "keras.ops.convert_to_numpy": _to_host,
    "builtins.sorted": ordering.sorted_values,
    "numpy.unique": _distinct, "torch.unique": _distinct, "tensorflow.unique": _distinct_and_places,
    "numpy.percentile": _quantile(100), "numpy.quantile": _quantile(1), "numpy.median": _median,
    "tensorflow.py_function": lambda run, args, kwargs: _refuse("A call leaves the graph (py_function).", "FO204"),
    "tensorflow.numpy_function": lambda run, args, kwargs: _refuse("A call leaves the graph.", "FO204"),
    **iterating.HANDLERS,
    **folds.HANDLERS,
    **host_calls.HANDLERS,
}  # fmt: skip


def _refuse(reason: str, code: str = "FO101") -> Any:
    raise Refused(reason, code)
