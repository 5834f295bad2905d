"""The walk through expressions and assignments: what value each one has, and the events that the rules hear of."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from flatout.check.values import abstract_values as av
from flatout.check.values import operation_results as operations
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Static, Tuple
from flatout.check.values.names import Names
from flatout.check.values.operation_results import NUMBER, elementwise
from flatout.check.values.traces import Slot, used
from flatout.pysource.spellings import operations_name
from flatout.pysource.trees import ComprehensionNode, index_parts, is_none

from .call_results import CallResults
from .events import Operated, Read, Subscripted, Tested, Wrote
from .loop_domains import unpacked

_NOT_NUMBERS = ("dtype", "device", "ndim", "name", "requires_grad", "is_cuda")


class Expressions(CallResults):
    """Values of expressions, and what assignments bind. `value_X` gives the value of a node of the type X."""

    def value(self, node: ast.expr, names: Names) -> AbstractValue:
        """The abstract value of an expression."""
        found = getattr(self, f"value_{type(node).__name__}", None)
        return found(node, names) if found else UNKNOWN

    # -- names and attributes

    def value_Name(self, node: ast.Name, names: Names) -> AbstractValue:
        scope = names.scope_of(node.id)
        if scope is None:
            return av.External(f"builtins.{node.id}")
        value = scope.values[node.id]
        if self.is_outside(scope):
            self.tell(Read(node, node.id, value))
        return self.recalled(Slot(scope, node.id), value)

    def value_Attribute(self, node: ast.Attribute, names: Names) -> AbstractValue:
        base = self.value(node.value, names)
        return self.entry(base, f".{node.attr}", self.attribute(base, node.attr, node))

    def attribute(self, base: AbstractValue, name: str, node: ast.expr) -> AbstractValue:
        """The value of `base.name`."""
        if isinstance(base, av.External):
            return av.External(operations_name(f"{base.name}.{name}"))
        if isinstance(base, Data):
            return _data_attribute(base, name)
        if isinstance(base, av.Instance):
            found = base.attributes.get(name)
            if found is None:
                method = base.of.method(name)
                found = method.bound(base) if method else UNKNOWN
            self.tell(Read(node, name, found, base))
            return self.recalled(Slot(base, name), found)
        if isinstance(base, av.Class):
            held = base.methods.get(name, UNKNOWN)
            self.tell(Read(node, name, held, base))
            return held
        if isinstance(base, av.Variable) or (isinstance(base, Static) and base.tag in ("frame", "array", "dict")):
            return base
        if isinstance(base, Static) and base.tag == "file" and name in ("stdout", "stderr", "returncode"):
            return Static("text")  # What a process said.
        if isinstance(base, Static) and base.tag == "module" and base.text:
            return self.load(self.project.file(Path(base.text))).get(name)
        return UNKNOWN

    # -- literals

    def value_Constant(self, node: ast.Constant, names: Names) -> AbstractValue:
        value = node.value
        if value is None:
            return Static("none")
        if isinstance(value, (str, bytes)):
            return Static("text", text=str(value))
        if isinstance(value, bool):
            return NUMBER
        return Static("number", number=value) if isinstance(value, (int, float)) else UNKNOWN

    def value_JoinedStr(self, node: ast.JoinedStr, names: Names) -> AbstractValue:
        parts = [self.value(one.value, names) for one in node.values if isinstance(one, ast.FormattedValue)]
        inside = av.data_in(parts)
        found = Data(elementwise(inside).origins, axes=(), on_host=True) if inside else Static("text")
        return av.made_of(found, "", *parts)

    def value_Tuple(self, node: ast.Tuple | ast.List | ast.Set, names: Names) -> AbstractValue:
        is_starred = any(isinstance(one, ast.Starred) for one in node.elts)
        values = [self.value(one.value if isinstance(one, ast.Starred) else one, names) for one in node.elts]
        if is_starred:
            return av.merge_all(values)
        if isinstance(node, ast.List) and not values:
            return Static("list", length=0)
        return Tuple(tuple(values), isinstance(node, ast.List))

    value_List = value_Set = value_Tuple

    def value_Dict(self, node: ast.Dict, names: Names) -> AbstractValue:
        for key in filter(None, node.keys):
            self.value(key, names)
        values = [self.value(one, names) for one in node.values]
        if values and all(isinstance(one, av.Variable) for one in values):
            return Sequence(av.merge_all(values), av.STATIC, length=len(values))
        found = av.data_in(values)
        return av.made_of(elementwise(found) if found else Static("dict", length=len(values)), "", *values)

    # -- operators

    def value_BinOp(self, node: ast.BinOp, names: Names) -> AbstractValue:
        return self._operated(node, node.op, self.value(node.left, names), self.value(node.right, names))

    def _operated(self, node: ast.expr, op: ast.operator, left: AbstractValue, right: AbstractValue) -> AbstractValue:
        name = type(op).__name__
        self.tell(Operated(node, name, left, right))
        if any(isinstance(one, (Data, av.Variable)) for one in (left, right)):
            self.touch(left, right)
        return av.made_of(operations.operated(name, left, right), name, left, right)

    def value_UnaryOp(self, node: ast.UnaryOp, names: Names) -> AbstractValue:
        operand = self.value(node.operand, names)
        return av.made_of(operations.negated(node.op, operand), "", operand)

    def value_BoolOp(self, node: ast.BoolOp, names: Names) -> AbstractValue:
        result = self.value(node.values[0], names)
        for one in node.values[1:]:
            right = self.value(one, names)
            if not self.testing:
                self.tell(Tested(node, result))
            result = av.made_of(av.merge(result, right), "", result, right)
        return result

    def test(self, node: ast.expr, names: Names) -> AbstractValue:
        """The value of a condition; whoever asked for it tells the rules."""
        with self.having(testing=True):
            return self.value(node, names)

    def value_Compare(self, node: ast.Compare, names: Names) -> AbstractValue:
        left = self.value(node.left, names)
        result: AbstractValue = NUMBER
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator, names)
            if operations.is_computed(operator, left, right):
                self.touch(left, right, compared=True)
                self.tell(Operated(node, "Compare", left, right))
            result = av.made_of(operations.compared(operator, left, right), "", left, right)
            left = right
        if len(node.ops) > 1 and isinstance(result, Data):
            self.tell(Tested(node, result))
        return result

    def value_IfExp(self, node: ast.IfExp, names: Names) -> AbstractValue:
        test = self.test(node.test, names)
        self.tell(Tested(node, test))
        result = av.merge(self.value(node.body, names), self.value(node.orelse, names))
        # Where it is None, the first step has nothing to join.
        asks_for_none = isinstance(node.test, ast.Compare) and is_none(node.test.comparators[0])
        return result if asks_for_none else av.traced(result, {**av.traces_of(result), **used(av.traces_of(test))})

    def value_NamedExpr(self, node: ast.NamedExpr, names: Names) -> AbstractValue:
        value = self.value(node.value, names)
        self.assign(node.target, value, names.bound_in(node.target.id))
        return value

    # -- subscripts

    def value_Subscript(self, node: ast.Subscript, names: Names) -> AbstractValue:
        found = self._subscripted(node, self.value(node.value, names), names)
        # `y.at[i]` is to change `y`, not to read it.
        if isinstance(node.value, ast.Attribute) and node.value.attr == "at":
            return av.traced(found, self.value(node.value.value, names).traces)
        return found

    def _subscripted(
        self, node: ast.Subscript, base: AbstractValue, names: Names, written: AbstractValue | None = None
    ) -> AbstractValue:
        """The value of `base[...]`, or what is `written` there."""
        pieces: list[Any] = []
        for part in index_parts(node):
            if isinstance(part, ast.Slice):
                pieces.append(tuple(self.value(end, names) if end else None for end in (part.lower, part.upper)))
            elif isinstance(part, ast.Constant) and part.value is ...:
                pieces.append(...)
            else:
                value = self.value(part, names)
                pieces += value.items if isinstance(value, Tuple) and not value.is_list else (value,)
        index = [one for one in pieces if isinstance(one, AbstractValue)]
        slices = [one for one in pieces if isinstance(one, tuple)]
        self.tell(Subscripted(node, base, tuple(index), tuple(slices), written is not None))
        single = [pair[0] for pair in slices if all(isinstance(end, av.Counter) for end in pair)]  # `[i : i + 1]`
        self.touch(base, *index, *filter(None, single), indexed=isinstance(base, (Data, Sequence)))
        text, keys = f"[{ast.unparse(node.slice)}]", [*index, *(end for pair in slices for end in pair if end)]
        is_constant = all(isinstance(one, Static) and (one.number, one.text) != (None, None) for one in keys)
        key = None if is_constant else av.traces_of(Tuple(tuple(keys)))
        if written is not None:
            self.write_entry(base, text, written, key)
        return self.entry(base, text, operations.selected(base, pieces), key)

    # -- functions and comprehensions

    def value_Lambda(self, node: ast.Lambda, names: Names) -> AbstractValue:
        function = av.Function(node, self.file, names)
        if not self.reporting:
            self.made.append(function)
        return function

    def value_ListComp(self, node: ComprehensionNode, names: Names) -> AbstractValue:
        return self._generate(node, node.generators, Names({}, names, "comprehension"))

    value_SetComp = value_GeneratorExp = value_DictComp = value_ListComp

    def _generate(self, node: ComprehensionNode, clauses: list[ast.comprehension], names: Names) -> AbstractValue:
        clause, *rest = clauses
        iterated = self.value(clause.iter, names)
        inner: AbstractValue = UNKNOWN
        by_data = False
        with (
            self.looping(node, "comprehension", clause.iter, iterated, clause.target) as loop,
            self.iteration(loop, names, clause.target, iterated),
        ):
            for condition in clause.ifs:
                test = self.value(condition, names)
                loop.filters.append((condition, test))
                by_data = by_data or (isinstance(test, Data) and test.role != "all_but_one")
            if rest:
                inner = self._generate(node, rest, names)
                element: AbstractValue = inner.element if isinstance(inner, Sequence) else UNKNOWN
            elif isinstance(node, ast.DictComp):
                self.value(node.key, names)
                element = self.value(node.value, names)
            else:
                element = self.value(node.elt, names)
        if isinstance(node, ast.SetComp):
            return Sequence(element, "groups", by_data)
        is_pairs = isinstance(inner, Sequence) and (inner.is_pairs or inner.label == loop.labels[0])
        return Sequence(element, loop.labels[0], by_data, loop.length, is_pairs)

    # -- assignments

    def assign(self, target: ast.AST, value: AbstractValue, names: Names) -> None:
        """Bind a target of an assignment, a loop or a `with`."""
        if isinstance(target, ast.Name):
            name = target.id
            if name in names.outside and self.is_outside(names.owner(name)):
                before = names.get(name)
                how = "global" if names.module().values.get(name) is before else "nonlocal"
                self.tell(Wrote(target, name, how, value, before))
            scope = names.bound_in(name) if names.is_function else names
            scope.values[name] = value
            self.write(Slot(scope, name), value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for at, item in enumerate(target.elts):
                self.assign(item, self.entry(value, f"[{at}]", unpacked(value, at)), names)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, names)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, names)
            if not isinstance(owner, av.Instance):
                self.write_entry(owner, f".{target.attr}", value)
                return
            held = owner.attributes.get(target.attr)
            if not owner.is_fresh:
                counts = target.attr in self.updating
                self.tell(Wrote(target, target.attr, "attribute", value, held or UNKNOWN, counts=counts))
            owner.attributes[target.attr] = value if held is None else av.merge(held, value)
            self.write(Slot(owner, target.attr), value)
        elif isinstance(target, ast.Subscript):
            self._assign_entry(target, value, names)

    def _assign_entry(self, target: ast.Subscript, value: AbstractValue, names: Names) -> None:
        base = self.value(target.value, names)
        self._subscripted(target, base, names, written=value)
        keys = tuple(self.value(one, names) for one in index_parts(target) if not isinstance(one, ast.Slice))
        root: ast.expr = target.value
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            owner = self.value(root.value, names) if isinstance(root, ast.Attribute) else None
            if isinstance(root, ast.Attribute) and isinstance(owner, av.Instance):
                if not owner.is_fresh:
                    self.tell(Wrote(target, root.attr, "entry", value, base, keys))
                return
            root = root.value
        if not isinstance(root, ast.Name):
            return
        if self.is_outside(names.scope_of(root.id)):
            self.tell(Wrote(target, root.id, "entry", value, base, keys))
        elif av.data_in([value]):
            whole = self.value(root, names)
            nested = root is not target.value
            filled = Sequence(Sequence(value, "constant"), "constant") if nested else _with_entry(base, keys, value)
            if isinstance(whole, av.Unknown):
                names[root.id] = filled
            else:
                self.mutated(whole, filled, names)

    def walk_AugAssign(self, node: ast.AugAssign, names: Names) -> None:
        value, before = self.value(node.value, names), self.value(node.target, names)
        if isinstance(value, Tuple) and value.is_list and isinstance(before, (Static, Sequence)):
            label = self.loops[-1].labels[0] if self.loops else "constant"
            grown: AbstractValue = av.made_of(Sequence(av.merge_all(value.items), label), "Add", before, value)
        else:
            grown = self._operated(node.value, node.op, before, value)
        self.updating = {node.target.attr} if isinstance(node.target, ast.Attribute) else set()
        self.assign(node.target, grown, names)


def _data_attribute(data: Data, name: str) -> AbstractValue:
    if name == "shape":
        return av.Shape(data.axes)
    if name in _NOT_NUMBERS:
        return Static()
    if name in ("T", "mT"):
        return operations.transposed(data)
    if name == "data":
        return data.but(differentiable=False)
    # A column of a frame, or `x.at[...]`; other attributes of a tensor are not numbers.
    return data if data.on_host or data.mapping or name in ("at", "real", "imag", "values") else UNKNOWN


def _with_entry(base: AbstractValue, keys: tuple[AbstractValue, ...], value: AbstractValue) -> AbstractValue:
    """A list, array or dict after `base[keys] = value`, where the value comes from the batch."""
    data = elementwise(av.data_in([value]))
    if isinstance(base, Static):
        label = next((key.label for key in keys if isinstance(key, av.Counter)), "constant")
        return data.but(axes=(label,), on_host=base.tag == "array" or data.on_host)
    if isinstance(base, Data):
        return base.but(origins=base.origins | data.origins, differentiable=base.differentiable or data.differentiable)
    if isinstance(base, Tuple) and base.items:
        at = av.number_in(keys[0]) if len(keys) == 1 else None
        if at is not None and -len(base.items) <= at < len(base.items):
            items = list(base.items)
            items[int(at)] = value
            return Tuple(tuple(items), True)
        return Sequence(av.merge_all([*base.items, value]), "constant", length=len(base.items))
    return base.but(element=av.merge(base.element, value)) if isinstance(base, Sequence) else base
