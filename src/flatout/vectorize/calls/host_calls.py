"""Functions of pandas, NumPy and scikit-learn that need the values on the host, in array form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, number, on_host, opened, relabelled, where
from flatout.vectorize.arrays.indexing import positions
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Items,
    Known,
    Listing,
    Partial,
    Plain,
    Read,
    Refused,
    Size,
    Tensor,
    Vector,
    Whole,
    WrongRank,
)
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import axis_of, tensor
from flatout.vectorize.lookups import batch_frames as frames
from flatout.vectorize.lookups.lookups import edges_below

from .operations import ordered
from .reader import Reader, bound


def _cut(run: Reader, x: Read, bins: Any, right: Plain = True, labels: Plain = True) -> Any:
    """`pandas.cut(x, bins, labels=False)`."""
    if labels:
        raise Refused("pandas.cut() with labels.", "FO401")
    return binary(run.lift, "-", edges_below(run.lift, bins, x, right, nan_is_last=False), number(run.lift, 1))


def _digitize(run: Reader, x: Read, bins: Any, right: Plain = False) -> Any:
    return edges_below(run.lift, bins, x, right, nan_is_last=True)


def _searchsorted(run: Reader, a: Any, v: Read, side: Plain = "left") -> Any:
    return edges_below(run.lift, a, v, side == "left", nan_is_last=True)


def _bisect(run: Reader, a: Any, x: Read, *, right: bool) -> Any:
    return edges_below(run.lift, a, x, right, nan_is_last=not right)


def _roc_auc(run: Reader, y_true: Vector, y_score: Vector) -> Any:
    """Area under the ROC curve: the share of pairs (positive, negative) in the right order; a tie counts half."""
    lift = run.lift
    lift.changes.add("FO205")
    truth, score = y_true, y_score
    lift.learn("value", truth, 1)
    lift.learn("value", truth, 0)
    rows, columns = truth.inner[0], Axis("other", truth.inner[0].size)

    def along(value: Tensor, axis: Axis) -> Tensor:
        return replace(relabelled(value, {value.inner[0]: axis}), inner=())

    labels = binary(lift, ">", along(truth, rows), number(lift, 0))
    positive = cast(lift, labels, "float32")
    negative = binary(lift, "-", number(lift, 1.0), relabelled(positive, {rows: columns}))
    ahead = elementwise(lift, "sign", (binary(lift, "-", along(score, rows), along(score, columns)),), "float")
    order = binary(lift, "+", binary(lift, "*", number(lift, 0.5), replace(ahead, is_host=True)), number(lift, 0.5))
    wins = reduce(lift, "sum", binary(lift, "*", order, negative), (columns,))
    top = reduce(lift, "sum", binary(lift, "*", positive, wins), (rows,))
    pairs = binary(lift, "*", reduce(lift, "sum", positive, (rows,)), reduce(lift, "sum", negative, (columns,)))
    lift.note("A batch with one class alone has no ROC curve: the original raises or gives NaN, the rewrite 0.")
    lift.note("The rewrite compares all pairs of the batch: memory grows with its square.")
    total = elementwise(lift, "maximum", (pairs, number(lift, 1.0)), "float")
    return replace(elementwise(lift, "divide", (top, total), "float", "/"), is_host=True)


def _series(run: Reader, data: Vector) -> Any:
    """`pandas.Series(x)` of a vector: its values, to be mapped or reduced."""
    run.lift.changes.add("FO205")
    return replace(data, is_series=True)


def _along_axis(run: Reader, func1d: Any, axis: Plain, arr: Whole) -> Any:
    """`numpy.apply_along_axis(f, axis, x)`: f of every vector along an axis."""
    own = axis_of(arr, axis)
    run.lift.changes.add("FO205")
    at = arr.inner.index(own)
    others = tuple(one for one in arr.inner if one is not own)
    vector = replace(on_host(run.lift, arr), inner=(own,), position=None)
    result = tensor(run.lift, run.each_step(Listing(vector, others), lambda: run.call(func1d, [vector])))
    if result.valid is not None or not set(others) <= set(result.dims):
        raise Refused("numpy.apply_along_axis() of a function that does not depend on its vector.", "FO205")
    return replace(result, inner=(*others[:at], *result.inner, *others[at:]), is_host=True, position=None)


def _bincount(run: Reader, x: Whole, weights: Tensor | None = None, minlength: Size | None = None) -> Any:
    """`bincount(x, weights, minlength=k)` of labels below k."""
    lift, values = run.lift, x
    if minlength is None or (isinstance(minlength, Known) and not minlength.value):
        raise Refused("bincount() into as many bins as the data say.", "FO108")
    if values.rank != 1:
        raise WrongRank("bincount() of an array that is no vector.")
    lift.changes.add("FO205")
    lift.learn("index", values, minlength.node)
    lift.note("Labels that are not below the number of bins add bins in the original, and nothing here.")
    bins = Axis("bin", minlength.node)
    same = binary(lift, "==", replace(values, inner=()), positions(lift, bins))
    each = cast(lift, same, "float32")
    if weights is not None:
        each = binary(lift, "*", each, replace(relabelled(weights, {weights.inner[0]: values.inner[0]}), inner=()))
    return replace(reduce(lift, "sum", each, values.inner), inner=(bins,), is_host=values.is_host)


def _select(run: Reader, condlist: Any, choicelist: Any, default: Any = None) -> Any:
    """`numpy.select(conditions, choices, default)`: the first condition that holds decides."""
    choicelist = opened(run.lift, choicelist)
    if not isinstance(condlist, Items) or not isinstance(choicelist, Items):
        raise Refused("numpy.select() of lists that are not written out.", "FO205")
    run.lift.changes.add("FO205")
    chosen: Any = number(run.lift, 0) if default is None else default
    for condition, choice in reversed(list(zip(condlist.values, choicelist.values, strict=True))):
        chosen = where(run.lift, *(on_host(run.lift, tensor(run.lift, one)) for one in (condition, choice, chosen)))
    return replace(chosen, is_host=True)


def _vectorize(run: Reader, pyfunc: Any, otypes: Any = None) -> Any:
    """`numpy.vectorize(f)`: f of every entry."""
    return Partial(Known(_each, run.lift.graph.const(None), "numpy.vectorize.each"), (pyfunc,), {})


def _each(run: Reader, function: Any, *arrays: Read) -> Any:
    shape = next((array.inner for array in arrays if array.rank), ())
    if any(array.rank not in (0, len(shape)) for array in arrays):
        raise Refused("numpy.vectorize() of arrays of different ranks.", "FO205")
    run.lift.changes.add("FO205")
    # Every dimension is that of a loop while the function is read: it sees one entry.
    entries = [replace(relabelled(array, dict(zip(array.inner, shape, strict=False))), inner=()) for array in arrays]
    result = tensor(run.lift, run.each_step(Listing(entries, shape), lambda: run.call(function, entries)))
    if result.rank or not set(shape) <= set(result.dims):
        raise Refused("numpy.vectorize() of a function that does not give a number for each entry.", "FO205")
    return replace(result, inner=shape, is_host=True)


def _intersection(run: Reader, ar1: Vector, ar2: Vector) -> Any:
    """`numpy.intersect1d(a, b)`, of which the size is asked."""
    return Bag(ar1, (ar2,))


def _partition(run: Reader, a: Whole, kth: Any, axis: Plain = None, *, how: str) -> Any:
    """`numpy.partition(x, k)`, `argpartition`: the whole order has every entry in its place, the k-th as well."""
    run.lift.changes.add("FO205")
    return ordered(run.lift, on_host(run.lift, a), axis, how=how)


HANDLERS = bound({
    "numpy.partition": partial(_partition, how="sort"), "numpy.argpartition": partial(_partition, how="argsort"),
    "numpy.bincount": _bincount, "torch.bincount": _bincount, "keras.ops.bincount": _bincount,
    "tensorflow.math.bincount": _bincount, "numpy.intersect1d": _intersection, "numpy.apply_along_axis": _along_axis,
    "pandas.DataFrame": lambda run, data: frames.frame_of(run.lift, data),
    "pandas.core.frame.DataFrame": lambda run, data: frames.frame_of(run.lift, data),
    "tensorflow.dynamic_partition": lambda run, data, partitions, num_partitions: frames.partition(
        run.lift, data, partitions, num_partitions
    ),
    "numpy.select": _select, "numpy.vectorize": _vectorize, "numpy.vectorize.each": _each,
    "pandas.Series": _series, "pandas.core.series.Series": _series,
    "pandas.cut": _cut, "pandas.core.reshape.tile.cut": _cut, "numpy.digitize": _digitize,
    "numpy.searchsorted": _searchsorted,
    **dict.fromkeys(("bisect.bisect_left", "_bisect.bisect_left"), partial(_bisect, right=True)),
    **dict.fromkeys(("bisect.bisect", "bisect.bisect_right", "_bisect.bisect_right"), partial(_bisect, right=False)),
    "sklearn.metrics.roc_auc_score": _roc_auc, "sklearn.metrics._ranking.roc_auc_score": _roc_auc,
})  # fmt: skip
