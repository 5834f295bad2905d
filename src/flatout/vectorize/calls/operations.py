"""Array operations on lifted tensors, by their names in `keras.ops`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flatout.vectorize.arrays import algebra
from flatout.vectorize.arrays.algebra import binary, cast, elementwise, front, guarded, number, where
from flatout.vectorize.arrays.along_axis import (
    KINDS,
    along,
    cumulative_logsumexp,
    norm,
    top_k,
    unit_of_tensorflow,
    unit_of_torch,
)
from flatout.vectorize.arrays.expression_graph import FUNCTIONS
from flatout.vectorize.arrays.indexing import gather, index
from flatout.vectorize.arrays.lifted_values import Axis, Host, Items, Known, Refused, Tensor, WrongRank
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.arrays.shaping import (
    SPLITTING,
    arange,
    axes_of,
    concatenate,
    diagonal,
    expand,
    eye,
    filled,
    flatten,
    linspace,
    squeeze,
    stack,
    swap,
    tensor,
    trace,
    transpose,
    unstack,
)

_UNARY = {
    "abs": None, "square": None, "exp": "float", "expm1": "float", "tanh": "float", "sigmoid": "float", "relu": None,
    "softplus": "float", "sin": "float", "cos": "float", "tan": "float", "sign": None, "negative": None, "floor": None,
    "ceil": None, "round": None, "isnan": "bool", "isfinite": "bool", "isinf": "bool", "erf": "float", "silu": "float",
    "gelu": "float", "elu": "float", "selu": "float", "leaky_relu": "float", "log_sigmoid": "float", "arctan": "float",
    "sinh": "float", "cosh": "float", "logical_not": "bool", "stop_gradient": None, "zeros_like": None,
    "ones_like": None, "relu6": None, "softsign": "float", "nan_to_num": None, "hard_sigmoid": "float",
}  # fmt: skip
# Infinite value or slope at the edge: their arguments are kept away from it where the statement does not run.
_EDGED = {
    "sqrt", "log", "rsqrt", "log1p", "log2", "log10", "reciprocal", "arccos", "arcsin", "arccosh", "arctanh", "logit",
}  # fmt: skip
_BINARY = {function: symbol for symbol, function in FUNCTIONS.items()}
_PAIRS = {"maximum": None, "minimum": None, "arctan2": "float", "logaddexp": "float"}
_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "any", "all", "logsumexp", "var", "std", "argmax", "argmin")


def known(name: str) -> bool:
    return (
        name in _UNARY
        or name in _EDGED
        or name in _BINARY
        or name in _PAIRS
        or name in _REDUCTIONS
        or (name in KINDS or name in _OTHERS)
    )


def apply(lift: Lifting, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`ops.name(*args, **kwargs)` of lifted values."""
    ignored = ("name", "out") if name in _DTYPED else ("name", "out", "dtype")
    kwargs = {_WORDS.get(key, key): value for key, value in kwargs.items() if key not in ignored}
    if name in _OTHERS:
        return _OTHERS[name](lift, *args, **kwargs)
    if "x" in kwargs:
        args = [kwargs.pop("x"), *args]
    if name in _UNARY or name in _EDGED:
        return _unary(lift, name, tensor(lift, args[0]), args[1:], kwargs)
    if name in _BINARY or name in _PAIRS:
        right = args[1] if len(args) > 1 else kwargs["x2"]
        values = [tensor(lift, args[0]), tensor(lift, right)]
        if name in _BINARY:
            return _matmul(lift, *values) if name == "matmul" else binary(lift, _BINARY[name], *values)
        kind = _PAIRS[name] or ("float" if "float" in (values[0].kind, values[1].kind) else "any")
        return elementwise(lift, name, values, kind)
    if name in _REDUCTIONS:
        return _reduction(lift, name, *args, **kwargs)
    return along(lift, name, *args, **kwargs)


