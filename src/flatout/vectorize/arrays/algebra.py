"""Arithmetic of lifted tensors: broadcasting by what the dimensions mean, selection, and reductions with masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import exact_numbers as exact
from .expression_graph import FUNCTIONS, PYTHON, Node
from .lifted_values import Axis, Host, Items, Known, Listing, Record, Refused, Tensor
from .lifting import Lifting, Made


def operand(lift: Lifting, value: Any) -> Tensor:
    """A value as a tensor; numbers stay Python numbers in the source."""
    if isinstance(value, Tensor):
        return value
    content: Any = value.value if isinstance(value, Known) else None
    if isinstance(value, Host) or isinstance(content, (bool, int, float, np.number)):
        if content is not None:
            lift.numbers[value.node] = content
        return Tensor(value.node, (), (), "number", is_host=True)
    if (isinstance(content, (list, tuple)) and content) or type(content).__module__.startswith("pandas"):
        content = np.asarray(content)
    if isinstance(content, np.ndarray) and content.dtype.kind in "fiub":
        return constant_array(lift, content, value.node)
    if hasattr(content, "shape") and hasattr(content, "dtype"):
        inner = tuple(Axis("d", lift.graph.const(int(size))) for size in content.shape)
        return Tensor(value.node, inner, inner)
    kind = type(value.value if isinstance(value, Known) else value).__name__
    raise Refused(f"A value of type {kind} takes part in the arithmetic; only numbers and arrays can.", "FO205")


def constant_array(lift: Lifting, content: np.ndarray, node: Node) -> Tensor:
    """A NumPy array that the loss closes over, as a tensor of 32 bits, or more for whole numbers that need them."""
    whole = exact.integers_for(lift, content) if content.dtype.kind in "iu" else ""
    dtype, kind = {"f": ("float32", "float"), "b": ("bool", "bool")}.get(content.dtype.kind, (whole, "int"))
    inner = tuple(Axis("d", lift.graph.const(int(size))) for size in content.shape)
    made = lift.graph.call("ops.convert_to_tensor", node, dtype=lift.graph.const(dtype))
    return Tensor(made, inner, inner, kind, is_host=True)


def is_one(size: Node | None) -> bool:
    return size is not None and size.kind == "const" and size.parts[0] == "1"


def relabelled(tensor: Tensor, labels: dict[Axis, Axis]) -> Tensor:
    """The same array, with other names for its dimensions."""
    if not labels:
        return tensor
    dims, inner = (tuple(labels.get(axis, axis) for axis in axes) for axes in (tensor.dims, tensor.inner))
    valid, position = tensor.valid, tensor.position
    return replace(
        tensor,
        dims=dims,
        inner=inner,
        valid=valid and relabelled(valid, labels),
        position=position and (labels.get(position[0], position[0]), position[1]),
    )


def changed(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """A value with every array in it changed: of a list each element, of a record each column."""
    match value:
        case Tensor():
            return change(value)
        case Items():
            return Items(tuple(changed(item, change) for item in value.values), value.is_list)
        case Record():
            return Record({name: changed(item, change) for name, item in value.columns.items()})
        case Listing():
            return Listing(changed(value.element, change), value.axes, value.keep and change(value.keep))
    return value


def relabelled_value(value: Any, labels: dict[Axis, Axis]) -> Any:
    return changed(value, lambda tensor: relabelled(tensor, labels))


def detached(lift: Lifting, value: Tensor) -> Tensor:
    """An array that carries no gradient."""
    if not lift.carries_gradient(value.node):
        return value
    return replace(value, node=lift.graph.call("ops.stop_gradient", value.node))


def on_host(lift: Lifting, value: Any) -> Any:
    """A value as the user's code reads it: a Python or NumPy number, through which no gradient flows."""

    def read(tensor: Tensor) -> Tensor:
        if tensor.kind == "number":
            return tensor
        lift.changes.add("FO201")
        if tensor.kind == "any":
            lift.learn("read", tensor)
        is_free = tensor.is_host or tensor.kind in ("int", "bool")
        return replace(tensor if is_free else detached(lift, tensor), is_host=True)

    return changed(value, read)


