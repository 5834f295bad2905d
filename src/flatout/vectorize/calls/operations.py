"""Array operations on lifted tensors, by their names in `keras.ops`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from flatout.pysource.spellings import canonical, keywords
from flatout.vectorize.arrays import shaping
from flatout.vectorize.arrays.algebra import (
    binary,
    cast,
    elementwise,
    front,
    guarded,
    negative,
    number,
    relabelled,
    where,
)
from flatout.vectorize.arrays.expression_graph import FUNCTIONS
from flatout.vectorize.arrays.indexing import gather, index, positions
from flatout.vectorize.arrays.lifted_values import Axis, Items, Places, Plain, Refused, Size, Tensor, Whole, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import SHAPES, axes_of, axis_of, split, tensor

from . import mask_places
from .reader import called


def array_function(lift: Lifting, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What a library's function, or method, of arrays gives; None: it is not known here."""
    name = canonical(path)
    if name in mask_places.FUNCTIONS and len(args) == 1 and not set(kwargs) & {"x", "y"}:
        return mask_places.places_of(lift, path, args[0], kwargs)
    if any(isinstance(value, Places) for value in (*args, *kwargs.values())) and name not in SHAPES:
        return mask_places.function_of_places(lift, name, args, kwargs)
    name = f"torch.{name}" if path.startswith("torch.") and f"torch.{name}" in OPERATIONS else name
    return apply(lift, name, args, keywords(kwargs)) if name in OPERATIONS else None


