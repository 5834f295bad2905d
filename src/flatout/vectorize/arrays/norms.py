"""Euclidean norms, and arrays that are divided by them, as each library means them where the norm is 0."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .algebra import binary, elementwise, guarded, number, where
from .lifted_values import Axis, Known, Refused, Tensor
from .lifting import Lifting
from .reductions import reduce
from .shaping import axes_of, tensor


def norm(lift: Lifting, x: Any, ord: Any = None, axis: Any = None, keepdims: Any = None, p: Any = None) -> Tensor:
    order = ord if ord is not None else p
    if order is not None and (not isinstance(order, Known) or order.value not in (2, None, "euclidean", "fro")):
        raise Refused("A norm other than the Euclidean one is not known here.")
    x = tensor(lift, x)
    keeps = isinstance(keepdims, Known) and bool(keepdims.value)
    over = axes_of(x, axis)
    if len(over) == 1 and x.valid is None and not x.is_loose and not lift.masks:
        return _plain(lift, x, over[0], keeps)
    squares = elementwise(lift, "square", (x,), x.kind)
    total = reduce(lift, "sum", squares, axes_of(squares, axis), keeps)
    root = _root(lift, total) if lift.is_careful else elementwise(lift, "sqrt", (guarded(lift, total),), "float")
    return replace(root, is_host=x.is_host)


def _plain(lift: Lifting, x: Tensor, over: Axis, keeps: bool) -> Tensor:
    """The norm as it stands, whose slope at 0 is the library's own: 0 in torch, NaN elsewhere."""
    graph = lift.graph
    at = x.dims.index(over)
    words = {"keepdims": graph.const(True)} if keeps else {}
    node = graph.call("ops.norm", x.node, axis=graph.const(at - len(x.dims)), **words)
    one = (Axis("one", graph.const(1)),) if keeps else ()
    dims = (*x.dims[:at], *one, *x.dims[at + 1 :])
    place = x.inner.index(over)
    inner = (*x.inner[:place], *one, *x.inner[place + 1 :])
    return Tensor(node, dims, inner, "float", x.is_host)


def _root(lift: Lifting, total: Tensor) -> Tensor:
    """A square root whose slope at 0 is 0, as that of torch's norm is."""
    nonzero = elementwise(lift, "not_equal", (total, number(lift, 0.0)), "bool", "!=")  # NaN stays NaN.
    safe = elementwise(lift, "sqrt", (where(lift, nonzero, total, number(lift, 1.0)),), "float")
    return where(lift, nonzero, safe, number(lift, 0.0))


def unit_of_torch(lift: Lifting, x: Any, p: Any = None, axis: Any = None, eps: Any = None, **rest: Any) -> Tensor:
    """`torch.nn.functional.normalize`: divided by the norm, whose slope at 0 is 0 in torch."""
    x = tensor(lift, x)
    total = _squares(lift, x, p, axis if axis is not None else number(lift, 1))
    least = eps if eps is not None else number(lift, 1e-12)
    return binary(lift, "/", x, elementwise(lift, "maximum", (_root(lift, total), least), "float"))


def unit_of_tensorflow(lift: Lifting, x: Any, axis: Any = None, epsilon: Any = None, **rest: Any) -> Tensor:
    """`tf.math.l2_normalize`: the square of the norm is kept away from 0, not the norm."""
    x = tensor(lift, x)
    least = epsilon if epsilon is not None else number(lift, 1e-12)
    total = elementwise(lift, "maximum", (_squares(lift, x, None, axis), least), "float")
    return binary(lift, "*", x, elementwise(lift, "rsqrt", (total,), "float"))


def _squares(lift: Lifting, x: Tensor, p: Any, axis: Any) -> Tensor:
    if p is not None and (not isinstance(p, Known) or p.value != 2):
        raise Refused("A norm other than the Euclidean one is not known here.")
    if x.valid is not None or x.is_loose:
        raise Refused("A selection of elements is normalized.", "FO108")
    squares = elementwise(lift, "square", (x,), x.kind)
    return reduce(lift, "sum", squares, axes_of(squares, axis), keepdims=True)