def align(lift: Lifting, tensors: Sequence[Tensor]) -> tuple[list[Node], Tensor, list[Tensor]]:
    """Nodes that broadcast against each other, a pattern for the result (without its node), and the tensors renamed."""
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
        pairs = zip(tensor.inner, inner[rank - tensor.rank :], strict=True)
        renamed.append(relabelled(tensor, {old: new for old, new in pairs if old is not new}))
    outer = sorted({axis for tensor in renamed for axis in tensor.axes}, key=lambda axis: axis.serial)
    canonical = (*outer, *inner)
    order = max((tensor.dims for tensor in renamed), key=len)
    is_complete = set(order) == set(canonical) and _is_subsequence(inner, order)
    if not is_complete or not all(_is_subsequence(tensor.dims, order) for tensor in renamed):
        order = canonical
    valid = _common_mask(lift, [tensor.valid for tensor in renamed if tensor.valid is not None], inner)
    nodes = [placed(lift, tensor, order) for tensor in renamed]
    is_loose = any(tensor.is_loose for tensor in renamed)
    return nodes, Tensor(nodes[0], order, tuple(inner), valid=valid, is_loose=is_loose), renamed


def _common_mask(lift: Lifting, masks: list[Tensor], inner: Sequence[Axis]) -> Tensor | None:
    """The selection that several operands have, each along dimensions of its own, or all of them the same.

    Slices with the same bounds are the same selection.
    """
    kinds = {(lift.slices.get(mask.node, mask.node), mask.dims): mask for mask in masks}
    joint: Tensor | None = None
    for mask in kinds.values():
        if joint is not None and set(mask.dims) & set(joint.dims) & set(inner):
            raise Refused("Two selections of different elements are combined.", "FO108")
        joint = all_of(lift, joint, mask)
    return joint


def _is_subsequence(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)


def placed(lift: Lifting, tensor: Tensor, order: tuple[Axis, ...], is_full: bool = False) -> Node:
    """An array with its dimensions in this order, of which those that it lacks are 1, or left out in front."""
    if not tensor.dims:
        return tensor.node
    node, dims = tensor.node, tensor.dims
    if not _is_subsequence(dims, order):
        wanted = tuple(axis for axis in order if axis in dims)
        places = tuple(lift.graph.const(dims.index(axis)) for axis in wanted)
        node, dims = lift.graph.call("ops.transpose", node, lift.graph.sequence(places)), wanted
    first = 0 if is_full else order.index(dims[0])
    items: list[Any] = [":" if axis in dims else None for axis in order[first:]]
    if None not in items:
        return node
    while items[-1] == ":":
        items.pop()
    return lift.graph.index(node, tuple(items))


def front(lift: Lifting, tensor: Tensor) -> Tensor:
    """The same array with its loop axes first and its inner dimensions, in order, last."""
    order = (*sorted(tensor.axes, key=lambda axis: axis.serial), *tensor.inner)
    return tensor if order == tensor.dims else replace(tensor, node=placed(lift, tensor, order), dims=order)


def elementwise(
    lift: Lifting,
    function: str | Callable[..., Node],
    values: Sequence[Any],
    kind: str = "any",
    symbol: str | None = None,
) -> Tensor:
    """`ops.function(*values)`, what `function` makes of their nodes or, with a symbol, the operator between two."""
    tensors = [operand(lift, value) for value in values]
    if symbol in exact.COMPARISONS:
        tensors = exact.as_given(lift, [beneath(tensor, "ops.stop_gradient") for tensor in tensors])
    if lift.rounded:
        exact.refuse_rounded(lift, symbol, tensors)
    if any(tensor.kind == "int" and tensor.is_host for tensor in tensors):
        tensors = [exact.whole_constant(lift, tensor) for tensor in tensors]
    arrays = [tensor for tensor in tensors if tensor.kind != "number"]
    nodes, pattern, renamed = align(lift, tensors)
    if symbol and not any(tensor.is_host for tensor in arrays) and symbol not in ("&", "|", "^"):
        node = lift.graph.binary(symbol, *nodes)
    else:
        node = lift.graph.call(f"ops.{function}", *nodes) if isinstance(function, str) else function(*nodes)
    for place, axis in enumerate(pattern.dims):
        if axis.size is None:
            axis.size = lift.graph.size(node, place)
    is_host = bool(arrays) and all(tensor.is_host for tensor in arrays)

    def again(parts: list[Tensor], _: dict[Axis, Axis]) -> Tensor:
        return elementwise(lift, function, [replace(named(part), valid=None) for part in parts], kind, symbol)

    lift.made.setdefault(node, Made(pattern.dims, tuple(renamed), again))
    if lift.rounded and exact.rounded_again(lift, function, tensors):
        lift.rounded.add(node)
    is_series = any(tensor.is_series for tensor in tensors)
    is_blurred = symbol in ("+", "-", "*", "/") and any(tensor.is_wide or tensor.is_blurred for tensor in tensors)
    return replace(
        pattern, node=node, kind=kind, is_host=is_host, is_series=is_series, is_blurred=is_host and is_blurred
    )


