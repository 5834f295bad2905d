"""What an assignment does: to names, attributes of objects, and entries of lists, arrays and tables."""

from __future__ import annotations

import ast
import dataclasses

from flatout.check.values.abstract_values import (
    UNKNOWN,
    AbstractValue,
    Counter,
    Data,
    Instance,
    Sequence,
    Static,
    Tuple,
    Unknown,
    data_in,
    merge,
    merge_all,
)
from flatout.check.values.names import Names
from flatout.check.values.operation_results import elementwise
from flatout.check.values.traces import Slot
from flatout.pysource.trees import index_parts

from .events import Wrote
from .expressions import Expressions
from .targets import unpacked


class Assignments(Expressions):
    """The assignments of a walk."""

    def assign(self, target: ast.AST, value: AbstractValue, names: Names) -> None:
        """Bind a target of an assignment, a loop or a `with`."""
        if isinstance(target, ast.Name):
            name = target.id
            if name in names.outside and not self.is_own(names.owner(name)):
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
            if isinstance(owner, Instance):
                held = owner.attributes.get(target.attr)
                if not owner.is_fresh:
                    counts = target.attr in self.updating
                    self.tell(Wrote(target, target.attr, "attribute", value, held or UNKNOWN, counts=counts))
                owner.attributes[target.attr] = value if held is None else merge(held, value)
                self.write(Slot(owner, target.attr), value)
            else:
                self.write_entry(owner, f".{target.attr}", value)
        elif isinstance(target, ast.Subscript):
            self._assign_entry(target, value, names)

    def _assign_entry(self, target: ast.Subscript, value: AbstractValue, names: Names) -> None:
        base = self.value(target.value, names)
        self.subscripted(target, base, names, written=value)
        keys = tuple(self.value(one, names) for one in index_parts(target) if not isinstance(one, ast.Slice))
        root: ast.expr = target.value
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            owner = self.value(root.value, names) if isinstance(root, ast.Attribute) else None
            if isinstance(root, ast.Attribute) and isinstance(owner, Instance):
                if not owner.is_fresh:
                    self.tell(Wrote(target, root.attr, "entry", value, base, keys))
                return
            root = root.value
        if not isinstance(root, ast.Name):
            return
        if names.lookup(root.id)[1] > 0 and not self.is_own(names.scope_of(root.id)):
            self.tell(Wrote(target, root.id, "entry", value, base, keys))
        elif data_in([value]):
            whole = self.value(root, names)
            nested = root is not target.value
            filled = Sequence(Sequence(value, "constant"), "constant") if nested else _with_entry(base, keys, value)
            if isinstance(whole, Unknown):
                names[root.id] = filled
            else:
                self.mutated(whole, filled, names)

    def mutated(self, before: AbstractValue, after: AbstractValue, names: Names) -> None:
        """An object was changed in place: every name of the functions under way that holds it sees that."""
        for scope in (*self.scopes, *names.inside_out()):
            if scope.parent is not None:
                for name, value in scope.values.items():
                    if value.identity is before.identity:
                        scope.values[name] = after

    def augmented(self, node: ast.AugAssign, names: Names) -> None:
        """`target += value`."""
        value = self.value(node.value, names)
        target = node.target
        before = self.value(target, names)
        if isinstance(value, Tuple) and value.is_list and isinstance(before, (Static, Sequence)):
            label = self.loops[-1].labels[0] if self.loops else "constant"
            grown: AbstractValue = Sequence(merge_all(value.items), label)
        else:
            grown = self.operated(node.value, node.op, before, value)
        self.updating = {target.attr} if isinstance(target, ast.Attribute) else set()
        self.assign(target, grown, names)


def _with_entry(base: AbstractValue, keys: tuple[AbstractValue, ...], value: AbstractValue) -> AbstractValue:
    """A list, array or dict after `base[keys] = value`, where the value comes from the batch."""
    data = elementwise(data_in([value]))
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
            items = list(base.items)
            items[at] = value
            return Tuple(tuple(items), True)
        return Sequence(merge_all([*base.items, value]), "constant", length=len(base.items))
    if isinstance(base, Sequence):
        return dataclasses.replace(base, element=merge(base.element, value))
    return base
