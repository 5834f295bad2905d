"""Functions of pandas, NumPy and scikit-learn that need the values on the host, in array form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, number, relabelled, where
from flatout.vectorize.arrays.lifted_values import Axis, Bag, Host, Items, Partial, Refused, Static, Tensor, WrongRank
from flatout.vectorize.arrays.ragged import positions
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.lookups import batch_frames as frames
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.lookups.lookups import intervals


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
    below = _binned(run, words["x"], words["bins"], right is not None and bool(right.value), nan_is_last=True)
    return binary(run.lift, "+", below, number(run.lift, 1))


def _searchsorted(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    words = dict(zip(("a", "v", "side"), args, strict=False)) | kwargs
    side = words.get("side")
    edges = words.get("a", words.get("sorted_sequence"))
    is_left = side is None or side.value == "left"
    below = _binned(run, words.get("v", words.get("values")), edges, is_left, nan_is_last=True)
    return binary(run.lift, "+", below, number(run.lift, 1))


def _bisect(side: str) -> Callable[..., Any]:
    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        below = _binned(run, args[1], args[0], side == "left", nan_is_last=side == "right")
        return binary(run.lift, "+", below, number(run.lift, 1))

    return function


def _binned(run: Any, values: Any, edges: Any, right: bool, nan_is_last: bool = False) -> Tensor:
    if isinstance(edges, Items) and all(isinstance(item, Static) for item in edges.values):
        node = run.lift.graph.sequence(tuple(item.node for item in edges.values), True)
        edges = Static([item.value for item in edges.values], node)
    if not isinstance(edges, Static) or np.any(np.diff(np.asarray(edges.value, "float64")) <= 0):
        raise Refused("The edges of the intervals are not rising constants.", "FO401")
    return intervals(run.lift, edges, on_host(run, tensor(run.lift, values)), right, nan_is_last)


def _roc_auc(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Area under the ROC curve: the share of pairs (positive, negative) in the right order; a tie counts half."""
    if kwargs or len(args) != 2:
        raise Refused("roc_auc_score() with further arguments.", "FO205")
    lift = run.lift
    lift.changes.add("FO205")
    truth, score = (on_host(run, tensor(lift, value)) for value in args)
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


