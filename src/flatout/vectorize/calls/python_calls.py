"""Python's own functions of numbers, lists and sets, on lifted values."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import (
    binary,
    cast,
    changed,
    elementwise,
    front,
    number,
    on_host,
    operand,
    operated,
    relabelled,
    where,
    whole,
)
from flatout.vectorize.arrays.exact_numbers import fits, note_blurred
from flatout.vectorize.arrays.indexing import gather, index, listing_to_tensor, steps_of
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Host,
    Items,
    Known,
    Listing,
    Places,
    Plain,
    Range,
    Refused,
    Several,
    Size,
    Tensor,
    Vector,
    Whole,
    WrongRank,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import counted, reduce
from flatout.vectorize.arrays.shaping import shape, tensor
from flatout.vectorize.lookups.lookups import distinct, members
from flatout.vectorize.loops.iterated_axes import stream
from flatout.vectorize.loops.loop_totals import join, over_axes

from . import operations
from .operations import ordered
from .reader import Handler, Reader, bound


def _of_python(name: str, otherwise: Callable[..., Any]) -> Handler:
    """A function of Python: called for what is known now, or when the loss is traced; `otherwise` for other values."""
    handlers = bound({name: otherwise})

    def handler(run: Reader, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not args or kwargs or not all(isinstance(value, (Known, Host)) for value in args):
            return handlers[name](run, args, kwargs)
        node = run.lift.graph.call(name, *(value.node for value in args))
        if any(isinstance(value, Host) for value in args):
            return Host(node)
        return Known(getattr(builtins, name)(*(value.value for value in args)), node)

    return handler


def _number(run: Reader, name: str, value: Any) -> Tensor:
    """The one value of an array, as Python has it."""
    if not isinstance(value, Tensor):
        raise Refused(f"{name}() of something that is no number.", "FO201")
    if value.rank:
        raise WrongRank(f"{name}() of an array of more than one value.")
    return on_host(run.lift, value)  # type: ignore[no-any-return]


def _float(run: Reader, x: Any) -> Any:
    value = _number(run, "float", x)
    return replace(value, is_wide=True) if value.kind in ("float", "any") else cast(run.lift, value, "float32")


def _int(run: Reader, x: Any) -> Any:
    value = _number(run, "int", x)
    note_blurred(run.lift, value)
    run.lift.learn("whole", value)
    return whole(run.lift, value)


def _bool(run: Reader, x: Any) -> Any:
    condition = run.truth(x)
    return number(run.lift, condition) if isinstance(condition, bool) else condition


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
            assert isinstance(flow, Listing)
            if flow.keep is not None:
                return counted(lift, flow.keep, flow.axes)
            sizes = (Host(steps_of(lift, axis.size)) for axis in flow.axes)  # type: ignore[arg-type]
            return functools.reduce(partial(operated, lift, "*"), sizes)
        case Bag():
            return members(lift, value.entries, value.others)
        case Places():
            return counted(lift, value.mask, value.mask.inner)
    raise Refused("len() of something that is no list.")


def _reducing(
    run: Reader,
    value: Any,
    *more: Any,
    how: str,
    key: Any = None,
    start: Any = None,
    default: Any = None,
    name: Any = None,
) -> Any:
    """`sum`, `max`, `min`, `any`, `all` of Python."""
    if more and how in ("max", "min"):
        return _largest(run, how, [value, *more])
    if key is not None:
        return _extreme_by(run, how, key, value)
    begin = more[0] if more else start
    if isinstance(value, (Range, Several)):
        value = stream(run.lift, value)
    if isinstance(value, Items):
        values = value.values if begin is None else (begin, *value.values)
        return functools.reduce(lambda total, item: join(run.lift, how, total, item), values)
    if isinstance(value, Listing):
        element = operand(run.lift, value.element)
        if how in ("any", "all"):
            condition = run.truth(element)
            element = condition if isinstance(condition, Tensor) else element
            stacked = listing_to_tensor(run.lift, replace(value, element=element))
            total = reduce(run.lift, how, stacked, stacked.inner)
        else:
            element = cast(run.lift, element, "float32") if element.kind == "bool" else element
            total = over_axes(run.lift, how, element, value)
    elif isinstance(value, Tensor):
        if value.rank != 1 and how != "sum":
            raise WrongRank(f"{how}() of an array of rank {value.rank}.")
        total = reduce(run.lift, how, value, value.inner[:1])
    else:
        raise Refused(f"{how}() of something that is no list.")
    return total if begin is None else join(run.lift, "sum", begin, total)


def _largest(run: Reader, how: str, args: list[Any]) -> Any:
    total = args[0]
    for value in args[1:]:
        total = elementwise(run.lift, f"{how}imum", (total, value), "any")
    is_wide = any(isinstance(value, Tensor) and (value.is_wide or value.is_blurred) for value in args)
    numbers = [value.value for value in args if isinstance(value, Known)]
    is_rounded = any(isinstance(value, float) and not fits(value) for value in numbers)
    return replace(total, is_blurred=True) if is_wide and is_rounded else total


def _sorted(run: Reader, values: Any, key: Any = None, reverse: Plain = False) -> Any:
    """`sorted(values)`, perhaps in reverse; as a key orders them, equal ones stay in their order, in reverse too."""
    if isinstance(values, Bag) and key is None:
        return values  # What follows may not depend on the order; the verification sees to it.
    if key is not None:
        flow, keys = _keyed(run, key, values, "sorted")
        order = ordered(run.lift, keys, how="argsort", descending=reverse, stable=True)
        place = Axis("place", flow.axes[0].size)
        at = replace(relabelled(order, {order.inner[0]: place}), inner=())
        return Listing(picked(run.lift, flow.element, flow.axes[0], at), (place,))
    numbers = tensor(run.lift, values)
    if numbers.rank != 1 or numbers.valid is not None:
        raise Refused("sorted() of a selection, or of rows.", "FO205")
    run.lift.changes.add("FO205")
    return ordered(run.lift, numbers, how="sort", descending=reverse)


def _extreme_by(run: Reader, how: str, key: Any, value: Any) -> Any:
    """`max(values, key=f)`: the first of those for which f is largest."""
    flow, keys = _keyed(run, key, value, how)
    lift = run.lift
    if keys.kind == "int":
        return picked(lift, flow.element, flow.axes[0], first_best(lift, how, keys))
    # A comparison with NaN fails: the first element stays if its key is NaN, any other is passed over.
    missing = elementwise(lift, "isnan", (keys,), "bool")
    best = first_best(lift, how, where(lift, missing, number(lift, -1e30 if how == "max" else 1e30), keys))
    first = index(lift, missing, [number(lift, 0)])
    return picked(lift, flow.element, flow.axes[0], where(lift, first, number(lift, 0), best))


def first_best(lift: Lifting, how: str, keys: Tensor) -> Tensor:
    """The first place where the numbers along the only inner dimension are largest or least."""
    lift.exact(keys)
    if keys.kind != "int":
        # Keras orders -0.0 before 0.0 where it looks for the least and the largest; Python takes them for equal.
        keys = where(lift, binary(lift, "==", keys, number(lift, 0.0)), number(lift, 0.0), keys)
    return cast(lift, operations.apply(lift, f"arg{how}", [keys], {}), "int32")


def _keyed(run: Reader, key: Any, value: Any, function: str) -> tuple[Listing, Tensor]:
    """What is ordered, and the numbers that order it, as a vector."""
    flow = stream(run.lift, value)
    if isinstance(flow, Items) or flow.keep is not None or len(flow.axes) != 1:
        raise Refused(f"{function}() with a key of a selection, or of values of different kinds.", "FO205")
    (axis,) = flow.axes
    keys = tensor(run.lift, run.each_step(flow, lambda: run.call(key, [flow.element])))
    if keys.rank or axis not in keys.dims or keys.valid is not None:
        raise Refused(f"{function}() by a key that is no number for each element.", "FO205")
    run.lift.changes.add("FO205")
    return flow, replace(on_host(run.lift, keys), inner=(axis,), position=None)


def picked(lift: Lifting, element: Any, axis: Axis, at: Tensor) -> Any:
    """What a loop gives at the steps of which these are the places."""

    def gathered(part: Tensor) -> Tensor:
        if axis not in part.dims:
            return part
        if part.position == (axis, 0) and axis.start is None:
            return replace(at, kind="int", is_host=True)
        return gather(lift, replace(part, inner=(axis, *part.inner), position=None), 0, at)

    return changed(element, gathered)


def _set(run: Reader, values: Vector | None = None) -> Any:
    if values is None:
        raise Refused("A set that is filled in a loop.")
    return Bag(values)


def _dict(run: Reader, value: Any) -> Any:
    """`dict(zip(keys, values))` of constants, and `dict(table)`; others are objects, see `heap`."""
    graph = run.lift.graph
    if isinstance(value, Several) and value.how == "zip" and all(isinstance(one, Known) for one in value.values):
        pairs = graph.call("zip", *(one.node for one in value.values))
        value = Known(list(zip(*(one.value for one in value.values), strict=False)), pairs)
    if not isinstance(value, Known):
        raise Refused("A dict is made of other than constants.")
    return Known(dict(value.value), graph.call("dict", value.node))


def _distinct(run: Reader, values: Vector, return_counts: Plain = False) -> Any:
    """The values that occur in an array: every entry that has none like it before it. Their order is not kept."""
    lift = run.lift
    if values.valid is not None:
        raise Refused("unique() of a selection of elements has no masked form here.", "FO108")
    lift.changes.add("FO107")
    lift.learn("whole", values)
    found = distinct(lift, values)
    if not return_counts:
        return found
    twin = replace(relabelled(values, {values.inner[0]: Axis("twin", values.inner[0].size)}), inner=())
    same = binary(lift, "==", found.element, twin)
    number_of = counted(lift, same, tuple(axis for axis in twin.dims if axis not in values.axes))
    return Items((found, Listing(number_of, found.axes, found.keep)))


def _distinct_and_places(run: Reader, x: Vector, *rest: Any, **words: Any) -> Any:
    """`tf.unique(x)`: the values, and for every entry the place of its own, which has no array form here."""
    places = Refused("The places that tf.unique() gives depend on the order of the values.", "FO107")
    return Items((_distinct(run, x), places))


def _quantile(run: Reader, a: Whole, q: Size | None = None, *, share: float = 1) -> Any:
    """`percentile(x, q)`, `quantile(x, q)` and `median(x)` of a whole array."""
    graph, q = run.lift.graph, number(run.lift, 0.5) if q is None else q
    values = front(run.lift, on_host(run.lift, a))
    if values.axes and values.rank != 1:
        raise Refused("A percentile of several dimensions in a loop.", "FO205")
    run.lift.changes.add("FO205")
    at = graph.binary("/", q.node, graph.const(share)) if share != 1 else q.node
    node = graph.call("ops.quantile", values.node, at, **({"axis": graph.const(-1)} if values.axes else {}))
    return Tensor(node, values.axes, (), "float", is_host=True)


def _leaves(run: Reader, *args: Any, **words: Any) -> Any:
    raise Refused("A call leaves the graph (py_function, numpy_function).", "FO204")


_PYTHON: dict[str, Callable[..., Any]] = {
    "float": _float, "int": _int, "len": _len, "set": _set, "sorted": _sorted,
    "abs": lambda run, x: operations.apply(run.lift, "abs", [x], {}),
    **{how: partial(_reducing, how=how) for how in ("sum", "max", "min", "any", "all")},
}  # fmt: skip
HANDLERS = {f"builtins.{name}": _of_python(name, function) for name, function in _PYTHON.items()} | bound({
    "builtins.bool": _bool, "builtins.dict": _dict,
    **dict.fromkeys(("tensorflow.add_n", "tensorflow.math.add_n"), partial(_reducing, how="sum")),
    "tensorflow.TensorArray": lambda run, *args, **words: Items((), True),
    "numpy.unique": _distinct, "torch.unique": _distinct, "tensorflow.unique": _distinct_and_places,
    "numpy.percentile": partial(_quantile, share=100), "numpy.quantile": _quantile, "numpy.median": _quantile,
    "tensorflow.py_function": _leaves, "tensorflow.numpy_function": _leaves,
})  # fmt: skip
