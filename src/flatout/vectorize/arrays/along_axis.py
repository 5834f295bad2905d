"""Functions along an axis: softmax, cumulative sums, sorts and the largest few, Euclidean norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algebra import binary, elementwise, front, guarded, negative, number, relabelled, where
from .lifted_values import Axis, Host, Items, Known, Refused, Tensor, WrongRank
from .lifting import Lifting
from .ragged import positions
from .reductions import reduce
from .shaping import axes_of, axis_of, tensor

KINDS = {
    "softmax": "float", "log_softmax": "float", "cumsum": None, "cumprod": None, "flip": None, "sort": None,
    "argsort": "int", "normalize": "float",
}  # fmt: skip
# What a sort may be told beside its axis.
_ORDERS = (None, True, False, 2, "quicksort", "stable", "mergesort", "ASCENDING", "DESCENDING")


def along(lift: Lifting, name: str, x: Any, axis: Any = None, **rest: Any) -> Tensor:
    """`ops.name(x, axis)` of a lifted tensor."""
    x = tensor(lift, x)
    if x.valid is not None or x.is_loose:
        raise Refused(f"ops.{name} of a selection of elements has no masked form here.", "FO108")
    if any(isinstance(value, Known) and value.value not in _ORDERS for value in rest.values()):
        raise Refused(f"ops.{name} with further arguments is not known here.")
    if _is_descending(rest):
        if name == "argsort":
            rest = {word: value for word, value in rest.items() if word not in ("descending", "direction")}
            return along(lift, name, negative(lift, x), axis, **rest)
        if name == "sort":
            return along(lift, "flip", along(lift, name, x, axis), axis if axis is not None else number(lift, -1))
        raise Refused(f"ops.{name} in descending order is not known here.")
    if axis is None and name in ("cumsum", "cumprod", "flip", "normalize") and x.rank != 1:
        raise WrongRank(f"ops.{name} without an axis flattens the array.")
    if not x.rank:
        raise WrongRank(f"ops.{name} of a number.")
    over = x.inner[-1:] if axis is None else axes_of(x, axis)
    if len(over) != 1:
        raise Refused(f"ops.{name} over several dimensions is not known here.")
    place = lift.graph.const(x.dims.index(over[0]) - len(x.dims))
    node = lift.graph.call(f"ops.{name}", x.node, axis=place)
    if name == "argsort" and _is_stable(rest):
        lift.stable.add(node)
    elif name == "argsort":
        lift.is_tie_sensitive = True
    return replace(x, node=node, kind=KINDS[name] or x.kind, position=None, domain=None, is_distinct=name == "argsort")


def _is_stable(words: dict[str, Any]) -> bool:
    """Whether a sort promises to leave equal entries in their order, as `ops.argsort` does on every backend."""
    said = [value.value for word in ("kind", "stable") if isinstance(value := words.get(word), Known)]
    return any(value is True or value in ("stable", "mergesort") for value in said)


def _is_descending(words: dict[str, Any]) -> bool:
    """Whether torch's `descending` or TensorFlow's `direction` asks for the largest first."""
    order = words.get("descending") or words.get("direction")
    if order is not None and not isinstance(order, Known):
        raise Refused("An order that depends on the data.")
    return order is not None and order.value in (True, "DESCENDING")


def cumulative_logsumexp(lift: Lifting, x: Any, axis: Any = None, reverse: Any = None, **rest: Any) -> Tensor:
    """`log(cumsum(exp(x)))`: for every place the logsumexp of those up to it, or from it on."""
    x = tensor(lift, x)
    over = axis_of(x, axis)
    if rest or x.valid is not None or x.is_loose:
        raise Refused("A running logsumexp of a selection, or with further arguments.", "FO108")
    backwards = isinstance(reverse, Known) and bool(reverse.value)
    twin = Axis("twin", over.size)
    seen = binary(lift, ">=" if backwards else "<=", positions(lift, twin), positions(lift, over))
    terms = replace(relabelled(x, {over: twin}), valid=seen, position=None, domain=None)
    return replace(reduce(lift, "logsumexp", terms, (twin,)), inner=x.inner, valid=None, kind="float")


def top_k(lift: Lifting, x: Any, k: Any = None, *more: Any, **rest: Any) -> Items:
    """The largest entries along the last axis, and their places."""
    x = front(lift, tensor(lift, x))
    count = k if k is not None else rest.get("k")
    if x.valid is not None or not isinstance(count, (Known, Host)):
        raise Refused("top_k() of a selection, or with a count from the data.", "FO108")
    both = lift.graph.call("ops.top_k", x.node, count.node)
    fresh = Axis("top", count.node)
    dims, inner = (*x.dims[:-1], fresh), (*x.inner[:-1], fresh)
    lift.is_tie_sensitive = True
    parts = (lift.graph.index(both, (lift.graph.const(n),)) for n in range(2))
    values, places = (
        Tensor(node, dims, inner, kind, x.is_host) for node, kind in zip(parts, (x.kind, "int"), strict=True)
    )
    return Items((values, replace(places, is_distinct=True)))


def norm(lift: Lifting, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = None, p: Any = None) -> Tensor:
    x = tensor(lift, x)
    keeps = isinstance(keepdims, Known) and bool(keepdims.value)
    over = axes_of(x, axis)
    _refuse_other(p if ord is None else ord)
    if len(over) == 1 and x.valid is None and not x.is_loose and not lift.masks:
        # As it stands, with the library's own slope at 0: 0 in torch, NaN elsewhere.
        return replace(reduce(lift, "norm", x, over, keeps), kind="float")
    total = _squares(lift, x, axis, keeps)
    root = _root(lift, total) if lift.is_careful else elementwise(lift, "sqrt", (guarded(lift, total),), "float")
    return replace(root, is_host=x.is_host)


def _root(lift: Lifting, total: Tensor) -> Tensor:
    """A square root whose slope at 0 is 0, as that of torch's norm is."""
    nonzero = binary(lift, "!=", total, number(lift, 0.0))  # NaN stays NaN.
    safe = elementwise(lift, "sqrt", (where(lift, nonzero, total, number(lift, 1.0)),), "float")
    return where(lift, nonzero, safe, number(lift, 0.0))


