"""Python's own functions, and those of pandas, scikit-learn and itertools, on lifted values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from . import operations
from .algebra import binary, cast, elementwise, front, number, operand, reduce, relabelled
from .attributes import shape
from .indexing import listing_to_tensor
from .loops import Stream, _over_axes, join, stream
from .tables import distinct, intervals, members
from .values import (
    Axis,
    Bag,
    Host,
    Items,
    Listing,
    Local,
    Range,
    Refused,
    Several,
    Static,
    Tensor,
    WrongRank,
)  # fmt: skip


def _host(run: Any, value: Any) -> Any:
    from .calls import on_host

    return on_host(run, value)


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
    value = _host(run, value)
    return value if value.kind in ("float", "any") else cast(run.lift, value, "float32")


def _int(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, (Host, Static)):
        node = run.lift.graph.call("int", value.node)
        return Host(node) if isinstance(value, Host) else Static(int(value.value), node)
    if not isinstance(value, Tensor):
        raise Refused("int() of something that is no number.", "FO201")
    if value.rank:
        raise WrongRank("int() of an array of more than one value.")
    value = _host(run, value)
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
            return _count(run, value.valid, tuple(a for a in value.inner if a in value.valid.dims))
        return shape(value).values[0]
    if isinstance(value, Listing):
        if value.keep is not None:
            return _count(run, value.keep, value.axes)
        node: Any = value.axes[0].size
        for axis in value.axes[1:]:
            node = lift.graph.binary("*", node, axis.size)
        return Host(node)
    if isinstance(value, Bag):
        return members(lift, value.entries, value.others)
    if isinstance(value, Range):
        flow = stream(lift, value)
        assert isinstance(flow, Stream)
        return Host(flow.axes[0].size) if flow.keep is None else _count(run, flow.keep, flow.axes)  # type: ignore[arg-type]
    if isinstance(value, Static):
        return Static(len(value.value), lift.graph.call("len", value.node))
    raise Refused("len() of something that is no list.")


def _count(run: Any, keep: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """How many elements are selected."""
    total = cast(run.lift, keep, "float32")
    for axis in axes:
        if axis in total.dims:
            total = reduce(run.lift, "sum", total, (axis,))
        else:
            total = binary(run.lift, "*", total, Host(axis.size))  # type: ignore[arg-type]
    return replace(total, is_host=True)


def _reducing(how: str) -> Callable[..., Any]:
    """`sum`, `max`, `min`, `any`, `all` of Python."""

    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        lift = run.lift
        if len(args) > 1 and how in ("max", "min"):
            return _largest(run, how, args)
        value = args[0]
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
    return _over_axes(run.lift, how, element, Stream(listing.axes, element, listing.keep))


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
    return total


def _abs(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, Static):
        return Static(abs(value.value), run.lift.graph.call("abs", value.node))
    if isinstance(value, Host):
        return Host(run.lift.graph.call("abs", value.node))
    return operations.apply(run.lift, "abs", [value], {})


def _range(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Range:
    if len(args) == 1:
        return Range(number(run.lift, 0), args[0])
    return Range(*args)


def _several(how: str) -> Callable[..., Several]:
    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Several:
        if how == "enumerate" and (len(args) > 1 or kwargs):
            raise Refused("enumerate() with a start.")
        kwargs.pop("strict", None)
        if how == "product" and kwargs:
            (repeat,) = kwargs.values()
            args = args * int(repeat.value)
        if how == "combinations":
            if not isinstance(args[1], Static) or args[1].value != 2:
                raise Refused("Combinations of more than two.", "FO103")
            args = args[:1]
        return Several(how, tuple(args))

    return function


def _list(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args:
        return Items((), True)
    value = args[0]
    if isinstance(value, (Range, Several)):
        flow = stream(run.lift, value)
        return flow if isinstance(flow, Items) else Listing(flow.element, flow.axes, flow.keep)
    if isinstance(value, Static):
        content = list(value.value)
        return Static(content, run.lift.graph.call("list", value.node))
    if isinstance(value, (Items, Listing, Tensor)):
        return value
    raise Refused("A list of something that is no list.")


def _set(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args:
        raise Refused("A set that is filled in a loop.")
    if isinstance(args[0], Static):
        return Static(set(args[0].value), run.lift.graph.call("set", args[0].node))
    entries = _host(run, operations.tensor(run.lift, args[0]))
    if entries.rank != 1:
        raise WrongRank(f"A set of an array of rank {entries.rank}.")
    return Bag(entries)


def _sorted(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`sorted(values)`, perhaps in reverse: numbers alone."""
    reverse = kwargs.pop("reverse", None)
    if kwargs or (reverse is not None and not isinstance(reverse, Static)):
        raise Refused("sorted() with a key.", "FO205")
    values = operations.tensor(run.lift, args[0])
    if values.rank != 1 or values.valid is not None:
        raise Refused("sorted() of a selection, or of rows.", "FO205")
    run.lift.changes.add("FO205")
    rising = operations.apply(run.lift, "sort", [values], {})
    return operations.apply(run.lift, "flip", [rising], {}) if reverse is not None and reverse.value else rising


