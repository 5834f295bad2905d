"""Values of method calls: of tensors in torch's and NumPy's spelling, of lists that a loop fills, of tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import libcst as cst

from flatout.pysource.operation_names import REDUCTIONS, plain

from . import operation_results as operations
from .abstract_values import (
    STATIC,
    UNKNOWN,
    Data,
    Instance,
    Sequence,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Value,
    Variable,
    data_in,
    merge,
)
from .events import Loop, Wrote
from .names import Names
from .operation_results import elementwise

_DATA_TO_HOST = frozenset(["item", "numpy", "tolist", "eval", "to_py", "__array__"])


class Methods:
    """Values of method calls. The rest of the walk supplies what is declared here."""

    loops: list[Loop]

    if TYPE_CHECKING:

        def value(self, node: cst.BaseExpression, names: Names) -> Value: ...
        def attribute(self, base: Value, name: str, node: cst.BaseExpression) -> Value: ...
        def tell(self, event: Any) -> None: ...
        def assign(self, target: cst.CSTNode, value: Value, names: Names) -> None: ...
        def mutated(self, before: Value, after: Value, names: Names) -> None: ...
        def operation(
            self,
            name: str,
            short: str,
            arguments: list[Value],
            keywords: Mapping[str, Value],
            node: cst.Call,
            names: Names,
        ) -> Value: ...

    def method(
        self,
        receiver: Value,
        method: str,
        arguments: list[Value],
        keywords: Mapping[str, Value],
        node: cst.Call,
        names: Names,
    ) -> Value:
        everything = [*arguments, *keywords.values()]
        held = node.func.value if isinstance(node.func, cst.Attribute) else None
        if method in ("append", "extend") and arguments and isinstance(held, cst.Subscript):
            self.assign(held, arguments[0], names)
            return Static("none")
        if isinstance(receiver, Data):
            return self._data_method(receiver, method, arguments, keywords, node, names)
        if isinstance(receiver, Shape):
            return receiver if method in ("as_list", "tolist") else Size(receiver.axes[0] if receiver.axes else STATIC)
        if isinstance(receiver, Variable):
            return Static("none") if method.startswith("assign") else Data(axes=())
        if method in ("append", "extend", "add", "insert") and arguments:
            self._appended(node, receiver, method, arguments[-1], names)
            return Static("none")
        if isinstance(receiver, Static):
            if receiver.tag == "file":
                return Static("text")
            if method in ("items", "keys", "values") and receiver.tag == "dict":
                entries = Static("list", length=receiver.length)
                return Together((entries, entries), "zip") if method == "items" else entries
            if data_in(everything):
                host = dataclasses.replace(elementwise(everything), on_host=True, differentiable=False)
                return host if receiver.tag in ("dict", "frame", "array", "object", "list") else UNKNOWN
            return receiver if receiver.tag in ("frame", "array", "rng") else Static("object")
        if isinstance(receiver, (Sequence, Tuple)):
            return receiver if method in ("copy", "tolist") else UNKNOWN
        return UNKNOWN

    def _data_method(
        self,
        data: Data,
        method: str,
        arguments: list[Value],
        keywords: Mapping[str, Value],
        node: cst.Call,
        names: Names,
    ) -> Value:
        if data.mapping and method in ("get", "pop", "values", "items", "keys"):
            return dataclasses.replace(data, mapping=False) if method in ("get", "pop") else Static("list")
        if method in _DATA_TO_HOST:
            axes = () if method == "item" else data.axes
            return dataclasses.replace(data, axes=axes, on_host=True, differentiable=False, loop=None)
        if method in ("size",) and arguments:
            return self.attribute(data, "shape", node.func) if not arguments else _size(data, arguments[0])
        if method in ("size", "get_shape"):
            return Shape(data.axes)
        if method in ("dim", "ndimension", "numel", "backward", "element_size"):
            return Size(data.axes[0] if data.axes else STATIC) if method == "numel" else Static("number")
        if method in ("cpu", "cuda", "clone", "contiguous", "float", "double", "half", "copy", "to", "requires_grad_"):
            return data
        if method in ("groupby", "merge", "map", "apply", "reindex", "join"):
            return dataclasses.replace(data, differentiable=False)
        axis = [self.reduction_axis(arguments)] if plain(method) in REDUCTIONS and arguments else arguments
        result = self.operation(method, plain(method), [data, *axis], keywords, node, names)
        if isinstance(result, Data) and data.on_host:
            return dataclasses.replace(result, on_host=True, differentiable=False)
        return result

    @staticmethod
    def reduction_axis(arguments: list[Value]) -> Value:
        """The axis argument of `y.sum(1)`; of `y.max(other)` it is another tensor."""
        return arguments[0]

    def _appended(self, node: cst.Call, receiver: Value, method: str, value: Value, names: Names) -> None:
        added = value.element if method == "extend" and isinstance(value, Sequence) else value
        if method == "extend" and isinstance(value, Tuple) and value.items:
            added = _fullest(value.items)
        if method == "extend" and isinstance(value, Data):
            added = operations.first_element(value)
        label = self.loops[-1].labels[0] if self.loops else STATIC
        grown: Value
        if isinstance(receiver, Sequence):
            grown = dataclasses.replace(receiver, element=merged(receiver.element, added))
        elif isinstance(receiver, Static) and (receiver.length == 0 or receiver.tag == "list"):
            grown = Sequence(added, label)
        elif isinstance(receiver, Tuple) and receiver.is_list:
            more = value.items if method == "extend" and isinstance(value, Tuple) else (added,)
            items = (*receiver.items, *more)
            grown = Sequence(_fullest(items), label) if self.loops else Tuple(items, True)
        else:
            return
        target = node.func.value if isinstance(node.func, cst.Attribute) else None
        if isinstance(target, cst.Name) and names.module().values.get(target.value) is receiver:
            self.tell(Wrote(node, target.value, "grown", value, receiver))
        elif isinstance(target, cst.Name):
            self.mutated(receiver, grown, names)
        elif isinstance(target, cst.Attribute):
            owner = self.value(target.value, names)
            if isinstance(owner, Instance):
                owner.attributes[target.attr.value] = grown


def _fullest(items: tuple[Value, ...]) -> Value:
    found = items[0]
    for item in items[1:]:
        found = merged(found, item)
    return found


def merged(first: Value, second: Value) -> Value:
    """Of two elements of a list, the one that says more; of two from the batch, what holds for either."""
    if isinstance(first, Data) and isinstance(second, Data):
        return merge(first, second)
    return first if isinstance(first, Data) and not isinstance(second, Data) else second


def _size(data: Data, number: Value) -> Value:
    at = int(number.number) if isinstance(number, Static) and number.number is not None else 0
    return operations.size_of_axis(Shape(data.axes), at)
