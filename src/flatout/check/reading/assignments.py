"""What an assignment does: to names, attributes of objects, and entries of lists, arrays and tables."""

from __future__ import annotations

import dataclasses
from typing import Any

import libcst as cst

from .abstract_values import (
    UNKNOWN,
    Counter,
    Data,
    Instance,
    Sequence,
    Static,
    Tuple,
    Unknown,
    Value,
    data_in,
    merge,
    merge_all,
)
from .events import Wrote
from .expressions import Expressions
from .names import Names
from .operation_results import elementwise
from .targets import unpacked


class Assignments(Expressions):
    """The assignments of a walk."""

    _updating: set[str]
    _scopes: list[Names]

    def assign(self, target: cst.CSTNode, value: Value, names: Names) -> None:
        """Bind a target of an assignment, a loop or a `with`."""
        if isinstance(target, cst.Name):
            name = target.value
            if name in names.outside and not self.is_own(names.owner(name)):
                before = names.get(name)
                how = "global" if names.module().values.get(name) is before else "nonlocal"
                self.tell(Wrote(target, name, how, value, before))
            if names.is_function:
                names[name] = value
            else:
                names.values[name] = value
        elif isinstance(target, (cst.Tuple, cst.List)):
            for at, item in enumerate(target.elements):
                self.assign(item.value, unpacked(value, at, len(target.elements)), names)
        elif isinstance(target, cst.Attribute):
            owner = self.value(target.value, names)
            name = target.attr.value
            if isinstance(owner, Instance):
                before = owner.attributes.get(name, UNKNOWN)
                if not owner.is_fresh:
                    self.tell(Wrote(target, name, "attribute", value, before, counts=name in self._updating))
                before = owner.attributes.get(name)
                owner.attributes[name] = value if before is None else merge(before, value)
        elif isinstance(target, cst.Subscript):
            self._assign_entry(target, value, names)

    def _assign_entry(self, target: cst.Subscript, value: Value, names: Names) -> None:
        base = self.value(target.value, names)
        self.subscripted(target, base, names, written=True)
        keys = tuple(self.value(one.slice.value, names) for one in target.slice if isinstance(one.slice, cst.Index))
        root: Any = target.value
        while isinstance(root, (cst.Subscript, cst.Attribute)):
            owner = self.value(root.value, names) if isinstance(root, cst.Attribute) else None
            if isinstance(root, cst.Attribute) and isinstance(owner, Instance):
                if not owner.is_fresh:
                    self.tell(Wrote(target, root.attr.value, "entry", value, base, keys))
                return
            root = root.value
        if not isinstance(root, cst.Name):
            return
        if names.lookup(root.value)[1] > 0 and not self.is_own(names.scope_of(root.value)):
            self.tell(Wrote(target, root.value, "entry", value, base, keys))
        elif data_in([value]):
            whole = self.value(root, names)
            nested = root is not target.value
            filled = Sequence(Sequence(value, "constant"), "constant") if nested else _with_entry(base, keys, value)
            if isinstance(whole, Unknown):
                names[root.value] = filled
            else:
                self.mutated(whole, filled, names)

    def mutated(self, before: Value, after: Value, names: Names) -> None:
        """An object was changed in place: every name of the functions under way that holds it sees that."""
        for scope in (*self._scopes, *names.inside_out()):
            if scope.parent is not None:
                for name, value in scope.values.items():
                    if value is before:
                        scope.values[name] = after

    def augmented(self, node: cst.AugAssign, names: Names) -> None:
        value = self.value(node.value, names)
        if isinstance(node.target, cst.Name):
            before = names.get(node.target.value)
        else:
            before = self.value(node.target, names)
        if isinstance(value, Tuple) and value.is_list and isinstance(before, (Static, Sequence)):
            label = self.loops[-1].labels[0] if self.loops else "constant"
            grown: Value = Sequence(merge_all(list(value.items)) if value.items else UNKNOWN, label)
        else:
            operator = type(node.operator).__name__.removesuffix("Assign")
            grown = self.operated(node.value, operator, before, value)
        self._updating = {node.target.attr.value} if isinstance(node.target, cst.Attribute) else set()
        self.assign(node.target, grown, names)


def _with_entry(base: Value, keys: tuple[Value, ...], value: Value) -> Value:
    """A list, array or dict after `base[keys] = value`, where the value comes from the batch."""
    data = elementwise(list(data_in([value])))
    if isinstance(base, Static):
        label = next((key.label for key in keys if isinstance(key, Counter)), "constant")
        return dataclasses.replace(data, axes=(label,), on_host=base.tag == "array" or data.on_host)
    if isinstance(base, Data):
        flows = base.differentiable or data.differentiable
        return dataclasses.replace(base, origins=base.origins | data.origins, differentiable=flows)
    if isinstance(base, Tuple) and base.items:
        key = keys[0] if len(keys) == 1 else None
        at = int(key.number) if isinstance(key, Static) and key.number is not None else None
        if at is not None and -len(base.items) <= at < len(base.items):
            return Tuple(
                tuple(value if one == at % len(base.items) else item for one, item in enumerate(base.items)), True
            )
        return Sequence(merge_all([*base.items, value]), "constant", length=len(base.items))
    if isinstance(base, Sequence):
        return dataclasses.replace(base, element=merge(base.element, value))
    return base