def apply(lift: Lifting, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`ops.name(*args, **kwargs)` of lifted values."""
    ignored = ("name", "out") if name in _DTYPED else ("name", "out", "dtype")
    words = {_WORDS.get(key, key): value for key, value in kwargs.items() if key not in ignored}
    return called(lift, f"ops.{name}", OPERATIONS[name], lift, *args, **words)


def _unary(lift: Lifting, x: Tensor, *, how: str, kind: str | None) -> Tensor:
    given = guarded(lift, x) if how in _EDGED else x
    result = elementwise(lift, how, (given,), kind or (x.kind if x.kind != "number" else "any"))
    return replace(result, is_host=x.is_host, position=None)


def _operator(lift: Lifting, x: Tensor, x2: Tensor, *, symbol: str) -> Any:
    return binary(lift, symbol, x, x2)


def _pair(lift: Lifting, x: Tensor, x2: Tensor, *, how: str, kind: str | None = None) -> Tensor:
    return elementwise(lift, how, (x, x2), kind or ("float" if "float" in (x.kind, x2.kind) else "any"))


def _reduction(
    lift: Lifting, x: Tensor, axis: Plain = None, keepdims: Plain = False, *, how: str, **rest: Plain
) -> Tensor:
    if set(rest) - {"ddof", "correction", "unbiased"} or rest.get("ddof") or rest.get("correction"):
        raise Refused(f"ops.{how} with further arguments is not known here.")
    if x.kind == "number":
        return x
    over = axes_of(x, axis)
    if how in ("argmax", "argmin"):
        if len(over) != 1 or x.valid is not None:
            raise Refused(f"ops.{how} over several dimensions or a selection is not known here.")
        lift.note("Where entries tie, argmax takes the first.")
    result = reduce(lift, how, x, over, keepdims)
    return replace(result, is_distinct=False, domain=None)


def _extreme_of_torch(lift: Lifting, x: Tensor, axis: Any = None, keepdims: Plain = False, *, how: str) -> Any:
    """`torch.max(x, dim)`: values and places; `torch.max(x, y)`: the larger of each two entries."""
    if axis is None:
        return _reduction(lift, x, how=how)
    if isinstance(axis, Tensor):
        return _pair(lift, x, axis, how=f"{how}imum")
    return Items(tuple(_reduction(lift, x, axis.value, keepdims, how=one) for one in (how, f"arg{how}")))


def _sort_of_torch(
    lift: Lifting, x: Whole, axis: Plain = -1, descending: Plain = False, stable: Plain = False
) -> Items:
    """Values and places."""
    return Items(tuple(ordered(lift, x, axis, descending, stable, how=how) for how in ("sort", "argsort")))


def matmul(lift: Lifting, x: Tensor, x2: Tensor) -> Tensor:
    left, right = x, x2
    if left.rank == 0 or right.rank == 0:
        raise WrongRank("A matrix product of a number.")
    if left.rank == 1 and right.rank == 1:
        product = binary(lift, "*", left, right)
        return reduce(lift, "sum", product, product.inner)
    first = left if left.rank > 1 else index(lift, left, [None, slice(None)])
    second = right if right.rank > 1 else index(lift, right, [slice(None), None])
    first, second = (front(lift, one) for one in (first, second))
    rows, columns = first.inner[-2], second.inner[-1]
    batches = [[axis.size for axis in one.inner[:-2]] for one in (first, second)]
    if batches[0] != batches[1]:
        raise Refused("A matrix product of arrays of different ranks is not known here.")
    outer = sorted({*first.axes, *second.axes}, key=lambda axis: axis.serial)
    nodes = []
    for one in (first, second):
        items = tuple(":" if axis in one.axes else None for axis in outer)
        nodes.append(one.node if None not in items or not one.axes else lift.graph.index(one.node, items))
    columns = Axis(columns.name, columns.size) if columns is rows else columns
    node = lift.graph.call("ops.matmul", *nodes)
    inner = (*first.inner[:-2], rows, columns)
    made = Tensor(node, (*outer, *inner), inner, "float")
    if left.rank == 1:
        made = index(lift, made, [Ellipsis, number(lift, 0), slice(None)])
    if right.rank == 1:
        made = index(lift, made, [Ellipsis, number(lift, 0)])
    return made


def _clip(lift: Lifting, x: Tensor, x_min: Any = None, x_max: Any = None) -> Tensor:
    if x_min is None or x_max is None:
        function, bound = ("minimum", x_max) if x_min is None else ("maximum", x_min)
        return elementwise(lift, function, (x, bound), x.kind)
    return replace(elementwise(lift, "clip", (x, x_min, x_max), x.kind), is_host=x.is_host)


def _cast(lift: Lifting, x: Tensor, dtype: Plain = None) -> Any:
    name = str(getattr(dtype, "__name__", getattr(dtype, "name", dtype))).replace("torch.", "")
    name = {"float": "float32", "int": "int32", "long": "int64"}.get(name, name)
    if name not in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"):
        raise Refused("A cast to a type that is not a constant.")
    if x.is_host and "int" in name:
        lift.learn("whole", x)
        name = lift.integers if dtype is int else name  # NumPy's own.
    made = cast(lift, x, name)
    return replace(made, is_host=False) if x.kind == "number" else made


def _convert(lift: Lifting, x: Tensor, dtype: Any = None, **rest: Any) -> Any:
    if x.kind == "number":
        arguments = {} if dtype is None else {"dtype": dtype.node}
        return Tensor(lift.graph.call("ops.convert_to_tensor", x.node, **arguments), (), (), "any")
    if dtype is not None and x.kind in ("any", "int", "bool"):
        x = called(lift, "cast", _cast, lift, x, dtype)
    return replace(x, is_host=False, is_series=False)


def _where(lift: Lifting, condition: Tensor, x1: Any = None, x2: Any = None, x: Any = None) -> Tensor:
    then = x if x1 is None else x1
    if then is None or x2 is None:
        raise Refused("where() with a condition alone gives as many rows as the data say.", "FO108")
    return where(lift, condition, tensor(lift, then), tensor(lift, x2))


def _one_hot(lift: Lifting, x: Tensor, num_classes: Size, **rest: Any) -> Tensor:
    lift.learn("index", x, num_classes.node)
    x = front(lift, x)
    fresh = Axis("class", num_classes.node)
    node = lift.graph.call("ops.one_hot", cast(lift, x, "int32").node, num_classes.node)
    return Tensor(node, (*x.dims, fresh), (*x.inner, fresh), "float")


def _take(lift: Lifting, x: Tensor, indices: Tensor, axis: Plain = None, **rest: Any) -> Tensor:
    if axis is None and x.rank != 1:
        raise WrongRank("take() without an axis flattens the array.")
    return gather(lift, x, (axis or 0) % x.rank, indices)


def _take_along(lift: Lifting, x: Tensor, indices: Tensor, axis: Plain = None) -> Tensor:
    (over,) = axes_of(x, axis)
    if x.axes != indices.axes or x.rank != indices.rank:
        raise Refused("take_along_axis() of arrays that depend on different loops.")
    place = lift.graph.const(x.dims.index(over) - len(x.dims))
    labels = {own: other for own, other in zip(indices.inner, x.inner, strict=True) if other is not over}
    codes = relabelled(indices, labels)
    node = lift.graph.call("ops.take_along_axis", front(lift, x).node, front(lift, codes).node, axis=place)
    fresh = codes.inner[x.inner.index(over)]
    return replace(relabelled(front(lift, x), {over: fresh}), node=node, domain=None)


def _moments(lift: Lifting, x: Tensor, axes: Plain = None, keepdims: Plain = False, **rest: Any) -> Items:
    return Items(tuple(_reduction(lift, x, axes, keepdims, how=how) for how in ("mean", "var")))


def _as(lift: Lifting, x: Tensor, *, kind: str, **rest: Any) -> Any:
    return x if x.kind in (kind, "number") else cast(lift, x, f"{kind}32")


def _count_nonzero(lift: Lifting, x: Tensor, axis: Plain = None, **rest: Any) -> Tensor:
    nonzero = x if x.kind == "bool" else binary(lift, "!=", x, number(lift, 0))
    return _reduction(lift, nonzero, axis, how="sum")


def _masked_fill(lift: Lifting, x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return where(lift, mask, value, x)


def _masked(lift: Lifting, x: Tensor, mask: Tensor, **rest: Any) -> Tensor:
    return index(lift, x, [mask])


def _take_of_torch(lift: Lifting, x: Tensor, axis: Plain, indices: Tensor, *, along: bool, **rest: Any) -> Tensor:
    """`torch.index_select(x, dim, index)`, and `torch.gather`, whose index is for each entry: `along` an axis."""
    return (_take_along if along else _take)(lift, x, indices, axis)


def along(lift: Lifting, x: Whole, axis: Plain = None, *, how: str, kind: str | None = None) -> Tensor:
    """`ops.how(x, axis)`, of which the result is of a kind, or of that of `x`."""
    if axis is None and how in ("cumsum", "cumprod", "flip", "normalize") and x.rank != 1:
        raise WrongRank(f"ops.{how} without an axis flattens the array.")
    if not x.rank:
        raise WrongRank(f"ops.{how} of a number.")
    place = lift.graph.const(x.dims.index(axis_of(x, axis, -1)) - len(x.dims))
    node = lift.graph.call(f"ops.{how}", x.node, axis=place)
    return replace(x, node=node, kind=kind or x.kind, position=None, domain=None, is_distinct=False)


def ordered(
    lift: Lifting,
    x: Whole,
    axis: Plain = None,
    order: Plain = None,
    stable: Plain = False,
    *,
    how: str,
    descending: Plain = False,
    direction: Plain = None,
    kind: Plain = None,
) -> Tensor:
    """`sort` or `argsort`; what `order` is, is torch's `descending`, TensorFlow's `direction` or NumPy's `kind`."""
    lift.exact(x)
    is_falling = descending or order is True or "DESCENDING" in (order, direction)
    if how == "sort":
        rising = along(lift, x, axis, how=how)
        return along(lift, rising, -1 if axis is None else axis, how="flip") if is_falling else rising
    made = along(lift, negative(lift, x) if is_falling else x, axis, how=how, kind="int")
    # Whether it promises to leave equal entries in their order, as `ops.argsort` does on every backend.
    if stable or {"stable", "mergesort"} & {order, kind}:
        lift.stable.add(made.node)
    else:
        lift.is_tie_sensitive = True
    return replace(made, is_distinct=True)


def cumulative_logsumexp(lift: Lifting, x: Whole, axis: Plain = None, reverse: Plain = False) -> Tensor:
    """`log(cumsum(exp(x)))`: for every place the logsumexp of those up to it, or from it on."""
    over = axis_of(x, axis)
    twin = Axis("twin", over.size)
    seen = binary(lift, ">=" if reverse else "<=", positions(lift, twin), positions(lift, over))
    terms = replace(relabelled(x, {over: twin}), valid=seen, position=None, domain=None)
    return replace(reduce(lift, "logsumexp", terms, (twin,)), inner=x.inner, valid=None, kind="float")


def top_k(lift: Lifting, x: Whole, k: Size, *more: Any, **rest: Any) -> Items:
    """The largest entries along the last axis, and their places."""
    x = front(lift, x)
    both = lift.graph.call("ops.top_k", x.node, k.node)
    fresh = Axis("top", k.node)
    dims, inner = (*x.dims[:-1], fresh), (*x.inner[:-1], fresh)
    lift.is_tie_sensitive = True
    parts = (lift.graph.index(both, (lift.graph.const(n),)) for n in range(2))
    values, places = (
        Tensor(node, dims, inner, kind, x.is_host) for node, kind in zip(parts, (x.kind, "int"), strict=True)
    )
    return Items((values, replace(places, is_distinct=True)))


def norm(
    lift: Lifting, x: Tensor, ord: Plain = None, axis: Plain = None, keepdims: Plain = False, p: Plain = None
) -> Tensor:
    over = axes_of(x, axis)
    if (p if ord is None else ord) not in (2, None, "euclidean", "fro"):
        raise Refused("A norm other than the Euclidean one is not known here.")
    if len(over) == 1 and x.valid is None and not x.is_loose and not lift.masks:
        # As it stands, with the library's own slope at 0: 0 in torch, NaN elsewhere.
        return replace(reduce(lift, "norm", x, over, keepdims), kind="float")
    squares = elementwise(lift, "square", (x,), x.kind)
    total = reduce(lift, "sum", squares, axes_of(squares, axis), keepdims)
    if not lift.is_careful:
        return replace(elementwise(lift, "sqrt", (guarded(lift, total),), "float"), is_host=x.is_host)
    # With a slope of 0 at 0, as that of torch's norm is.
    nonzero = binary(lift, "!=", total, number(lift, 0.0))  # NaN stays NaN.
    safe = elementwise(lift, "sqrt", (where(lift, nonzero, total, number(lift, 1.0)),), "float")
    return replace(where(lift, nonzero, safe, number(lift, 0.0)), is_host=x.is_host)


# What libraries call an argument that has one name here.
_WORDS = {
    "indices_or_sections": "sections", "chunks": "sections", "split_size_or_sections": "sections",
    "split_size": "sections", "num_or_size_splits": "sections", "depth": "num_classes", "end": "stop", "steps": "num",
    "perm": "axes", "dims": "axes", "begin": "start_indices", "size": "shape", "index": "indices",
}  # fmt: skip
_DTYPED = ("cast", "convert_to_tensor")
_UNARY = {
    None: ("abs", "square", "relu", "relu6", "sign", "negative", "floor", "ceil", "round", "stop_gradient",
           "zeros_like", "ones_like", "nan_to_num"),
    "float": ("exp", "expm1", "tanh", "sigmoid", "softplus", "sin", "cos", "tan", "erf", "silu", "gelu", "elu", "selu",
              "leaky_relu", "log_sigmoid", "arctan", "sinh", "cosh", "softsign", "hard_sigmoid"),
    "bool": ("isnan", "isfinite", "isinf", "logical_not"),
}  # fmt: skip
# Infinite value or slope at the edge: their arguments are kept away from it where the statement does not run.
_EDGED = (
    "sqrt", "log", "rsqrt", "log1p", "log2", "log10", "reciprocal", "arccos", "arcsin", "arccosh", "arctanh", "logit",
)  # fmt: skip
_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "logsumexp", "var", "std", "argmax", "argmin")
OPERATIONS: dict[str, Callable[..., Any]] = {
    **SHAPES,
    **{name: partial(_unary, how=name, kind=kind) for kind, names in _UNARY.items() for name in names},
    **{name: partial(_unary, how=name, kind="float") for name in _EDGED},
    **{name: partial(_reduction, how=name) for name in _REDUCTIONS},
    **{function: partial(_operator, symbol=symbol) for symbol, function in FUNCTIONS.items()},
    **{name: partial(_pair, how=name) for name in ("maximum", "minimum")},
    **{name: partial(_pair, how=name, kind="float") for name in ("arctan2", "logaddexp", "divide_no_nan")},
    **{name: partial(along, how=name) for name in ("cumsum", "cumprod", "flip")},
    **{name: partial(along, how=name, kind="float") for name in ("softmax", "log_softmax", "normalize")},
    **{name: partial(ordered, how=name) for name in ("sort", "argsort")},
    "torch.max": partial(_extreme_of_torch, how="max"), "torch.min": partial(_extreme_of_torch, how="min"),
    "torch.sort": _sort_of_torch, "matmul": matmul, "dot": matmul, "norm": norm, "clip": _clip,
    "cast": _cast, "convert_to_tensor": _convert, "where": _where, "masked_fill": _masked_fill,
    "stack": shaping.stack, "concatenate": shaping.concatenate, "expand_dims": shaping.expand,
    "squeeze": shaping.squeeze, "transpose": shaping.transpose, "swapaxes": shaping.swap,
    **dict.fromkeys(("reshape", "ravel", "flatten", "view"), shaping.flatten),
    "one_hot": _one_hot, "take": _take, "take_along_axis": _take_along, "linspace": shaping.linspace,
    "gather": partial(_take, axis=0),
    "index_select": partial(_take_of_torch, along=False), "gather_along": partial(_take_of_torch, along=True),
    "boolean_mask": _masked, "top_k": top_k,
    "cumulative_logsumexp": cumulative_logsumexp,
    "zeros": partial(shaping.filled, how="zeros"), "ones": partial(shaping.filled, how="ones"),
    "arange": shaping.arange, "eye": shaping.eye, "unstack": shaping.unstack,
    "as_float": partial(_as, kind="float"), "as_int": partial(_as, kind="int"), "count_nonzero": _count_nonzero,
    "moments": _moments, "diagonal": shaping.diagonal,
    "trace": shaping.trace, "split": split, "chunk": split, "split_by_size": partial(split, is_size=True),
    "split_by_count_or_sizes": shaping.split_as_tensorflow, "select_one": shaping.at_axis, "narrow": shaping.narrow,
    "slice": shaping.sliced,
}  # fmt: skip
