"""Functions of pandas, NumPy and scikit-learn that need the values on the host, in array form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import binary, cast, elementwise, number, relabelled, where
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Host,
    Items,
    Known,
    Partial,
    Refused,
    Stream,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.ragged import positions
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import tensor
from flatout.vectorize.lookups import batch_frames as frames
from flatout.vectorize.lookups.host_values import on_host
from flatout.vectorize.lookups.lookups import edges_below

from . import operations
from .constants import as_constant
from .reader import Reader, bound, is_set


def _cut(run: Reader, x: Any, bins: Any, right: Any = None, labels: Any = None) -> Any:
    """`pandas.cut(x, bins, labels=False)`."""
    if is_set(labels, otherwise=True):
        raise Refused("pandas.cut() with labels.", "FO401")
    below = _below(run, x, bins, is_set(right, otherwise=True), nan_is_last=False)
    return binary(run.lift, "-", below, number(run.lift, 1))


def _digitize(run: Reader, x: Any, bins: Any, right: Any = None) -> Any:
    return _below(run, x, bins, is_set(right), nan_is_last=True)


def _searchsorted(run: Reader, a: Any, v: Any, side: Any = None) -> Any:
    return _below(run, v, a, side is None or side.value == "left", nan_is_last=True)


def _bisect_left(run: Reader, a: Any, x: Any) -> Any:
    return _below(run, x, a, True, nan_is_last=False)


def _bisect_right(run: Reader, a: Any, x: Any) -> Any:
    return _below(run, x, a, False, nan_is_last=True)


def _below(run: Reader, values: Any, edges: Any, right: bool, nan_is_last: bool) -> Tensor:
    edges = as_constant(run.lift.graph, edges)
    if not isinstance(edges, Known) or np.any(np.diff(np.asarray(edges.value, "float64")) <= 0):
        raise Refused("The edges of the intervals are not rising constants.", "FO401")
    return edges_below(run.lift, edges, _read(run, values), right, nan_is_last)


def _read(run: Reader, value: Any) -> Tensor:
    """An array as NumPy has it."""
    return on_host(run.lift, tensor(run.lift, value))  # type: ignore[no-any-return]


def _roc_auc(run: Reader, y_true: Any, y_score: Any) -> Any:
    """Area under the ROC curve: the share of pairs (positive, negative) in the right order; a tie counts half."""
    lift = run.lift
    lift.changes.add("FO205")
    truth, score = _read(run, y_true), _read(run, y_score)
    if truth.rank != 1 or score.rank != 1:
        raise WrongRank("roc_auc_score() of arrays that are no vectors.")
    if truth.domain:
        lift.hints += [("value", truth.domain, 1), ("value", truth.domain, 0)]
    rows, columns = truth.inner[0], Axis("other", truth.inner[0].size)

    def along(value: Tensor, axis: Axis) -> Tensor:
        return replace(relabelled(value, {value.inner[0]: axis}), inner=())

    labels = elementwise(lift, "greater", (along(truth, rows), number(lift, 0)), "bool", ">")
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


def _series(run: Reader, data: Any) -> Any:
    """`pandas.Series(x)` of a vector: its values, to be mapped or reduced."""
    values = _read(run, data)
    if values.rank != 1:
        raise WrongRank("A Series of an array that is no vector.")
    run.lift.changes.add("FO205")
    return replace(values, is_series=True)


def _along_axis(run: Reader, func1d: Any, axis: Any, arr: Any) -> Any:
    """`numpy.apply_along_axis(f, axis, x)`: f of every vector along an axis."""
    values, place = _read(run, arr), axis.value
    if not -values.rank <= place < values.rank:
        raise WrongRank(f"Axis {place} of an array of rank {values.rank}.")
    if values.valid is not None or values.is_loose:
        raise Refused("numpy.apply_along_axis() of a selection.", "FO108")
    run.lift.changes.add("FO205")
    own, at = values.inner[place], place % values.rank
    others = tuple(one for one in values.inner if one is not own)
    vector = replace(values, inner=(own,), position=None)
    result = tensor(run.lift, run.each_step(Stream(others, vector), lambda: run.call(func1d, [vector])))
    if result.valid is not None or not set(others) <= set(result.dims):
        raise Refused("numpy.apply_along_axis() of a function that does not depend on its vector.", "FO205")
    return replace(result, inner=(*others[:at], *result.inner, *others[at:]), is_host=True, position=None)


def _bincount(run: Reader, x: Any = None, weights: Any = None, minlength: Any = None, **named: Any) -> Any:
    """`bincount(x, weights, minlength=k)` of labels below k."""
    lift = run.lift
    values = tensor(lift, named["input"] if x is None else x)
    if not isinstance(minlength, (Known, Host)) or (isinstance(minlength, Known) and not minlength.value):
        raise Refused("bincount() into as many bins as the data say.", "FO108")
    if values.rank != 1 or values.valid is not None:
        raise WrongRank("bincount() of an array that is no vector.")
    lift.changes.add("FO205")
    if values.domain:
        lift.hints.append(("index", values.domain, minlength.node))
    lift.note("Labels that are not below the number of bins add bins in the original, and nothing here.")
    bins = Axis("bin", minlength.node)
    same = elementwise(lift, "equal", (replace(values, inner=()), positions(lift, bins)), "bool", "==")
    each = cast(lift, same, "float32")
    if weights is not None and not (isinstance(weights, Known) and weights.value is None):
        given = tensor(lift, weights)
        each = binary(lift, "*", each, replace(relabelled(given, {given.inner[0]: values.inner[0]}), inner=()))
    return replace(reduce(lift, "sum", each, values.inner), inner=(bins,), is_host=values.is_host)


def _select(run: Reader, condlist: Any, choicelist: Any, default: Any = None) -> Any:
    """`numpy.select(conditions, choices, default)`: the first condition that holds decides."""
    if isinstance(choicelist, Known) and isinstance(choicelist.value, (list, tuple)):
        choicelist = Items(tuple(number(run.lift, value) for value in choicelist.value))
    if not isinstance(condlist, Items) or not isinstance(choicelist, Items):
        raise Refused("numpy.select() of lists that are not written out.", "FO205")
    run.lift.changes.add("FO205")
    chosen: Any = number(run.lift, 0) if default is None else default
    for condition, choice in reversed(list(zip(condlist.values, choicelist.values, strict=True))):
        chosen = where(run.lift, *(_read(run, one) for one in (condition, choice, chosen)))
    return replace(chosen, is_host=True)


def _vectorize(run: Reader, pyfunc: Any, otypes: Any = None) -> Any:
    """`numpy.vectorize(f)`: f of every entry."""
    return Partial(Known(_each, run.lift.graph.const(None), "numpy.vectorize.each"), (pyfunc,), {})


def _each(run: Reader, function: Any, *values: Any) -> Any:
    arrays = [_read(run, value) for value in values]
    shape = next((array.inner for array in arrays if array.rank), ())
    if any(array.rank not in (0, len(shape)) for array in arrays):
        raise Refused("numpy.vectorize() of arrays of different ranks.", "FO205")
    run.lift.changes.add("FO205")
    # Every dimension is that of a loop while the function is read: it sees one entry.
    entries = [replace(relabelled(array, dict(zip(array.inner, shape, strict=False))), inner=()) for array in arrays]
    result = tensor(run.lift, run.each_step(Stream(shape, entries), lambda: run.call(function, entries)))
    if result.rank or not set(shape) <= set(result.dims):
        raise Refused("numpy.vectorize() of a function that does not give a number for each entry.", "FO205")
    return replace(result, inner=shape, is_host=True)


def _intersection(run: Reader, ar1: Any, ar2: Any) -> Any:
    """`numpy.intersect1d(a, b)`, of which the size is asked."""
    sets = [_read(run, value) for value in (ar1, ar2)]
    if any(one.rank != 1 for one in sets):
        raise Refused("numpy.intersect1d() of other than two vectors.", "FO205")
    return Bag(sets[0], (sets[1],))


def _partition(name: str) -> Callable[..., Any]:
    """`numpy.partition(x, k)`, `argpartition`: the whole order has every entry in its place, the k-th as well."""

    def function(run: Reader, a: Any, kth: Any, axis: Any = None) -> Any:
        run.lift.changes.add("FO205")
        return operations.apply(run.lift, name, [_read(run, a)], {} if axis is None else {"axis": axis})

    return function


HANDLERS = bound({
    "numpy.partition": _partition("sort"), "numpy.argpartition": _partition("argsort"),
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
    "numpy.searchsorted": _searchsorted, "bisect.bisect_left": _bisect_left, "bisect.bisect": _bisect_right,
    "bisect.bisect_right": _bisect_right, "_bisect.bisect_left": _bisect_left, "_bisect.bisect_right": _bisect_right,
    "sklearn.metrics.roc_auc_score": _roc_auc, "sklearn.metrics._ranking.roc_auc_score": _roc_auc,
})  # fmt: skip