def unit_of_torch(lift: Lifting, x: Any, p: Any = None, axis: Any = None, eps: Any = None, **rest: Any) -> Tensor:
    """`torch.nn.functional.normalize`: divided by the norm, whose slope at 0 is 0 in torch."""
    x = tensor(lift, x)
    _refuse_other(p)
    total = _squares(lift, x, 1 if axis is None else axis, True)
    least = eps if eps is not None else number(lift, 1e-12)
    return binary(lift, "/", x, elementwise(lift, "maximum", (_root(lift, total), least), "float"))


def unit_of_tensorflow(lift: Lifting, x: Any, axis: Any = None, epsilon: Any = None, **rest: Any) -> Tensor:
    """`tf.math.l2_normalize`: the square of the norm is kept away from 0, not the norm."""
    x = tensor(lift, x)
    least = epsilon if epsilon is not None else number(lift, 1e-12)
    total = elementwise(lift, "maximum", (_squares(lift, x, axis, True), least), "float")
    return binary(lift, "*", x, elementwise(lift, "rsqrt", (total,), "float"))


def _refuse_other(order: Any) -> None:
    if order is not None and (not isinstance(order, Known) or order.value not in (2, None, "euclidean", "fro")):
        raise Refused("A norm other than the Euclidean one is not known here.")


def _squares(lift: Lifting, x: Tensor, axis: Any, keepdims: bool) -> Tensor:
    squares = elementwise(lift, "square", (x,), x.kind)
    return reduce(lift, "sum", squares, axes_of(squares, axis), keepdims)