def _unary(lift: Lifting, name: str, x: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    if args or kwargs:
        raise Refused(f"ops.{name} with further arguments is not known here.")
    if name in _EDGED:
        return replace(elementwise(lift, name, (guarded(lift, x),), "float"), is_host=x.is_host)
    kind = _UNARY[name] or (x.kind if x.kind != "number" else "any")
    result = elementwise(lift, name, (x,), kind)
    return replace(result, is_host=x.is_host, position=None)


def _reduction(lift: Lifting, name: str, x: Any, axis: Any = None, keepdims: Any = None, **rest: Any) -> Tensor:
    if set(rest) - {"dtype", "ddof", "correction", "unbiased"} or (rest.get("ddof") or rest.get("correction")):
        raise Refused(f"ops.{name} with further arguments is not known here.")
    x = tensor(lift, x)
    if x.kind == "number":
        return x
    over = axes_of(x, axis)
    keep = isinstance(keepdims, Known) and bool(keepdims.value)
    if name in ("argmax", "argmin"):
        if len(over) != 1 or x.valid is not None:
            raise Refused(f"ops.{name} over several dimensions or a selection is not known here.")
        lift.note("Where entries tie, argmax takes the first.")
    result = reduce(lift, name, x, over, keep)
    return replace(result, is_distinct=False, domain=None)


def _matmul(lift: Lifting, left: Tensor, right: Tensor) -> Tensor:
    if left.rank == 0 or right.rank == 0:
        raise WrongRank("A matrix product of a number.")
    if left.rank == 1 and right.rank == 1:
        return (
            reduce(lift, "sum", binary(lift, "*", left, right), (left.inner[-1],))
            if (left.inner[-1].size is right.inner[-1].size)
            else _dot(lift, left, right)
        )
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


def _dot(lift: Lifting, x: Any, x2: Any) -> Tensor:
    a, b = tensor(lift, x), tensor(lift, x2)
    if a.rank == 1 and b.rank == 1:
        product = binary(lift, "*", a, b)
        return reduce(lift, "sum", product, product.inner)
    return _matmul(lift, a, b)


def _clip(lift: Lifting, x: Any, x_min: Any = None, x_max: Any = None) -> Tensor:
    x = tensor(lift, x)
    nothing = number(lift, 0)
    x_min, x_max = (None if isinstance(one, Known) and one.value is None else one for one in (x_min, x_max))
    low, high = (bound if bound is not None else nothing for bound in (x_min, x_max))
    if x_min is None or x_max is None:
        function, bound = ("minimum", high) if x_min is None else ("maximum", low)
        return elementwise(lift, function, (x, bound), x.kind)
    return replace(elementwise(lift, "clip", (x, low, high), x.kind), is_host=x.is_host)


def _cast(lift: Lifting, x: Any, dtype: Any = None) -> Any:
    name = (
        str(getattr(dtype.value, "__name__", getattr(dtype.value, "name", dtype.value)))
        if isinstance(dtype, Known)
        else ""
    )
    name = {"float": "float32", "int": "int32", "bool": "bool", "torch.float32": "float32", "torch.long": "int64"}.get(
        name.replace("torch.", ""), name.replace("torch.", "")
    )
    if name not in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"):
        raise Refused("A cast to a type that is not a constant.")
    x = tensor(lift, x)
    if x.kind == "number":
        kind = "float" if "float" in name else "bool" if name == "bool" else "int"
        return Tensor(lift.graph.call("ops.cast", x.node, lift.graph.const(name)), (), (), kind)
    return cast(lift, x, name)


def _convert(lift: Lifting, x: Any, dtype: Any = None, **rest: Any) -> Any:
    made = tensor(lift, x)
    if made.kind == "number":
        arguments = {} if dtype is None else {"dtype": dtype.node}
        return Tensor(lift.graph.call("ops.convert_to_tensor", made.node, **arguments), (), (), "any")
    if dtype is not None and made.kind in ("any", "int", "bool"):
        made = _cast(lift, made, dtype)
    return replace(made, is_host=False, is_series=False)


def _where(lift: Lifting, condition: Any, x1: Any = None, x2: Any = None, x: Any = None) -> Tensor:
    then = x if x1 is None else x1
    if then is None or x2 is None:
        raise Refused("where() with a condition alone gives as many rows as the data say.", "FO108")
    return where(lift, tensor(lift, condition), tensor(lift, then), tensor(lift, x2))


def _one_hot(lift: Lifting, x: Any, num_classes: Any = None, **rest: Any) -> Tensor:
    x = tensor(lift, x)
    if not isinstance(num_classes, (Host, Known)):
        raise Refused("one_hot() with a number of classes that depends on the data.", "FO108")
    if x.domain:
        lift.hints.append(("index", x.domain, num_classes.node))
    x = front(lift, x)
    fresh = Axis("class", num_classes.node)
    node = lift.graph.call("ops.one_hot", cast(lift, x, "int32").node, num_classes.node)
    return Tensor(node, (*x.dims, fresh), (*x.inner, fresh), "float")


def _take(lift: Lifting, x: Any, indices: Any, axis: Any = None, **rest: Any) -> Tensor:
    x, codes = tensor(lift, x), tensor(lift, indices)
    if axis is None and x.rank != 1:
        raise WrongRank("take() without an axis flattens the array.")
    place = axis.value if isinstance(axis, Known) and axis.value is not None else 0
    return gather(lift, x, place % x.rank, codes)


def _take_along(lift: Lifting, x: Any, indices: Any, axis: Any = None) -> Tensor:
    x, codes = tensor(lift, x), tensor(lift, indices)
    (over,) = axes_of(x, axis)
    if x.axes != codes.axes or x.rank != codes.rank:
        raise Refused("take_along_axis() of arrays that depend on different loops.")
    place = lift.graph.const(x.dims.index(over) - len(x.dims))
    labels = {axis_of: code for axis_of, code in zip(codes.inner, x.inner, strict=True) if code is not over}
    codes = algebra.relabelled(codes, labels)
    node = lift.graph.call("ops.take_along_axis", front(lift, x).node, front(lift, codes).node, axis=place)
    fresh = codes.inner[x.inner.index(over)]
    swap = {over: fresh}
    return replace(algebra.relabelled(front(lift, x), swap), node=node, domain=None)


def _moments(lift: Lifting, x: Any, axes: Any = None, **rest: Any) -> Items:
    words = {"keepdims": rest["keepdims"]} if "keepdims" in rest else {}
    return Items(tuple(_reduction(lift, how, x, axes, **words) for how in ("mean", "var")))


def _as(kind: str) -> Callable[..., Any]:
    def convert(lift: Lifting, x: Any, **rest: Any) -> Any:
        x = tensor(lift, x)
        return x if x.kind in (kind, "number") else cast(lift, x, {"float": "float32", "int": "int32"}[kind])

    return convert


def _count_nonzero(lift: Lifting, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    x = tensor(lift, x)
    nonzero = x if x.kind == "bool" else binary(lift, "!=", x, number(lift, 0))
    return _reduction(lift, "sum", nonzero, axis)


def _squared_difference(lift: Lifting, x: Any, x2: Any) -> Tensor:
    off = binary(lift, "-", tensor(lift, x), tensor(lift, x2))
    return elementwise(lift, "square", (off,), off.kind)


# What libraries call an argument that has one name here.
_WORDS = {
    "indices_or_sections": "sections", "chunks": "sections", "split_size_or_sections": "sections",
    "split_size": "sections", "num_or_size_splits": "sections", "depth": "num_classes", "end": "stop", "steps": "num",
    "perm": "axes", "dims": "axes", "begin": "start_indices", "size": "shape", "index": "indices",
}  # fmt: skip
_DTYPED = ("cast", "convert_to_tensor")
_OTHERS: dict[str, Callable[..., Any]] = {
    "stack": stack, "concatenate": concatenate, "dot": _dot, "norm": norm, "clip": _clip, "cast": _cast,
    "convert_to_tensor": _convert, "where": _where, "expand_dims": expand, "squeeze": squeeze,
    "transpose": transpose, "swapaxes": swap, "reshape": flatten, "ravel": flatten, "flatten": flatten, "view": flatten,
    "one_hot": _one_hot, "take": _take, "take_along_axis": _take_along, "linspace": linspace,
    "masked_fill": lambda lift, x, mask, value: where(lift, *(tensor(lift, one) for one in (mask, value, x))),
    "gather": lambda lift, x, indices, axis=None, **rest: _take(lift, x, indices, axis or number(lift, 0)),
    "index_select": lambda lift, x, axis, indices: _take(lift, x, indices, axis),
    # torch's `gather`, whose axis comes before its indices.
    "gather_along": lambda lift, x, axis, indices, **rest: _take_along(lift, x, indices, axis),
    "boolean_mask": lambda lift, x, mask, **rest: index(lift, tensor(lift, x), [tensor(lift, mask)]),
    "cumulative_logsumexp": cumulative_logsumexp, "logcumsumexp": cumulative_logsumexp, "top_k": top_k,
    "zeros": filled("zeros"), "ones": filled("ones"), "arange": arange, "eye": eye, "unstack": unstack,
    "as_float": _as("float"), "as_int": _as("int"), "count_nonzero": _count_nonzero, "moments": _moments,
    "squared_difference": _squared_difference, **SPLITTING, "diagonal": diagonal, "trace": trace,
    "normalize_of_torch": unit_of_torch, "normalize_of_tensorflow": unit_of_tensorflow,
    "divide_no_nan": lambda lift, a, b, **rest: elementwise(lift, "divide_no_nan", (a, b), "float"),
}  # fmt: skip