def beneath(tensor: Tensor, *functions: str) -> Tensor:
    """An array before these functions were applied to it."""
    node = tensor.node
    while node.kind == "call" and node.parts[0] in functions:
        node = node.parts[1][0]
    return replace(tensor, node=node)


def binary(lift: Lifting, symbol: str, left: Any, right: Any) -> Any:
    """An operator between two values, of which at least one is a tensor."""
    a, b = operand(lift, left), operand(lift, right)
    if symbol in exact.COMPARISONS or symbol in ("&", "|", "^"):
        kind = "bool"
    elif symbol == "/" or "float" in (a.kind, b.kind):
        kind = "float"
    else:
        kind = a.kind if b.kind in (a.kind, "number") else b.kind if a.kind == "number" else "any"
    if symbol == "-" and lift.is_rounding and {a.node, b.node} <= lift.wholes.keys():
        difference = cast(lift, elementwise(lift, "subtract", exact.as_given(lift, [a, b]), "any", "-"), "float32")
        lift.rounded.add(difference.node)
        return difference
    outgrows = exact.may_outgrow(lift, symbol, a, b)
    if symbol == "**" and b.kind == "int":
        lift.sized_by(b)
    if outgrows:
        a, b = (cast(lift, t, "float32") if t.kind == "int" else t for t in (a, b))
        kind = "float"
    if symbol in ("//", "%"):
        for tensor in (a, b):
            lift.exact(tensor)
        exact.refuse_remainder(a, lift.numbers.get(b.node))
    if symbol in ("/", "//", "%") and b.kind != "number":
        b = shielded(lift, b) if lift.carries_gradient(a.node) or lift.carries_gradient(b.node) else b
    if symbol in ("-", "+", "*") and "bool" in (a.kind, b.kind):
        a, b = (cast(lift, t, "float32") if t.kind == "bool" else t for t in (a, b))
        kind = "float"
    result = elementwise(lift, FUNCTIONS[symbol], (a, b), kind, symbol)
    if outgrows:
        lift.rounded.add(result.node)
    place, by = (a.position, right) if a.position else (b.position if symbol == "+" else None, left)
    if symbol in ("+", "-") and place and isinstance(by, Known) and isinstance(by.value, int):
        lift.stays(by.node, by.value)
        result = replace(result, position=(place[0], place[1] + (by.value if symbol == "+" else -by.value)))
    return result


