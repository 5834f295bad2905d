"""Arithmetic of lifted tensors: broadcasting by what the dimensions mean, selection, and reductions with masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .graph import FUNCTIONS, Graph, Node
from .values import Axis, Host, Refused, Static, Tensor

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
# Stands for minus infinity where a maximum must not see an element: infinities turn gradients into NaN.
_LOWEST = -1e30
_FILL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": _LOWEST, "logsumexp": _LOWEST, "min": -_LOWEST}


@dataclass(frozen=True)
class Made:
    """How an array was computed from others, to compute it again from what stands in for them.

    Attributes:
        dims: Of the result, in the order of the array.
        parts: The arrays it was computed from, with dimensions by the names that the result has for them.
        again: The same of other arrays, with other names for the dimensions.
    """

    dims: tuple[Axis, ...]
    parts: tuple[Tensor, ...]
    again: Callable[[list[Tensor], dict[Axis, Axis]], Tensor]


class Lifting:
    """What is known while one function is lifted.

    Attributes:
        graph: Where the expressions are.
        masks: The conditions under which the current statement runs, one for each enclosing loop or branch.
        notes: What the user shall know about the rewrite.
        changes: What was changed, by rule code; empty: there is nothing to rewrite.
        hints: What was learned of the values that a parameter may take, for the verifier's inputs.
        is_careful: Whether what arrays hold where the statement does not run is kept out: padding may be NaN.
        guards: Constants that decided a branch; the rewrite holds while they have the same truth.
    """

    def __init__(self, gradient_of: str | None = None, is_careful: bool = False) -> None:
        self.graph = Graph()
        self.is_careful = is_careful
        self.masks: list[Tensor] = []
        self.notes: list[str] = []
        self.changes: set[str] = set()
        self.hints: list[tuple[Any, ...]] = []
        self.guards: list[tuple[Node, bool]] = []
        self.is_tie_sensitive = False
        # The bounds of the slice that a mask stands for.
        self.slices: dict[Node, tuple[Node | None, Node | None]] = {}
        # How arrays were computed, see `shelter`.
        self.made: dict[Node, Made] = {}
        self._mapped = 0
        self._gradient_of = gradient_of
        self._depends: dict[Node, bool] = {}

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def fresh(self, wish: str) -> str:
        """A name for the argument of a function that the rewrite maps, one that no other has."""
        self._mapped += 1
        return f"{wish}_of_{self._mapped}" if self._mapped > 1 else wish

    def carries_gradient(self, node: Node) -> bool:
        """Whether a gradient with respect to the predictions can flow through an expression."""
        if node not in self._depends:
            if node.kind == "call" and node.parts[0] == "ops.stop_gradient":
                found = False
            elif node.kind == "name":
                found = self._gradient_of is None or node.parts[0] == self._gradient_of
            else:
                found = any(self.carries_gradient(part) for part in node.inputs())
            self._depends[node] = found
        return self._depends[node]


def operand(lift: Lifting, value: Any) -> Tensor:
    """A value as a tensor; numbers stay Python numbers in the source."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Host):
        return Tensor(value.node, (), (), "number", is_host=True)
    if isinstance(value, Static):
        content = value.value
        if isinstance(content, (bool, int, float, np.number)):
            return Tensor(value.node, (), (), "number", is_host=True)
        if isinstance(content, (list, tuple)) and content and not hasattr(content, "dtype"):
            content = np.asarray(content)
        if type(content).__module__.startswith("pandas"):
            content = np.asarray(content)
        if isinstance(content, np.ndarray) and content.dtype.kind in "fiub":
            return constant_array(lift, content, value.node)
        if hasattr(content, "shape") and hasattr(content, "dtype"):
            inner = tuple(Axis("d", lift.graph.const(int(size))) for size in content.shape)
            return Tensor(value.node, inner, inner, "any")
    raise Refused(
        f"A value of type {kind_of(value)} takes part in the arithmetic; only numbers and arrays can.", "FO205"
    )


def kind_of(value: Any) -> str:
    return type(value.value).__name__ if isinstance(value, Static) else type(value).__name__


def constant_array(lift: Lifting, content: np.ndarray, node: Node) -> Tensor:
    """A NumPy array that the loss closes over, as a tensor of 32 bits."""
    dtype, kind = {"f": ("float32", "float"), "b": ("bool", "bool")}.get(content.dtype.kind, ("int32", "int"))
    inner = tuple(Axis("d", lift.graph.const(int(size))) for size in content.shape)
    made = lift.graph.call("ops.convert_to_tensor", node, dtype=lift.graph.const(dtype))
    return Tensor(made, inner, inner, kind, is_host=True)


