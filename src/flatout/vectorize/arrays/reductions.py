"""Reductions of lifted tensors; elements that do not exist do not count.

Nor may they reach a gradient: `where(mask, square(t - p), 0)` has the right value and, where `t` is NaN, the gradient 0
times NaN. With what is left out replaced at its source, before the arithmetic, the gradient is right, too: `where(mask,
square(where(mask, t, 1) - where(mask, p, 1)), 0)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .algebra import all_of, binary, cast, elementwise, named, not_, number, relabelled, where
from .expression_graph import Node
from .lifted_values import Axis, Host, Refused, Tensor
from .lifting import Lifting, Made

# Stands for minus infinity where a maximum must not see an element: infinities turn gradients into NaN.
_LOWEST = -1e30
FILL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": _LOWEST, "logsumexp": _LOWEST, "min": -_LOWEST}


def reduce(lift: Lifting, how: str, tensor: Tensor, over: Sequence[Axis], keepdims: bool = False) -> Tensor:
    """A reduction over some of a tensor's dimensions; elements that do not exist do not count."""
    if not over:
        return tensor
    if tensor.is_series:
        tensor = replace(tensor, is_series=False)
        if how in FILL and tensor.kind in ("float", "any"):
            missing = elementwise(lift, "isnan", (replace(tensor, valid=None, is_loose=False, inner=()),), "bool")
            tensor = replace(tensor, valid=all_of(lift, tensor.valid, not_(lift, missing)))
    if tensor.is_loose and not set(tensor.inner) <= set(over):
        raise Refused("A selection of elements is used as an array of its own, not reduced as a whole.", "FO108")
    if tensor.valid is not None and set(tensor.valid.dims) & set(over):
        return _masked(lift, how, tensor, tensor.valid, over, keepdims)
    if tensor.kind == "bool" and how in ("sum", "mean"):
        tensor = cast(lift, tensor, "float32")
    return _plain(lift, how, tensor, over, keepdims)


def _plain(lift: Lifting, how: str, tensor: Tensor, over: Sequence[Axis], keepdims: bool) -> Tensor:
    graph = lift.graph
    places = sorted(tensor.dims.index(axis) - len(tensor.dims) for axis in over)
    arguments: dict[str, Node] = {}
    if len(places) < len(tensor.dims):
        numbers = [graph.const(place) for place in places]
        arguments["axis"] = numbers[0] if len(numbers) == 1 else graph.sequence(tuple(numbers))
    if keepdims:
        arguments["keepdims"] = graph.const(True)
        ones = {axis: Axis(axis.name, graph.const(1)) for axis in over}
        dims, inner = (tuple(ones.get(axis, axis) for axis in group) for group in (tensor.dims, tensor.inner))
    else:
        dims, inner = (tuple(axis for axis in group if axis not in over) for group in (tensor.dims, tensor.inner))
    node = graph.call(f"ops.{how}", tensor.node, **arguments)
    kind = {"argmax": "int", "argmin": "int", "any": "bool", "all": "bool", "mean": "float", "logsumexp": "float"}
    if tensor.node in lift.rounded and how in ("sum", "max", "min"):
        lift.rounded.add(node)
    if not keepdims:

        def again(parts: list[Tensor], labels: dict[Axis, Axis]) -> Tensor:
            return _plain(lift, how, named(parts[0]), [labels.get(axis, axis) for axis in over], False)

        lift.made.setdefault(node, Made(dims, (replace(tensor, valid=None),), again))
    return Tensor(node, dims, inner, kind.get(how, tensor.kind), tensor.is_host, tensor.valid)


