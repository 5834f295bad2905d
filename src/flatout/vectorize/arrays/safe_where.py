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
    made = _Sheltered(lift, replace(named(mask), valid=None)).of(tensor)
    return replace(tensor, node=made.node, dims=made.dims)


class _Sheltered:
    def __init__(self, lift: Lifting, mask: Tensor):
        self._lift = lift
        self._mask = mask
        self._done: dict[tuple[Node, tuple[int, ...]], Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        if not _may_be_nan(tensor) or not set(self._mask.dims) <= set(tensor.dims):
            return tensor
        key = tensor.node, tuple(axis.serial for axis in tensor.dims)
        if key not in self._done:
            self._done[key] = self._made(tensor)
        made = self._done[key]
        return replace(tensor, node=made.node, dims=made.dims)

    def _made(self, tensor: Tensor) -> Tensor:
        made = self._lift.made.get(tensor.node)
        if made is not None:
            # Behind an index the same array goes by other names.
            labels = dict(zip(made.dims, tensor.dims, strict=True))
            parts = [relabelled(part, labels) for part in made.parts]
            told = [set(self._mask.dims) <= set(part.dims) for part in parts if _may_be_nan(part)]
            if any(told):
                again = made.again([self.of(part) for part in parts], labels)
                # An array that the mask cannot be told for stays as it is, and what comes of it is replaced.
                return again if all(told) else self._chosen(again)
        if _is_chosen_by(tensor.node, self._mask.node):
            return tensor
        return self._chosen(tensor)

    def _chosen(self, tensor: Tensor) -> Tensor:
        one = number(self._lift, 1.0)
        return replace(where(self._lift, self._mask, named(tensor), one), inner=tensor.inner)


def _may_be_nan(part: Tensor) -> bool:
    return part.kind not in ("number", "bool", "int") and part.node.kind != "const" and bool(part.dims)


def _is_chosen_by(node: Node, mask: Node) -> bool:
    return node.kind == "call" and node.parts[0] == "ops.where" and node.parts[1][0] is mask