def _series(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`pandas.Series(x)` of a vector: its values, to be mapped or reduced."""
    if len(args) != 1 or kwargs:
        raise Refused("A Series with an index of its own is made of the data.", "FO205")
    values = on_host(run, tensor(run.lift, args[0]))
    if values.rank != 1:
        raise WrongRank("A Series of an array that is no vector.")
    run.lift.changes.add("FO205")
    return replace(values, is_series=True)


def _along_axis(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.apply_along_axis(f, axis, x)`: f of every vector along an axis."""
    from .calls import apply, path_to

    words = dict(zip(("func1d", "axis", "arr"), args, strict=False)) | kwargs
    values = on_host(run, tensor(run.lift, words["arr"]))
    if set(words) != {"func1d", "axis", "arr"} or not isinstance(words["axis"], Static):
        raise Refused("numpy.apply_along_axis() with further arguments.", "FO205")
    place = words["axis"].value
    if not -values.rank <= place < values.rank:
        raise WrongRank(f"Axis {place} of an array of rank {values.rank}.")
    if values.valid is not None or values.is_loose:
        raise Refused("numpy.apply_along_axis() of a selection.", "FO108")
    run.lift.changes.add("FO205")
    own = values.inner[place]
    others = tuple(axis for axis in values.inner if axis is not own)
    run.loops += 1
    try:
        vector = replace(values, inner=(own,), position=None)
        result = tensor(run.lift, apply(run, words["func1d"], path_to(words["func1d"]), [vector], {}))
    finally:
        run.loops -= 1
    if result.valid is not None or not set(others) <= set(result.dims):
        raise Refused("numpy.apply_along_axis() of a function that does not depend on its vector.", "FO205")
    at = place % values.rank
    return replace(result, inner=(*others[:at], *result.inner, *others[at:]), is_host=True, position=None)


def _bincount(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`bincount(x, weights, minlength=k)` of labels below k."""
    words = dict(zip(("x", "weights", "minlength"), args, strict=False)) | kwargs
    values = tensor(run.lift, words.get("x", words.get("input")))
    count, weights = words.get("minlength"), words.get("weights")
    if not isinstance(count, (Static, Host)) or (isinstance(count, Static) and not count.value):
        raise Refused("bincount() into as many bins as the data say.", "FO108")
    if values.rank != 1 or values.valid is not None:
        raise WrongRank("bincount() of an array that is no vector.")
    run.lift.changes.add("FO205")
    if values.domain:
        run.lift.hints.append(("index", values.domain, count.node))
    run.lift.note("Labels that are not below the number of bins add bins in the original, and nothing here.")
    bins = Axis("bin", count.node)
    same = elementwise(run.lift, "equal", (replace(values, inner=()), positions(run.lift, bins)), "bool", "==")
    each = cast(run.lift, same, "float32")
    if weights is not None and not (isinstance(weights, Static) and weights.value is None):
        given = tensor(run.lift, weights)
        each = binary(run.lift, "*", each, replace(relabelled(given, {given.inner[0]: values.inner[0]}), inner=()))
    return replace(reduce(run.lift, "sum", each, values.inner), inner=(bins,), is_host=values.is_host)


def _select(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.select(conditions, choices, default)`: the first condition that holds decides."""
    words = dict(zip(("condlist", "choicelist", "default"), args, strict=False)) | kwargs
    conditions, choices = words["condlist"], words["choicelist"]
    if isinstance(choices, Static) and isinstance(choices.value, (list, tuple)):
        choices = Items(tuple(number(run.lift, value) for value in choices.value))
    if not isinstance(conditions, Items) or not isinstance(choices, Items):
        raise Refused("numpy.select() of lists that are not written out.", "FO205")
    run.lift.changes.add("FO205")
    chosen: Any = words.get("default", number(run.lift, 0))
    for condition, choice in reversed(list(zip(conditions.values, choices.values, strict=True))):
        chosen = where(run.lift, *(on_host(run, tensor(run.lift, one)) for one in (condition, choice, chosen)))
    return replace(chosen, is_host=True)


def _vectorize(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.vectorize(f)`: f of every entry."""
    if len(args) != 1 or set(kwargs) - {"otypes"}:
        raise Refused("numpy.vectorize() with further arguments.", "FO205")
    return Partial(Static(_each, run.lift.graph.const(None), "numpy.vectorize.each"), (args[0],), {})


def _each(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    from .calls import apply, path_to

    function, *values = args
    arrays = [on_host(run, tensor(run.lift, value)) for value in values]
    shape = next((array.inner for array in arrays if array.rank), ())
    if kwargs or any(array.rank not in (0, len(shape)) for array in arrays):
        raise Refused("numpy.vectorize() of arrays of different ranks.", "FO205")
    run.lift.changes.add("FO205")
    # Every dimension is that of a loop while the function is read: it sees one entry.
    entries = [replace(relabelled(array, dict(zip(array.inner, shape, strict=False))), inner=()) for array in arrays]
    run.loops += 1
    try:
        result = tensor(run.lift, apply(run, function, path_to(function), entries, {}))
    finally:
        run.loops -= 1
    if result.rank or not set(shape) <= set(result.dims):
        raise Refused("numpy.vectorize() of a function that does not give a number for each entry.", "FO205")
    return replace(result, inner=shape, is_host=True)


def _intersection(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`numpy.intersect1d(a, b)`, of which the size is asked."""
    sets = [on_host(run, tensor(run.lift, value)) for value in args]
    if kwargs or len(sets) != 2 or any(one.rank != 1 for one in sets):
        raise Refused("numpy.intersect1d() of other than two vectors.", "FO205")
    return Bag(sets[0], (sets[1],))


def _partition(name: str) -> Callable[..., Any]:
    """`numpy.partition(x, k)`, `argpartition`: the whole order has every entry in its place, the k-th as well."""

    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        from . import operations

        words = dict(zip(("x", "kth", "axis"), args, strict=False)) | {k: v for k, v in kwargs.items() if k != "a"}
        values = on_host(run, tensor(run.lift, words["x"]))
        run.lift.changes.add("FO205")
        return operations.apply(run.lift, name, [values], {"axis": words["axis"]} if "axis" in words else {})

    return function


HANDLERS: dict[str, Callable[..., Any]] = {
    "numpy.partition": _partition("sort"), "numpy.argpartition": _partition("argsort"),
    "numpy.bincount": _bincount, "torch.bincount": _bincount, "keras.ops.bincount": _bincount,
    "tensorflow.math.bincount": _bincount, "numpy.intersect1d": _intersection, "numpy.apply_along_axis": _along_axis,
    "pandas.DataFrame": frames.frame_of, "pandas.core.frame.DataFrame": frames.frame_of,
    "tensorflow.dynamic_partition": frames.partition,
    "numpy.select": _select, "numpy.vectorize": _vectorize, "numpy.vectorize.each": _each,
    "pandas.Series": _series, "pandas.core.series.Series": _series,
    "pandas.cut": _cut, "pandas.core.reshape.tile.cut": _cut, "numpy.digitize": _digitize,
    "numpy.searchsorted": _searchsorted, "bisect.bisect_left": _bisect("left"), "bisect.bisect": _bisect("right"),
    "bisect.bisect_right": _bisect("right"), "_bisect.bisect_left": _bisect("left"),
    "_bisect.bisect_right": _bisect("right"), "sklearn.metrics.roc_auc_score": _roc_auc,
    "sklearn.metrics._ranking.roc_auc_score": _roc_auc,
}  # fmt: skip