def is_one(size: Node | None) -> bool:
    return size is not None and size.kind == "const" and size.parts[0] == "1"


def relabelled(tensor: Tensor, labels: dict[Axis, Axis]) -> Tensor:
    """The same array, with other names for its dimensions."""
    if not labels:
        return tensor
    return replace(
        tensor,
        dims=tuple(labels.get(axis, axis) for axis in tensor.dims),
        inner=tuple(labels.get(axis, axis) for axis in tensor.inner),
        valid=None if tensor.valid is None else relabelled(tensor.valid, labels),
        position=None
        if tensor.position is None
        else (labels.get(tensor.position[0], tensor.position[0]), tensor.position[1]),
    )


def align(lift: Lifting, tensors: Sequence[Tensor]) -> tuple[list[Node], Tensor]:
    """Nodes that broadcast against each other, and a pattern for the result (without its node)."""
    nodes, pattern, _ = _aligned(lift, tensors)
    return nodes, pattern


def _aligned(lift: Lifting, tensors: Sequence[Tensor]) -> tuple[list[Node], Tensor, list[Tensor]]:
    rank = max(tensor.rank for tensor in tensors)
    inner: list[Axis] = []
    for place in range(-rank, 0):
        labels = [tensor.inner[place] for tensor in tensors if tensor.rank >= -place]
        sized = [label for label in labels if not is_one(label.size)] or labels
        chosen = sized[0]
        if any(label.size is not chosen.size for label in sized):
            chosen = Axis(chosen.name, None)  # Its size is that of the result; see `elementwise`.
        elif chosen in inner:
            chosen = Axis(chosen.name, chosen.size)
        inner.append(chosen)
    renamed = []
    for tensor in tensors:
        labels_of = {old: inner[rank - tensor.rank + k] for k, old in enumerate(tensor.inner)}
        renamed.append(relabelled(tensor, {old: new for old, new in labels_of.items() if old is not new}))
    outer = sorted({axis for tensor in renamed for axis in tensor.axes}, key=lambda axis: axis.serial)
    canonical = (*outer, *inner)
    largest = max(renamed, key=lambda tensor: len(tensor.dims))
    order = canonical
    if set(largest.dims) == set(canonical) and tuple(axis for axis in largest.dims if axis in inner) == tuple(inner):
        order = largest.dims if all(_is_subsequence(tensor.dims, largest.dims) for tensor in renamed) else canonical
    valid = _common_mask(lift, [tensor.valid for tensor in renamed if tensor.valid is not None])
    nodes = [_placed(lift, tensor, order) for tensor in renamed]
    loose = any(tensor.is_loose for tensor in renamed)
    return nodes, Tensor(nodes[0], order, tuple(inner), valid=valid, is_loose=loose), renamed


def _common_mask(lift: Lifting, masks: list[Tensor]) -> Tensor | None:
    """The one selection that several operands have; slices with the same bounds are the same selection."""
    kinds = {(lift.slices.get(mask.node, mask.node), mask.dims) for mask in masks}
    if len(kinds) > 1:
        raise Refused("Two selections of different elements are combined.", "FO108")
    return masks[0] if masks else None


def _is_subsequence(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)


def _placed(lift: Lifting, tensor: Tensor, order: tuple[Axis, ...]) -> Node:
    if not tensor.dims:
        return tensor.node
    node, dims = tensor.node, tensor.dims
    if not _is_subsequence(dims, order):
        wanted = tuple(axis for axis in order if axis in dims)
        places = tuple(lift.graph.const(dims.index(axis)) for axis in wanted)
        node, dims = lift.graph.call("ops.transpose", node, lift.graph.sequence(places)), wanted
    first = next(k for k, axis in enumerate(order) if axis in dims)
    items: list[Any] = [":" if axis in dims else None for axis in order[first:]]
    if None not in items:
        return node
    while items[-1] == ":":
        items.pop()
    return lift.graph.index(node, tuple(items))


def front(lift: Lifting, tensor: Tensor) -> Tensor:
    """The same array with its loop axes first and its inner dimensions, in order, last."""
    order = (*sorted(tensor.axes, key=lambda axis: axis.serial), *tensor.inner)
    return tensor if order == tensor.dims else replace(tensor, node=_placed(lift, tensor, order), dims=order)


