"""Values of method calls: of tensors in torch's and NumPy's spelling, of lists that a loop fills, of tables."""

from __future__ import annotations

import ast
import dataclasses
import functools

from flatout.check.values import operation_results as operations
from flatout.check.values.abstract_values import (
    STATIC,
    UNKNOWN,
    AbstractValue,
    Data,
    Instance,
    Sequence,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Variable,
    data_in,
    made_of,
    merge,
    traced,
    traces_of,
    whole_number,
)
from flatout.check.values.given import Given
from flatout.check.values.operation_results import elementwise, read_on_host
from flatout.check.values.traces import JOINED, SAME, used
from flatout.pysource.spellings import REDUCTIONS, plain

from .events import Wrote
from .walking import Walking

_READS = frozenset(["item", "numpy", "tolist", "eval", "to_py", "__array__"])
_SAME = frozenset({
    "cpu", "cuda", "clone", "contiguous", "float", "double", "half", "copy", "to", "requires_grad_",
})  # fmt: skip
_TABLES = ("dict", "frame", "array", "object", "list")


class MethodResults(Walking):
    """Values of method calls."""

    def operation(self, name: str, short: str, given: Given) -> AbstractValue:
        """What an array operation gives."""
        raise NotImplementedError

    def method(self, receiver: AbstractValue, method: str, given: Given) -> AbstractValue:
        """What `receiver.method(...)` gives; a list that it appends to is another one from then on."""
        held = given.node.func.value if isinstance(given.node.func, ast.Attribute) else None
        grows = method in ("append", "extend", "add", "insert") and bool(given.values)
        if grows and method in ("append", "extend") and isinstance(held, ast.Subscript):
            self.assign(held, given.values[0], given.names)
            return Static("none")
        if isinstance(receiver, Data):
            return self._data_method(receiver, method, given)
        if isinstance(receiver, Shape):
            return receiver if method in ("as_list", "tolist") else Size(receiver.axes[0] if receiver.axes else STATIC)
        if isinstance(receiver, Variable):
            return Static("none") if method.startswith("assign") else Data(axes=())
        if grows:
            self._appended(held, receiver, method == "extend", given)
            return Static("none")
        if isinstance(receiver, Static):
            return _static_method(receiver, method, given)
        return receiver if isinstance(receiver, (Sequence, Tuple)) and method in ("copy", "tolist") else UNKNOWN

    def _data_method(self, data: Data, method: str, given: Given) -> AbstractValue:
        if data.mapping and method in ("get", "pop", "values", "items", "keys"):
            return dataclasses.replace(data, mapping=False) if method in ("get", "pop") else Static("list")
        if method in _READS:
            axes = () if method == "item" else data.axes
            return dataclasses.replace(read_on_host(data), axes=axes, loop=None)
        if method == "size" and given.values:
            return operations.size_of_axis(Shape(data.axes), whole_number(given.values[0], 0))
        if method in ("size", "get_shape"):
            return Shape(data.axes)
        if method == "numel":
            return Size(data.axes[0] if data.axes else STATIC)
        if method in ("dim", "ndimension", "backward", "element_size"):
            return Static("number")
        if method in _SAME:
            return data
        if method in ("groupby", "merge", "map", "apply", "reindex", "join"):
            return dataclasses.replace(data, differentiable=False)
        short = plain(method)
        values = given.values[:1] if short in REDUCTIONS else given.values
        result = self.operation(method, short, dataclasses.replace(given, values=(data, *values)))
        return read_on_host(result) if isinstance(result, Data) and data.on_host else result

    def _appended(self, held: ast.expr | None, receiver: AbstractValue, extends: bool, given: Given) -> None:
        value = given.values[-1]
        more = value.items if extends and isinstance(value, Tuple) and value.items else ()
        added = functools.reduce(_fuller, more) if more else value
        if extends and isinstance(value, Sequence):
            added = value.element
        if extends and isinstance(value, Data):
            added = operations.first_element(value)
        for (iteration, slot), kind in receiver.traces.items():
            if kind in (SAME, JOINED):
                iteration.write(slot, {**used(traces_of(value)), (iteration, slot): JOINED})
        label = self.loops[-1].labels[0] if self.loops else STATIC
        grown: AbstractValue
        if isinstance(receiver, Sequence):
            grown = dataclasses.replace(receiver, element=_fuller(receiver.element, added))
        elif isinstance(receiver, Static) and (receiver.length == 0 or receiver.tag == "list"):
            grown = Sequence(added, label)
        elif isinstance(receiver, Tuple) and receiver.is_list:
            items = (*receiver.items, *(value.items if extends and isinstance(value, Tuple) else (added,)))
            grown = Sequence(functools.reduce(_fuller, items), label) if self.loops else Tuple(items, True)
        else:
            return
        grown = made_of(grown, "append", receiver, traced(value, used(traces_of(value))))
        if isinstance(held, ast.Name) and given.names.module().get(held.id).identity is receiver.identity:
            self.tell(Wrote(given.node, held.id, "grown", value, receiver))
        elif isinstance(held, ast.Name):
            self.mutated(receiver, grown, given.names)
        elif isinstance(held, ast.Attribute):
            owner = self.value(held.value, given.names)
            if isinstance(owner, Instance):
                owner.attributes[held.attr] = grown


def _static_method(receiver: Static, method: str, given: Given) -> AbstractValue:
    if receiver.tag == "file":
        return Static("text")
    if method in ("items", "keys", "values") and receiver.tag == "dict":
        entries = Static("list", length=receiver.length)
        return Together((entries, entries), "zip") if method == "items" else entries
    if data_in(given.everything):
        return read_on_host(elementwise(given.everything)) if receiver.tag in _TABLES else UNKNOWN
    return receiver if receiver.tag in ("frame", "array", "rng") else Static("object")


def _fuller(first: AbstractValue, second: AbstractValue) -> AbstractValue:
    """Of two elements of a list, the one that says more; of two from the batch, what holds for either."""
    if isinstance(first, Data) and isinstance(second, Data):
        return merge(first, second)
    return first if isinstance(first, Data) else second