def operated(lift: Lifting, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` of numbers: known now, when the loss is traced, or for each step."""
    neutral = {"+": 0, "-": 0, "*": 1}.get(symbol)
    is_written = [isinstance(one, Known) and one.node.is_written for one in (left, right)]
    if is_written[1] and right.value == neutral:
        return left
    if is_written[0] and left.value == neutral and symbol != "-":
        return right
    if symbol == "+" and is_written[1] and right.value < 0:
        return operated(lift, "-", left, number(lift, -right.value))
    if not isinstance(left, (Known, Host)) or not isinstance(right, (Known, Host)):
        return binary(lift, symbol, left, right)
    node = lift.graph.binary(symbol, left.node, right.node)
    if symbol == "+" and left.node.kind == "binary" and left.node.parts[::2] == ("-", right.node):
        node = left.node.parts[1]  # (n - 1) + 1
    if not isinstance(left, Known) or not isinstance(right, Known):
        return Host(node)
    value = PYTHON[symbol](left.value, right.value)
    return number(lift, value) if all(is_written) else Known(value, node)


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


def whole(lift: Lifting, value: Tensor) -> Tensor:
    """A number of the data as Python's `int` has it: in the widest integers there are or, if asked for, as a float."""
    if value.kind == "int" and value.node.parts[0] != "ops.cast":
        return value  # A place or a count: no larger than the batch.
    if value.kind == "bool":
        return replace(cast(lift, value, "int32"), is_host=True)
    given = elementwise(lift, "trunc", (value,), value.kind)
    made = cast(lift, given, "float32") if lift.is_rounding else cast(lift, value, lift.integers)
    if lift.is_rounding:
        lift.rounded.add(made.node)
    if lift.is_rounding or lift.integers == "int32":
        lift.wholes[made.node] = given.node
    return replace(made, is_host=True, inner=value.inner, domain=value.domain)


def where(lift: Lifting, condition: Any, then: Any, otherwise: Any) -> Tensor:
    kinds = {operand(lift, then).kind, operand(lift, otherwise).kind} - {"number"}
    return elementwise(lift, "where", (condition, then, otherwise), kinds.pop() if len(kinds) == 1 else "any")


def all_of(lift: Lifting, *conditions: Tensor | None) -> Tensor | None:
    """Where every condition holds; None holds everywhere."""
    joint: Tensor | None = None
    for one in conditions:
        if joint is None or one is None or one is joint:
            joint = joint if one is None else one
        else:
            joint = elementwise(lift, "logical_and", (joint, one), "bool")
    return joint


def not_(lift: Lifting, condition: Tensor) -> Tensor:
    return elementwise(lift, "logical_not", (condition,), "bool")


def guarded(lift: Lifting, tensor: Tensor) -> Tensor:
    """A tensor that is 1 where the current statement does not run, so that no infinity arises there.

    `where` alone picks the right value, but its gradient is 0 times what the other side's is: NaN for infinities.
    """
    return shielded(lift, tensor) if lift.carries_gradient(tensor.node) else tensor


def shielded(lift: Lifting, tensor: Tensor) -> Tensor:
    """A tensor that is 1 wherever the current statement does not run."""
    mask = running(lift, tensor)
    if mask is None:
        return tensor
    return replace(where(lift, mask, tensor, number(lift, 1.0)), is_host=tensor.is_host, valid=tensor.valid)


def running(lift: Lifting, tensor: Tensor) -> Tensor | None:
    """Where the current statement runs, as far as that can be told by a tensor's dimensions."""
    return all_of(lift, *(condition for condition in lift.masks if set(condition.dims) <= set(tensor.dims)))


def number(lift: Lifting, value: float | int) -> Known:
    is_nan = isinstance(value, float) and value != value
    return Known(value, lift.graph.make("const", 'float("nan")') if is_nan else lift.graph.const(value))


def size_of(lift: Lifting, node: Node) -> Known | Host:
    """A length as a number: known now, or when the loss is traced."""
    return number(lift, int(node.parts[0])) if node.kind == "const" else Host(node)


def opened(lift: Lifting, value: Any) -> Any:
    """A list or tuple that is known now, as its values, with how the source says each; anything else as it is."""
    if not isinstance(value, Known) or not isinstance(value.value, (list, tuple)):
        return value
    graph, node = lift.graph, value.node
    if node.kind == "const":
        return Items(tuple(number(lift, item) for item in value.value), isinstance(value.value, list))
    is_written = node.kind in ("tuple", "list")
    nodes = node.parts[0] if is_written else [graph.index(node, (graph.const(k),)) for k in range(len(value.value))]
    return Items(tuple(map(Known, value.value, nodes)), isinstance(value.value, list))


def as_constant(lift: Lifting, value: Any) -> Any:
    """A list of constants as the constant that it is; any other value as it is."""
    if not isinstance(value, Items):
        return value
    parts = [as_constant(lift, part) for part in value.values]
    if not all(isinstance(part, Known) for part in parts):
        return value
    content = [part.value for part in parts]
    node = lift.graph.sequence(tuple(part.node for part in parts), value.is_list)
    return Known(content if value.is_list else tuple(content), node)


def named(tensor: Tensor) -> Tensor:
    """The same array with every dimension matched by name, none by its place."""
    return replace(tensor, inner=())
