"""The double where: what a selection leaves out is replaced before the arithmetic, so that no NaN reaches a gradient.

`where(mask, square(t - p), 0)` has the right value and, where `t` is NaN, the gradient 0 times NaN. With it replaced
at its source, `where(mask, square(where(mask, t, 1) - where(mask, p, 1)), 0)`, the gradient is right, too.
"""

from __future__ import annotations

from dataclasses import replace

from .algebra import named, number, relabelled, where
from .expression_graph import Node
from .lifted_values import Tensor
from .lifting import Lifting


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