def _distinct(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The values that occur in an array: every entry that has none like it before it. Their order is not kept."""
    if kwargs or len(args) != 1:
        raise Refused("unique() with further arguments.", "FO107")
    values = _host(run, operations.tensor(run.lift, args[0]))
    if values.rank != 1 or values.valid is not None:
        raise WrongRank("unique() of an array that is no vector.")
    run.lift.changes.add("FO107")
    return distinct(run.lift, values)


def _quantile(share: float) -> Callable[..., Any]:
    """`percentile(x, q)` and `quantile(x, q)` of a whole array."""

    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2 or not isinstance(args[1], (Static, Host)):
            raise Refused("A percentile along an axis, or one from the data.", "FO205")
        values = front(run.lift, _host(run, operations.tensor(run.lift, args[0])))
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


def _map(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`map(f, xs)`, `ops.map(f, xs)`, `tf.map_fn`, `vectorized_map`: f of every row."""
    from .calls import _path, apply

    function, *values = args
    value = values[0] if len(values) == 1 else Several("zip", tuple(values))
    if isinstance(value, Items) and not kwargs.get("python"):
        value = Several("zip", value.values)
    flow = stream(run.lift, value)
    if isinstance(flow, Items):
        return Items(tuple(apply(run, function, _path(function), [item], {}) for item in flow.values), True)
    run.lift.changes.add("FO105")
    spread = len(values) > 1 or (isinstance(flow.element, Items) and _takes(function) == len(flow.element.values) > 1)
    given = list(flow.element.values) if spread and isinstance(flow.element, Items) else [flow.element]
    run._loops += 1
    try:
        return Listing(apply(run, function, _path(function), given, {}), flow.axes, flow.keep)
    finally:
        run._loops -= 1


def _takes(function: Any) -> int:
    return len(function.tree.args.args) if isinstance(function, Local) else 1


def _sequential_map(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    names = ("fn", "f", "function", "elems", "xs", "elements")
    args = [*args, *(value for name, value in kwargs.items() if name in names)]
    made = _map(run, args[:2], {})  # A third one is the type of the result.
    return (
        listing_to_tensor(run.lift, made) if isinstance(made, Listing) and not isinstance(made.element, Items) else made
    )


def _to_host(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return _host(run, operations.tensor(run.lift, args[0]))


def _cut(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.cut(x, bins, labels=False)`."""
    words = dict(zip(("x", "bins", "right", "labels"), args, strict=False)) | kwargs
    labels, right = words.get("labels"), words.get("right")
    if labels is None or not isinstance(labels, Static) or labels.value is not False:
        raise Refused("pandas.cut() with labels.", "FO401")
    return _binned(run, words["x"], words["bins"], right is None or bool(right.value))


def _digitize(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    words = dict(zip(("x", "bins", "right"), args, strict=False)) | kwargs
    right = words.get("right")
    below = _binned(run, words["x"], words["bins"], right is not None and bool(right.value))
    return binary(run.lift, "+", below, number(run.lift, 1))


def _searchsorted(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    words = dict(zip(("a", "v", "side"), args, strict=False)) | kwargs
    side = words.get("side")
    edges = words.get("a", words.get("sorted_sequence"))
    below = _binned(run, words.get("v", words.get("values")), edges, side is None or side.value == "left")
    return binary(run.lift, "+", below, number(run.lift, 1))


def _bisect(side: str) -> Callable[..., Any]:
    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return binary(run.lift, "+", _binned(run, args[1], args[0], side == "left"), number(run.lift, 1))

    return function


def _binned(run: Any, values: Any, edges: Any, right: bool) -> Tensor:
    if isinstance(edges, Items) and all(isinstance(item, Static) for item in edges.values):
        node = run.lift.graph.sequence(tuple(item.node for item in edges.values), True)
        edges = Static([item.value for item in edges.values], node)
    if not isinstance(edges, Static) or np.any(np.diff(np.asarray(edges.value, "float64")) <= 0):
        raise Refused("The edges of the intervals are not rising constants.", "FO401")
    return intervals(run.lift, edges, _host(run, operations.tensor(run.lift, values)), right)


def _roc_auc(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Area under the ROC curve: the share of pairs (positive, negative) in the right order; a tie counts half."""
    if kwargs or len(args) != 2:
        raise Refused("roc_auc_score() with further arguments.", "FO205")
    lift = run.lift
    lift.changes.add("FO205")
    truth, score = (_host(run, operations.tensor(lift, value)) for value in args)
    if truth.rank != 1 or score.rank != 1:
        raise WrongRank("roc_auc_score() of arrays that are no vectors.")
    if truth.domain:
        lift.hints.append(("value", truth.domain, 1))
        lift.hints.append(("value", truth.domain, 0))
    rows, columns = truth.inner[0], Axis("other", truth.inner[0].size)

    def along(value: Tensor, axis: Axis) -> Tensor:
        return replace(value, dims=tuple(axis if a is value.inner[0] else a for a in value.dims), inner=())

    mine, theirs = along(score, rows), along(score, columns)
    labels = elementwise(lift, "greater", (along(truth, rows), number(lift, 0)), "bool", ">")
    positive = cast(lift, labels, "float32")
    negative = binary(lift, "-", number(lift, 1.0), relabelled(positive, {rows: columns}))
    ahead = elementwise(lift, "sign", (binary(lift, "-", mine, theirs),), "float")
    order = binary(lift, "+", binary(lift, "*", number(lift, 0.5), replace(ahead, is_host=True)), number(lift, 0.5))
    wins = reduce(lift, "sum", binary(lift, "*", order, negative), (columns,))
    top = reduce(lift, "sum", binary(lift, "*", positive, wins), (rows,))
    pairs = binary(lift, "*", reduce(lift, "sum", positive, (rows,)), reduce(lift, "sum", negative, (columns,)))
    lift.note("A batch with one class alone has no ROC curve: the original raises or gives NaN, the rewrite 0.")
    lift.note("The rewrite compares all pairs of the batch: memory grows with its square.")
    total = elementwise(lift, "maximum", (pairs, number(lift, 1.0)), "float")
    return replace(elementwise(lift, "divide", (top, total), "float", "/"), is_host=True)


def _shape(run: Any, value: Any) -> Any:
    return shape(operations.tensor(run.lift, value))


def _size(run: Any, value: Any) -> Any:
    sizes = shape(operations.tensor(run.lift, value)).values
    total = sizes[0]
    for size in sizes[1:]:
        total = Host(run.lift.graph.binary("*", total.node, size.node))
    return total


SHAPES: dict[str, Callable[..., Any]] = {
    "shape": _shape, "size": _size, "numel": _size,
    "rank": lambda run, value: number(run.lift, value.rank), "ndim": lambda run, value: number(run.lift, value.rank),
    "convert_to_numpy": lambda run, value: _host(run, operations.tensor(run.lift, value)),
}  # fmt: skip
HANDLERS: dict[str, Callable[..., Any]] = {
    "builtins.float": _float, "builtins.int": _int, "builtins.bool": _bool, "builtins.len": _len,
    "builtins.sum": _reducing("sum"), "builtins.max": _reducing("max"), "builtins.min": _reducing("min"),
    "builtins.any": _reducing("any"), "builtins.all": _reducing("all"), "builtins.abs": _abs,
    "builtins.range": _range, "builtins.zip": _several("zip"), "builtins.enumerate": _several("enumerate"),
    "itertools.product": _several("product"), "itertools.combinations": _several("combinations"),
    "builtins.list": _list, "builtins.tuple": _list, "builtins.set": _set, "builtins.map": _map,
    "keras.ops.map": _sequential_map, "tensorflow.map_fn": _sequential_map, "keras.ops.vectorized_map": _sequential_map,
    "tensorflow.vectorized_map": _sequential_map, "keras.src.ops.core.map": _sequential_map,
    "keras.src.ops.core.vectorized_map": _sequential_map, "torch.vmap": _sequential_map,
    "keras.ops.convert_to_numpy": _to_host, "keras.src.ops.core.convert_to_numpy": _to_host,
    "pandas.cut": _cut, "pandas.core.reshape.tile.cut": _cut, "numpy.digitize": _digitize,
    "numpy.searchsorted": _searchsorted, "bisect.bisect_left": _bisect("left"), "bisect.bisect": _bisect("right"),
    "bisect.bisect_right": _bisect("right"), "_bisect.bisect_left": _bisect("left"),
    "_bisect.bisect_right": _bisect("right"), "sklearn.metrics.roc_auc_score": _roc_auc,
    "sklearn.metrics._ranking.roc_auc_score": _roc_auc,
    "builtins.sorted": _sorted, "numpy.unique": _distinct, "torch.unique": _distinct, "tensorflow.unique": _distinct,
    "numpy.percentile": _quantile(100), "numpy.quantile": _quantile(1), "numpy.median": _median,
    "builtins.reversed": lambda run, args, kwargs: _refuse("A list is read from its end."),
    "tensorflow.py_function": lambda run, args, kwargs: _refuse("A call leaves the graph (py_function).", "FO204"),
    "tensorflow.numpy_function": lambda run, args, kwargs: _refuse("A call leaves the graph.", "FO204"),
}  # fmt: skip


def _refuse(reason: str, code: str = "FO101") -> Any:
    raise Refused(reason, code)
