"""Functions along an axis: softmax, cumulative sums, sorts and the largest few, Euclidean norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algebra import binary, elementwise, front, guarded, negative, number, relabelled, where
from .indexing import positions
from .lifted_values import Axis, Items, Plain, Refused, Size, Tensor, Whole, WrongRank
from .lifting import Lifting
from .reductions import reduce
from .shaping import axes_of, axis_of


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
    _refuse_other(p if ord is None else ord)
    if len(over) == 1 and x.valid is None and not x.is_loose and not lift.masks:
        # As it stands, with the library's own slope at 0: 0 in torch, NaN elsewhere.
        return replace(reduce(lift, "norm", x, over, keepdims), kind="float")
    total = _squares(lift, x, axis, keepdims)
    root = _root(lift, total) if lift.is_careful else elementwise(lift, "sqrt", (guarded(lift, total),), "float")
    return replace(root, is_host=x.is_host)


def _root(lift: Lifting, total: Tensor) -> Tensor:
    """A square root whose slope at 0 is 0, as that of torch's norm is."""
    nonzero = binary(lift, "!=", total, number(lift, 0.0))  # NaN stays NaN.
    safe = elementwise(lift, "sqrt", (where(lift, nonzero, total, number(lift, 1.0)),), "float")
    return where(lift, nonzero, safe, number(lift, 0.0))


def _refuse_other(order: Plain) -> None:
    if order not in (2, None, "euclidean", "fro"):
        raise Refused("A norm other than the Euclidean one is not known here.")


def _squares(lift: Lifting, x: Tensor, axis: Plain, keepdims: bool) -> Tensor:
    squares = elementwise(lift, "square", (x,), x.kind)
    return reduce(lift, "sum", squares, axes_of(squares, axis), keepdims)
