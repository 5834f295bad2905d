"""Python's own functions of numbers, lists and sets, on lifted values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays.algebra import cast, elementwise, front, number, operand, relabelled
from flatout.vectorize.arrays.exact_comparisons import fits, note_blurred
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Host,
    Items,
    Known,
    Listing,
    Places,
    Range,
    Record,
    Refused,
    Several,
    Stream,
    Tensor,
    Unreadable,
    WrongRank,
)
from flatout.vectorize.arrays.ragged import steps_of
from flatout.vectorize.arrays.reductions import counted, reduce
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.lookups.lookups import distinct, members
from flatout.vectorize.loops.iterated_axes import stream
from flatout.vectorize.loops.loop_totals import join, over_axes

from . import operations, ordering
from .reader import Handler, Reader, bound, is_set
from .shapes import shape

_PYTHON: dict[str, Callable[..., Any]] = {
    "float": float, "int": int, "abs": abs, "len": len, "set": set, "dict": dict,
    "sum": sum, "max": max, "min": min, "any": any, "all": all,
}  # fmt: skip


def _on_numbers(run: Reader, name: str, *values: Any) -> Known | Host | None:
    """What a function of Python gives for numbers that are known now, or when the loss is traced; None: for others."""
    if not all(isinstance(value, (Known, Host)) for value in values):
        return None
    node = run.lift.graph.call(name, *(value.node for value in values))
    if all(isinstance(value, Known) for value in values):
        return Known(_PYTHON[name](*(value.value for value in values)), node)
    return Host(node)


def _number(run: Reader, name: str, value: Any) -> Tensor:
    """The one value of an array, as Python has it."""
    if not isinstance(value, Tensor):
        raise Refused(f"{name}() of something that is no number.", "FO201")
    if value.rank:
        raise WrongRank(f"{name}() of an array of more than one value.")
    return on_host(run.lift, value)  # type: ignore[no-any-return]


def _float(run: Reader, x: Any) -> Any:
    known = _on_numbers(run, "float", x)
    if known is not None:
        return known
    value = _number(run, "float", x)
    return replace(value, is_wide=True) if value.kind in ("float", "any") else cast(run.lift, value, "float32")


def _int(run: Reader, x: Any) -> Any:
    known = _on_numbers(run, "int", x)
    if known is not None:
        return known
    value = _number(run, "int", x)
    note_blurred(run.lift, value)
    if value.domain:
        run.lift.hints.append(("whole", value.domain))
    return value if value.kind == "int" else replace(cast(run.lift, value, "int32"), is_host=True)


def _bool(run: Reader, x: Any) -> Any:
    condition = run.truth(x)
    return number(run.lift, condition) if isinstance(condition, bool) else condition


def _abs(run: Reader, x: Any) -> Any:
    known = _on_numbers(run, "abs", x)
    return operations.apply(run.lift, "abs", [x], {}) if known is None else known


def _len(run: Reader, value: Any) -> Any:
    lift = run.lift
    match value:
        case Items():
            return number(lift, len(value.values))
        case Tensor():
            if not value.rank:
                raise WrongRank("len() of a number.")
            if value.valid is not None and value.inner[0] in value.valid.dims:
                return counted(lift, value.valid, tuple(a for a in value.inner if a in value.valid.dims))
            return shape(lift, value).values[0]
        case Range() | Listing():
            flow = stream(run.lift, value)
            assert isinstance(flow, Stream)
            if flow.keep is not None:
                return counted(lift, flow.keep, flow.axes)
            node, *more = (steps_of(lift, axis.size) for axis in flow.axes)  # type: ignore[arg-type]
            for size in more:
                node = lift.graph.binary("*", node, size)
            return Host(node)
        case Bag():
            return members(lift, value.entries, value.others)
        case Places():
            return counted(lift, value.mask, value.mask.inner)
        case Known():
            return _on_numbers(run, "len", value)
    raise Refused("len() of something that is no list.")


def _reducing(how: str) -> Callable[..., Any]:
    """`sum`, `max`, `min`, `any`, `all` of Python."""

    def function(
        run: Reader, value: Any, *more: Any, key: Any = None, start: Any = None, default: Any = None, name: Any = None
    ) -> Any:
        if more and how in ("max", "min"):
            return _largest(run, how, [value, *more])
        if key is not None:
            return ordering.extreme_by(run, how, key, value)
        begin = more[0] if more else start
        if isinstance(value, (Range, Several)):
            flow = stream(run.lift, value)
            value = flow if isinstance(flow, Items) else Listing(flow.element, flow.axes, flow.keep)
        if isinstance(value, Items):
            values = value.values if begin is None else (begin, *value.values)
            total = values[0]
            for item in values[1:]:
                total = join(run.lift, how, total, item)
            return total
        if isinstance(value, Listing):
            total = _over_listing(run, how, value)
        elif isinstance(value, Tensor):
            if value.rank != 1 and how != "sum":
                raise WrongRank(f"{how}() of an array of rank {value.rank}.")
            total = reduce(run.lift, how, value, value.inner[:1])
        elif isinstance(value, Known):
            return _on_numbers(run, how, value)
        else:
            raise Refused(f"{how}() of something that is no list.")
        return total if begin is None else join(run.lift, "sum", begin, total)

    return function


def _over_listing(run: Reader, how: str, listing: Listing) -> Any:
    element = operand(run.lift, listing.element)
    if how in ("any", "all"):
        condition = run.truth(element)
        element = condition if isinstance(condition, Tensor) else element
        stacked = listing_to_tensor(run.lift, Listing(element, listing.axes, listing.keep))
        return reduce(run.lift, how, stacked, stacked.inner)
    if element.kind == "bool":
        element = cast(run.lift, element, "float32")
    return over_axes(run.lift, how, element, Stream(listing.axes, element, listing.keep))


def _largest(run: Reader, how: str, args: list[Any]) -> Any:
    known = _on_numbers(run, how, *args)
    if known is not None:
        return known
    total = args[0]
    for value in args[1:]:
        total = elementwise(run.lift, f"{how}imum", (total, value), "any")
    is_wide = any(isinstance(value, Tensor) and (value.is_wide or value.is_blurred) for value in args)
    numbers = [value.value for value in args if isinstance(value, Known)]
    is_rounded = any(isinstance(value, float) and not fits(value) for value in numbers)
    return replace(total, is_blurred=True) if is_wide and is_rounded else total


def _set(run: Reader, values: Any = None) -> Any:
    if values is None:
        raise Refused("A set that is filled in a loop.")
    if isinstance(values, Known):
        return _on_numbers(run, "set", values)
    entries = on_host(run.lift, tensor(run.lift, values))
    if entries.rank != 1:
        raise WrongRank(f"A set of an array of rank {entries.rank}.")
    return Bag(entries)


def _dict(run: Reader, *args: Any, **words: Any) -> Any:
    """`dict(zip(keys, values))` of constants, and `dict(table)`."""
    graph = run.lift.graph
    if not args and all(isinstance(value, Known) for value in words.values()):
        made = graph.make("calling", graph.name("dict"), (), tuple((key, value.node) for key, value in words.items()))
        return Known({key: value.value for key, value in words.items()}, made)
    if not args:
        return Record(dict(words))
    (value, *_) = args
    if isinstance(value, Several) and value.how == "zip" and all(isinstance(one, Known) for one in value.values):
        pairs = graph.call("zip", *(one.node for one in value.values))
        value = Known(list(zip(*(one.value for one in value.values), strict=False)), pairs)
    if not isinstance(value, Known) or len(args) != 1 or words:
        raise Refused("A dict is made of other than constants.")
    return _on_numbers(run, "dict", value)


def _distinct(run: Reader, values: Any, return_counts: Any = None) -> Any:
    """The values that occur in an array: every entry that has none like it before it. Their order is not kept."""
    lift = run.lift
    values = on_host(lift, tensor(lift, values))
    if values.rank != 1 or values.valid is not None:
        raise WrongRank("unique() of an array that is no vector.")
    lift.changes.add("FO107")
    if values.domain:
        lift.hints.append(("whole", values.domain))
    found = distinct(lift, values)
    if not is_set(return_counts):
        return found
    twin = replace(relabelled(values, {values.inner[0]: Axis("twin", values.inner[0].size)}), inner=())
    same = elementwise(lift, "equal", (found.element, twin), "bool", "==")
    number_of = counted(lift, same, tuple(axis for axis in twin.dims if axis not in values.axes))
    return Items((found, Listing(number_of, found.axes, found.keep)))


def _distinct_and_places(run: Reader, x: Any, *rest: Any, **words: Any) -> Any:
    """`tf.unique(x)`: the values, and for every entry the place of its own, which has no array form here."""
    places = Unreadable("The places that tf.unique() gives depend on the order of the values.", "FO107")
    return Items((_distinct(run, x), places))


def _quantile(share: float) -> Callable[..., Any]:
    """`percentile(x, q)` and `quantile(x, q)` of a whole array."""

    def function(run: Reader, a: Any, q: Any) -> Any:
        graph = run.lift.graph
        if not isinstance(q, (Known, Host)):
            raise Refused("A percentile from the data.", "FO205")
        values = front(run.lift, on_host(run.lift, tensor(run.lift, a)))
        if values.valid is not None or (values.axes and values.rank != 1):
            raise Refused("A percentile of a selection, or of several dimensions in a loop.", "FO205")
        run.lift.changes.add("FO205")
        at = graph.binary("/", q.node, graph.const(share)) if share != 1 else q.node
        node = graph.call("ops.quantile", values.node, at, **({"axis": graph.const(-1)} if values.axes else {}))
        return Tensor(node, values.axes, (), "float", is_host=True)

    return function


def _to_host(run: Reader, x: Any) -> Any:
    return on_host(run.lift, tensor(run.lift, x))


def _leaves(run: Reader, *args: Any, **words: Any) -> Any:
    raise Refused("A call leaves the graph (py_function, numpy_function).", "FO204")


HANDLERS: dict[str, Handler] = {
    "builtins.sorted": ordering.sorted_values,
    **bound({
        "builtins.float": _float, "builtins.int": _int, "builtins.bool": _bool, "builtins.len": _len,
        "builtins.sum": _reducing("sum"), "builtins.max": _reducing("max"), "builtins.min": _reducing("min"),
        "builtins.any": _reducing("any"), "builtins.all": _reducing("all"), "builtins.abs": _abs,
        "builtins.set": _set, "builtins.dict": _dict,
        "tensorflow.add_n": _reducing("sum"), "tensorflow.math.add_n": _reducing("sum"),
        "tensorflow.TensorArray": lambda run, *args, **words: Items((), True),
        "keras.ops.convert_to_numpy": _to_host,
        "numpy.unique": _distinct, "torch.unique": _distinct, "tensorflow.unique": _distinct_and_places,
        "numpy.percentile": _quantile(100), "numpy.quantile": _quantile(1),
        "numpy.median": lambda run, a: _quantile(1)(run, a, number(run.lift, 0.5)),
        "tensorflow.py_function": _leaves, "tensorflow.numpy_function": _leaves,
    }),
}  # fmt: skip