def elementwise(
    lift: Lifting, function: str, values: Sequence[Any], kind: str = "any", symbol: str | None = None
) -> Tensor:
    """`function(*values)` or, with a symbol, the operator between two values."""
    tensors = [operand(lift, value) for value in values]
    if symbol in COMPARISONS:
        tensors = [_without_stop(tensor) for tensor in tensors]
    arrays = [tensor for tensor in tensors if tensor.kind != "number"]
    nodes, pattern, renamed = _aligned(lift, tensors)
    if symbol and not any(tensor.is_host for tensor in arrays) and symbol not in ("&", "|", "^"):
        node = lift.graph.binary(symbol, *nodes)
    else:
        node = lift.graph.call(f"ops.{function}", *nodes)
    for place, axis in enumerate(pattern.dims):
        if axis.size is None:
            axis.size = lift.graph.size(node, place)
    is_host = bool(arrays) and all(tensor.is_host for tensor in arrays)

    def again(parts: list[Tensor], _: dict[Axis, Axis]) -> Tensor:
        return elementwise(lift, function, [replace(named(part), valid=None) for part in parts], kind, symbol)

    lift.made.setdefault(node, Made(pattern.dims, tuple(renamed), again))
    return replace(pattern, node=node, kind=kind, is_host=is_host)


def _without_stop(tensor: Tensor) -> Tensor:
    if tensor.node.kind == "call" and tensor.node.parts[0] == "ops.stop_gradient":
        return replace(tensor, node=tensor.node.parts[1][0])
    return tensor


def binary(lift: Lifting, symbol: str, left: Any, right: Any) -> Any:
    """An operator between two values, of which at least one is a tensor."""
    a, b = operand(lift, left), operand(lift, right)
    if symbol in COMPARISONS or symbol in ("&", "|", "^"):
        kind = "bool"
    elif symbol == "/" or "float" in (a.kind, b.kind):
        kind = "float"
    else:
        kind = a.kind if b.kind in (a.kind, "number") else b.kind if a.kind == "number" else "any"
    if symbol in ("/", "//", "%") and b.kind != "number":
        b = shielded(lift, b) if lift.carries_gradient(a.node) or lift.carries_gradient(b.node) else b
    if symbol in ("-", "+", "*") and "bool" in (a.kind, b.kind):
        a, b = (cast(lift, t, "float32") if t.kind == "bool" else t for t in (a, b))
        kind = "float"
    result = elementwise(lift, FUNCTIONS[symbol], (a, b), kind, symbol)
    if symbol in ("+", "-") and a.position and isinstance(right, Static) and isinstance(right.value, int):
        result = replace(
            result, position=(a.position[0], a.position[1] + (right.value if symbol == "+" else -right.value))
        )
    elif symbol == "+" and b.position and isinstance(left, Static) and isinstance(left.value, int):
        result = replace(result, position=(b.position[0], b.position[1] + left.value))
    return result


def negative(lift: Lifting, tensor: Tensor) -> Tensor:
    """`-tensor`."""
    node = lift.graph.make("negative", tensor.node)
    lift.made.setdefault(node, Made(tensor.dims, (tensor,), lambda parts, _: negative(lift, parts[0])))
    return replace(tensor, node=node, position=None, domain=None)


def cast(lift: Lifting, tensor: Tensor, dtype: str) -> Tensor:
    kind = "float" if "float" in dtype else "bool" if dtype == "bool" else "int"
    if tensor.kind == "int" and kind == "int" and dtype == "int32":
        return tensor
    node = lift.graph.call("ops.cast", tensor.node, lift.graph.const(dtype))
    same_place = tensor.position if kind == "int" else None
    return replace(tensor, node=node, kind=kind, position=same_place)


def where(lift: Lifting, condition: Any, then: Any, otherwise: Any) -> Tensor:
    kinds = {operand(lift, then).kind, operand(lift, otherwise).kind} - {"number"}
    return elementwise(lift, "where", (condition, then, otherwise), kinds.pop() if len(kinds) == 1 else "any")


