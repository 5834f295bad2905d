"""The walk through expressions: what value each one has, and the events that the rules hear of."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import libcst as cst

from flatout.pysource.operation_names import operations_name

from . import operation_results as operations
from .abstract_values import (
    UNKNOWN,
    Class,
    Counter,
    Data,
    External,
    Function,
    Instance,
    Sequence,
    Shape,
    Size,
    Static,
    Tuple,
    Unknown,
    Value,
    Variable,
    data_in,
    merge,
    merge_all,
)
from .call_results import Calls
from .events import Operated, Read, Subscripted, Tested
from .names import Names
from .operation_results import elementwise
from .subscript_results import indexed

_NUMBER = Static("number")
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.GeneratorExp, cst.DictComp)


class Expressions(Calls):
    """Values of expressions. The rest of the walk supplies what is declared here."""

    if TYPE_CHECKING:

        def is_own(self, names: Names) -> bool: ...
        def carried(self, node: Any, names: Names) -> tuple[str, ...]: ...

    def value(self, node: cst.BaseExpression, names: Names) -> Value:
        """The abstract value of an expression."""
        found = self._BY_TYPE.get(type(node))
        return found(self, node, names) if found else UNKNOWN

    # -- names and attributes

    def _name(self, node: cst.Name, names: Names) -> Value:
        if node.value in ("True", "False"):
            return _NUMBER
        if node.value == "None":
            return Static("none")
        value, distance = names.lookup(node.value)
        if value is None:
            return External(f"builtins.{node.value}")
        if distance and self.reporting and not self.is_own(names.scope_of(node.value)):
            self.tell(Read(node, node.value, value, self.file))
        return value

    def _attribute(self, node: cst.Attribute, names: Names) -> Value:
        base = self.value(node.value, names)
        return self.attribute(base, node.attr.value, node)

    def attribute(self, base: Value, name: str, node: cst.BaseExpression) -> Value:
        """The value of `base.name`."""
        if isinstance(base, External):
            return External(operations_name(f"{base.name}.{name}"))
        if isinstance(base, Data):
            if name == "shape":
                return Shape(base.axes)
            if name in ("dtype", "device", "ndim", "name", "requires_grad", "is_cuda"):
                return Static("object")
            if name in ("T", "mT"):
                return operations.transposed(base)
            if name == "data":
                return dataclasses.replace(base, differentiable=False)
            # A column of a frame, or `x.at[...]`; other attributes of a tensor are not numbers.
            return base if base.on_host or base.mapping or name in ("at", "real", "imag", "values") else UNKNOWN
        if isinstance(base, Instance):
            found = base.attributes.get(name)
            if found is None:
                method = self.method_of(base.of, name)
                found = method.bound(base) if method else UNKNOWN
            if self.reporting:
                self.tell(Read(node, name, found, self.file, base))
            return found
        if isinstance(base, Class):
            return base.methods.get(name, UNKNOWN)
        if isinstance(base, Variable):
            return base
        if isinstance(base, Static) and base.tag in ("frame", "array", "dict"):
            return base
        if isinstance(base, Static) and base.tag == "file" and name in ("stdout", "stderr", "returncode"):
            return Static("text")  # What a process said.
        if isinstance(base, Static) and base.tag == "module" and base.text:
            return self.module_name(base.text, name)
        return UNKNOWN

    # -- literals

    def _integer(self, node: cst.Integer | cst.Float, names: Names) -> Value:
        return Static("number", number=ast.literal_eval(node.value))

    def _text(self, node: cst.BaseExpression, names: Names) -> Value:
        if isinstance(node, cst.SimpleString):
            return Static("text", text=str(node.evaluated_value))
        if isinstance(node, cst.FormattedString):
            expressions = [part.expression for part in node.parts if isinstance(part, cst.FormattedStringExpression)]
            inside = data_in([self.value(one, names) for one in expressions])
            if inside:
                return Data(elementwise(list(inside)).origins, axes=(), on_host=True)
        return Static("text")

    def _elements(self, node: cst.Tuple | cst.List | cst.Set, names: Names) -> Value:
        items = [(element, self.value(element.value, names)) for element in node.elements]
        if any(isinstance(element, cst.StarredElement) for element, _ in items):
            return merge_all([value for _, value in items])
        values = tuple(value for _, value in items)
        if isinstance(node, cst.List) and not values:
            return Static("list", length=0)
        return Tuple(values, isinstance(node, cst.List))

    def _dict(self, node: cst.Dict, names: Names) -> Value:
        values = []
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                self.value(element.key, names)
            values.append(self.value(element.value, names))
        found = data_in(values)
        return elementwise(list(found)) if found else Static("dict", length=len(values))

    # -- operators

    def _binary(self, node: cst.BinaryOperation, names: Names) -> Value:
        left, right = self.value(node.left, names), self.value(node.right, names)
        operator = type(node.operator).__name__
        return self.operated(node, operator, left, right)

    def operated(self, node: cst.BaseExpression, operator: str, left: Value, right: Value) -> Value:
        """The value of `left operator right`."""
        self.tell(Operated(node, operator, left, right))
        pair = (left, right)
        if any(isinstance(one, (Data, Variable)) for one in pair):
            self.touch(*pair)
            data = [one for one in pair if isinstance(one, Data)]
            if len(data) == 2 and operator == "MatrixMultiply":
                return operations.multiplied(data[0], data[1])
            if isinstance(left, Tuple) or isinstance(right, Tuple):
                return UNKNOWN
            result = elementwise(list(pair))
            if any(isinstance(one, (Variable, Unknown)) for one in pair):
                result = dataclasses.replace(result, on_host=False)
            roles = {one.role for one in data}
            keeps = operator in ("Add", "Subtract", "BitAnd", "BitOr") and len(roles) == 1
            return dataclasses.replace(result, role=roles.pop() if keeps else "")
        if isinstance(left, Tuple) and isinstance(right, Tuple) and operator == "Add":
            return Tuple(left.items + right.items, left.is_list)
        if any(isinstance(one, Sequence) for one in pair):
            return next(one for one in pair if isinstance(one, Sequence))
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Counter) and isinstance(other, (Static, Size, Counter)):
                return dataclasses.replace(one, shifted=True)
            if isinstance(one, Size) and isinstance(other, (Static, Size)):
                return one
            if isinstance(one, Tuple) and one.is_list and len(one.items) == 1 and operator == "Multiply":
                # `[None] * n`
                return Static("list")
        if all(isinstance(one, Static) for one in pair):
            return Static(left.tag if isinstance(left, Static) and left.tag in ("list", "array", "frame") else "number")
        return UNKNOWN

    def _unary(self, node: cst.UnaryOperation, names: Names) -> Value:
        value = self.value(node.expression, names)
        if isinstance(node.operator, cst.Not):
            if isinstance(value, Data):
                return dataclasses.replace(value, axes=(), role="mask", differentiable=False)
            return _NUMBER
        if isinstance(value, Static) and value.number is not None and isinstance(node.operator, cst.Minus):
            return dataclasses.replace(value, number=-value.number)
        if isinstance(value, Data):
            return dataclasses.replace(value, role="mask" if value.role == "mask" else "")
        return value

    def _boolean(self, node: cst.BooleanOperation, names: Names) -> Value:
        left = self.value(node.left, names)
        right = self.value(node.right, names)
        if not self.testing:
            self.tell(Tested(node, left))
        return merge(left, right)

    def test(self, node: cst.BaseExpression, names: Names) -> Value:
        """The value of a condition; whoever asked for it tells the rules."""
        testing, self.testing = self.testing, True
        try:
            return self.value(node, names)
        finally:
            self.testing = testing

    def _comparison(self, node: cst.Comparison, names: Names) -> Value:
        left = self.value(node.left, names)
        result: Value = _NUMBER
        for target in node.comparisons:
            right = self.value(target.comparator, names)
            result = self._compared(node, target.operator, left, right)
            left = right
        if len(node.comparisons) > 1 and isinstance(result, Data):
            self.tell(Tested(node, result))
        return result

    def _compared(self, node: cst.BaseExpression, operator: Any, left: Value, right: Value) -> Value:
        pair = (left, right)
        if isinstance(operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)):
            if isinstance(operator, (cst.In, cst.NotIn)) and isinstance(left, Data) and left.on_host:
                return dataclasses.replace(left, axes=(), role="")
            return _NUMBER
        if any(isinstance(one, Static) and one.tag in ("text", "none") for one in pair):
            return _NUMBER
        if any(isinstance(one, (Data, Variable)) for one in pair):
            self.touch(*pair, compared=True)
            self.tell(Operated(node, "Compare", left, right))
            result = elementwise(list(pair), "equal")
            only_counters = all(isinstance(one, Counter) or (isinstance(one, Data) and one.on_host) for one in pair)
            # All but one: the count does not depend on the data, only the place.
            if only_counters and isinstance(operator, cst.NotEqual) and any(isinstance(one, Counter) for one in pair):
                return dataclasses.replace(result, role="all_but_one")
            return result
        return _NUMBER if all(isinstance(one, (Static, Size, Counter, Tuple, Shape)) for one in pair) else UNKNOWN

    def _conditional(self, node: cst.IfExp, names: Names) -> Value:
        self.tell(Tested(node, self.test(node.test, names)))
        return merge(self.value(node.body, names), self.value(node.orelse, names))

    def _named(self, node: cst.NamedExpr, names: Names) -> Value:
        value = self.value(node.value, names)
        if isinstance(node.target, cst.Name):
            names[node.target.value] = value
        return value

    # -- subscripts

    def _subscript(self, node: cst.Subscript, names: Names) -> Value:
        base = self.value(node.value, names)
        return self.subscripted(node, base, names)

    def subscripted(self, node: cst.Subscript, base: Value, names: Names, written: bool = False) -> Value:
        """The value of `base[...]`."""
        index: list[Value] = []
        slices: list[tuple[Value | None, Value | None]] = []
        pieces: list[Any] = []
        for element in node.slice:
            piece: Any = element.slice
            if isinstance(piece, cst.Slice):
                ends = (
                    self.value(piece.lower, names) if piece.lower else None,
                    self.value(piece.upper, names) if piece.upper else None,
                )
                slices.append(ends)
                pieces.append(ends)
            else:
                value = self.value(piece.value, names)
                is_dots = isinstance(piece.value, cst.Ellipsis)
                for one in value.items if isinstance(value, Tuple) and not value.is_list else (value,):
                    index.append(one)
                    pieces.append(... if is_dots else one)
        self.tell(Subscripted(node, base, tuple(index), tuple(slices), written))
        single = [pair[0] for pair in slices if all(isinstance(end, Counter) for end in pair)]  # `[i : i + 1]`
        self.touch(base, *index, *filter(None, single), indexed=isinstance(base, (Data, Sequence)))
        return self._selected(base, pieces)

    def _selected(self, base: Value, pieces: list[Any]) -> Value:
        first = pieces[0] if pieces else None
        if isinstance(base, Data):
            if isinstance(first, Static) and first.tag == "text":
                return dataclasses.replace(base, mapping=False)
            return indexed(base, pieces)
        if isinstance(base, Shape):
            if isinstance(first, Static) and first.number is not None:
                return operations.size_of_axis(base, int(first.number))
            if isinstance(first, tuple):
                low = first[0]
                start = int(low.number) if isinstance(low, Static) and low.number and low.number > 0 else 0
                return Shape(base.axes, base.start + start)
            return _NUMBER
        if isinstance(base, Tuple):
            if (
                isinstance(first, Static)
                and first.number is not None
                and -len(base.items) <= first.number < len(base.items)
            ):
                return base.items[int(first.number)]
            if isinstance(first, Data) and not data_in([base]):
                return dataclasses.replace(first, differentiable=False, role="", loop=None)
            return merge_all(list(base.items)) if base.items else UNKNOWN
        if isinstance(base, Sequence):
            if not isinstance(first, tuple):
                return base.element
            by_data = any(isinstance(end, Data) for end in first)
            return dataclasses.replace(base, selected=base.selected or by_data)
        keys = [piece for piece in pieces if isinstance(piece, Data)]
        if isinstance(base, (Static, Unknown)) and keys:
            # A constant picked by a number of the batch is a number of the batch.
            if isinstance(base, Unknown) and not all(key.on_host for key in keys):
                return UNKNOWN
            return dataclasses.replace(keys[0], differentiable=False, role="", loop=None)
        if isinstance(base, Static):
            return base if base.tag in ("array", "frame") else Static("object")
        if isinstance(base, External):
            return Static("object")
        return base if isinstance(base, Variable) else UNKNOWN

    # -- functions and comprehensions

    def _lambda(self, node: cst.Lambda, names: Names) -> Value:
        function = Function(node, self.file, names)
        if not self.reporting:
            self.made.append(function)
        return function

    def _comprehension(self, node: Any, names: Names) -> Value:
        inner = Names({}, names, is_function=False)
        return self._generate(node, node.for_in, inner)

    def _generate(self, node: Any, clause: cst.CompFor, names: Names) -> Value:
        iterated = self.value(clause.iter, names)
        loop = self.open_loop(node, "comprehension", clause.iter, iterated, clause.target, names)
        if clause is node.for_in:
            loop.carries = self.carried(node, names)
        try:
            by_data = False
            for condition in clause.ifs:
                test = self.value(condition.test, names)
                loop.filters.append((condition.test, test))
                by_data = by_data or (isinstance(test, Data) and test.role != "all_but_one")
            if clause.inner_for_in is not None:
                inner = self._generate(node, clause.inner_for_in, names)
                element: Value = inner.element if isinstance(inner, Sequence) else UNKNOWN
            elif isinstance(node, cst.DictComp):
                self.value(node.key, names)
                element = self.value(node.value, names)
            else:
                element = self.value(node.elt, names)
        finally:
            self.close_loop(loop)
        if isinstance(node, cst.SetComp):
            return Sequence(element, "groups", by_data, None)
        inside = inner if clause.inner_for_in is not None else None
        is_pairs = isinstance(inside, Sequence) and (inside.is_pairs or inside.label == loop.labels[0])
        return Sequence(element, loop.labels[0], by_data, loop.length, is_pairs)

    def touch(self, *values: Value, indexed: bool = False, compared: bool = False) -> None:
        """Note in the loops around what the values say of them."""
        has_data = any(isinstance(value, (Data, Sequence)) for value in values)
        for value in values:
            number = value.loop if isinstance(value, (Counter, Static, Data)) else None
            loop = next((one for one in self.loops if id(one) == number), None)
            if loop is None or not has_data:
                continue
            if isinstance(value, Data) and not value.origins and not any(one.origins for one in data_in(values)):
                continue
            if not isinstance(value, Data) or not value.origins:  # A constant array is as good as a list.
                loop.neighbours = loop.neighbours or (indexed and isinstance(value, Counter) and value.shifted)
                loop.indexed = loop.indexed or indexed
                loop.compared = loop.compared or compared
                loop.scaled = loop.scaled or not (indexed or compared)
        for data in data_in(values):
            for loop in self.loops:
                loop.touched = True
                loop.origins |= data.origins

    _BY_TYPE: ClassVar[dict[type, Callable[[Any, Any, Names], Value]]] = {
        cst.Name: _name,
        cst.Attribute: _attribute,
        cst.Integer: _integer,
        cst.Float: _integer,
        cst.SimpleString: _text,
        cst.ConcatenatedString: _text,
        cst.FormattedString: _text,
        cst.Tuple: _elements,
        cst.List: _elements,
        cst.Set: _elements,
        cst.Dict: _dict,
        cst.BinaryOperation: _binary,
        cst.UnaryOperation: _unary,
        cst.BooleanOperation: _boolean,
        cst.Comparison: _comparison,
        cst.IfExp: _conditional,
        cst.NamedExpr: _named,
        cst.Subscript: _subscript,
        cst.Lambda: _lambda,
        cst.Call: Calls.call,
        **dict.fromkeys(_COMPREHENSIONS, _comprehension),
    }