def _masked(lift: Lifting, how: str, tensor: Tensor, valid: Tensor, over: Sequence[Axis], keepdims: bool) -> Tensor:
    bare = replace(tensor, valid=None, is_loose=False)
    if how in ("any", "all"):
        symbol, spare = ("&", valid) if how == "any" else ("|", not_(lift, valid))
        joined = binary(lift, symbol, named(bare if bare.kind == "bool" else cast(lift, bare, "bool")), spare)
        return _plain(lift, how, replace(joined, inner=bare.inner), over, keepdims)
    if how in ("var", "std"):
        mean = _masked(lift, "mean", tensor, valid, over, False)
        off = elementwise(lift, "square", (binary(lift, "-", named(bare), named(mean)),), "float")
        spread = _masked(lift, "mean", replace(off, inner=bare.inner), valid, over, keepdims)
        return elementwise(lift, "sqrt", (spread,), "float") if how == "std" else spread
    if how not in FILL:
        raise Refused(f"ops.{how} of a selection of elements has no masked form here.", "FO108")
    if how in ("sum", "mean") and bare.kind == "bool":
        bare = cast(lift, bare, "float32")
    is_counted = bare.kind == "int" and how in ("sum", "prod")  # A float would make floats of whole numbers.
    fill = int(FILL[how]) if is_counted else FILL[how]
    kept = where(lift, valid, named(sheltered(lift, valid, bare)), number(lift, fill))
    kept = replace(kept, inner=bare.inner)
    if how != "mean":
        return _plain(lift, how, kept, over, keepdims)
    if keepdims:
        raise Refused("keepdims=True in a mean over a selection has no masked form here.", "FO108")
    total = _plain(lift, "sum", kept, over, keepdims)
    count = replace(counted(lift, valid, over), is_host=valid.is_host)
    least = elementwise(lift, "maximum", (count, number(lift, 1.0)), "float")
    mean = elementwise(lift, "divide", (named(total), least), "float", "/")
    if lift.is_exact:
        mean = where(lift, binary(lift, ">", count, number(lift, 0.0)), mean, number(lift, float("nan")))
    else:
        # No element selected: the mean is 0 here, where the original has NaN.
        lift.note("Where nothing is selected, the original's mean is NaN and the rewrite's is 0.")
    return replace(mean, inner=total.inner)


def counted(lift: Lifting, keep: Tensor, axes: Sequence[Axis]) -> Tensor:
    """How many elements are selected."""
    whole = replace(cast(lift, keep, "float32"), inner=(), is_series=False)
    total = reduce(lift, "sum", whole, [axis for axis in axes if axis in whole.dims])
    for axis in axes:
        if axis not in whole.dims:
            total = binary(lift, "*", total, Host(axis.size))  # type: ignore[arg-type]
    return replace(total, is_host=True)


def sheltered(lift: Lifting, mask: Tensor, tensor: Tensor) -> Tensor:
    """The same tensor where `mask` holds, and what comes of ones elsewhere."""
    if not lift.is_careful or not lift.carries_gradient(tensor.node):
        return tensor
    condition = replace(named(mask), valid=None)
    done: dict[tuple[Node, tuple[int, ...]], Tensor] = {}

    def has_mask(part: Tensor) -> bool:
        return set(condition.dims) <= set(part.dims)

    def chosen(part: Tensor) -> Tensor:
        return replace(where(lift, condition, named(part), number(lift, 1.0)), inner=part.inner)

    def again(part: Tensor) -> Tensor:
        if not _may_be_nan(part) or not has_mask(part):
            return part
        key = part.node, tuple(axis.serial for axis in part.dims)
        if key not in done:
            done[key] = made_again(part)
        return replace(part, node=done[key].node, dims=done[key].dims)

    def made_again(tensor: Tensor) -> Tensor:
        made = lift.made.get(tensor.node)
        if made is not None:
            # Behind an index the same array goes by other names.
            labels = dict(zip(made.dims, tensor.dims, strict=True))
            parts = [relabelled(part, labels) for part in made.parts]
            told = [has_mask(part) for part in parts if _may_be_nan(part)]
            if any(told):
                found = made.again([again(part) for part in parts], labels)
                # An array that the mask cannot be told for stays as it is, and what comes of it is replaced.
                return found if all(told) else chosen(found)
        node = tensor.node
        is_chosen = node.kind == "call" and node.parts[0] == "ops.where" and node.parts[1][0] is condition.node
        return tensor if is_chosen else chosen(tensor)

    found = again(tensor)
    return replace(tensor, node=found.node, dims=found.dims)


def _may_be_nan(part: Tensor) -> bool:
    return part.kind not in ("number", "bool", "int") and part.node.kind != "const" and bool(part.dims)