def both(lift: Lifting, left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return left if right is None else right
    return left if left is right else elementwise(lift, "logical_and", (left, right), "bool")


def guarded(lift: Lifting, tensor: Tensor) -> Tensor:
    """A tensor that is 1 where the current statement does not run, so that no infinity arises there.

    `where` alone picks the right value, but its gradient is 0 times what the other side's is: NaN for infinities.
    """
    if not lift.carries_gradient(tensor.node):
        return tensor
    return shielded(lift, tensor)


def shielded(lift: Lifting, tensor: Tensor) -> Tensor:
    """A tensor that is 1 wherever the current statement does not run."""
    mask: Tensor | None = None
    for condition in lift.masks:
        if set(condition.dims) <= set(tensor.dims):
            mask = both(lift, mask, condition)
    if mask is None:
        return tensor
    return replace(
        where(lift, mask, tensor, Static(1.0, lift.graph.const(1.0))), is_host=tensor.is_host, valid=tensor.valid
    )


def number(lift: Lifting, value: float | int) -> Static:
    return Static(value, lift.graph.const(value))


def reduce(lift: Lifting, how: str, tensor: Tensor, over: Sequence[Axis], keepdims: bool = False) -> Tensor:
    """A reduction over some of a tensor's dimensions; elements that do not exist do not count."""
    if not over:
        return tensor
    valid = tensor.valid if tensor.valid is not None and set(tensor.valid.dims) & set(over) else None
    if tensor.is_loose and not set(tensor.inner) <= set(over):
        raise Refused("A selection of elements is used as an array of its own, not reduced as a whole.", "FO108")
    if valid is not None:
        return _masked(lift, how, tensor, valid, over, keepdims)
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
    rest = tensor.valid if tensor.valid is not None and not set(tensor.valid.dims) & set(over) else None
    if not keepdims:

        def again(parts: list[Tensor], labels: dict[Axis, Axis]) -> Tensor:
            return _plain(lift, how, named(parts[0]), [labels.get(axis, axis) for axis in over], False)

        lift.made.setdefault(node, Made(dims, (replace(tensor, valid=None),), again))
    return Tensor(node, dims, inner, kind.get(how, tensor.kind), tensor.is_host, valid=rest)


def _masked(lift: Lifting, how: str, tensor: Tensor, valid: Tensor, over: Sequence[Axis], keepdims: bool) -> Tensor:
    bare = replace(tensor, valid=None, is_loose=False)
    if how in ("any", "all"):
        spare = valid if how == "any" else elementwise(lift, "logical_not", (valid,), "bool")
        function = "logical_and" if how == "any" else "logical_or"
        joined = elementwise(lift, function, (named(_boolean(lift, bare)), spare), "bool")
        return _plain(lift, how, replace(joined, inner=bare.inner), over, keepdims)
    if how in ("var", "std"):
        mean = _masked(lift, "mean", tensor, valid, over, False)
        off = elementwise(lift, "square", (binary(lift, "-", named(bare), named(mean)),), "float")
        spread = _masked(lift, "mean", replace(off, inner=bare.inner), valid, over, keepdims)
        return elementwise(lift, "sqrt", (spread,), "float") if how == "std" else spread
    if how not in _FILL:
        raise Refused(f"ops.{how} of a selection of elements has no masked form here.", "FO108")
    if how in ("sum", "mean") and bare.kind == "bool":
        bare = cast(lift, bare, "float32")
    from .shelter import sheltered

    kept = where(lift, valid, named(sheltered(lift, valid, bare)), number(lift, _FILL[how]))
    kept = replace(kept, inner=bare.inner)
    if how != "mean":
        return _plain(lift, how, kept, over, keepdims)
    total = _plain(lift, "sum", kept, over, keepdims)
    some = tuple(axis for axis in over if axis in valid.dims)
    counted = _plain(lift, "sum", cast(lift, valid, "float32"), some, False)
    for axis in over:
        if axis not in valid.dims and axis.size is not None:
            counted = binary(lift, "*", counted, Host(axis.size))
    # No element selected: the mean is 0 here, where the original has NaN.
    lift.note("Where nothing is selected, the original's mean is NaN and the rewrite's is 0.")
    least = elementwise(lift, "maximum", (counted, number(lift, 1.0)), "float")
    if keepdims:
        raise Refused("keepdims=True in a mean over a selection has no masked form here.", "FO108")
    return replace(elementwise(lift, "divide", (named(total), least), "float", "/"), inner=total.inner)


def named(tensor: Tensor) -> Tensor:
    """The same array with every dimension matched by name, none by its place."""
    return replace(tensor, inner=())


def _boolean(lift: Lifting, tensor: Tensor) -> Tensor:
    return tensor if tensor.kind == "bool" else cast(lift, tensor, "bool")
