"""What an assignment does: to names, attributes of objects, and entries of lists, arrays and tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import libcst as cst

from .events import Wrote
from .expressions import Expressions
from .names import Names
from .operations import elementwise
from .targets import unpacked
from .values import UNKNOWN, Counter, Data, Instance, Sequence, Static, Tuple, Value, data_in, merge


class Assignments(Expressions):
    """The assignments of a walk."""

    _updating: set[str]

    if TYPE_CHECKING:

        def is_own(self, names: Names) -> bool: ...

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
            if isinstance(root, cst.Attribute) and isinstance(self.value(root.value, names), Instance):
                self.tell(Wrote(target, root.attr.value, "entry", value, base, keys))
                return
            root = root.value
        if not isinstance(root, cst.Name):
            return
        if names.lookup(root.value)[1] > 0:
            self.tell(Wrote(target, root.value, "entry", value, base, keys))
        elif isinstance(base, Static) and data_in([value]) and root is target.value:
            label = next((key.label for key in keys if isinstance(key, Counter)), "constant")
            data = elementwise(list(data_in([value])))
            names[root.value] = dataclasses.replace(data, axes=(label,), on_host=base.tag == "array" or data.on_host)
        elif isinstance(base, Data) and data_in([value]) and root is target.value:
            data = elementwise(list(data_in([value])))
            flows = base.differentiable or data.differentiable
            names[root.value] = dataclasses.replace(base, origins=base.origins | data.origins, differentiable=flows)
        elif data_in([value]) and root is not target.value:
            names[root.value] = Sequence(Sequence(value, "constant"), "constant")

    def augmented(self, node: cst.AugAssign, names: Names) -> None:
        value = self.value(node.value, names)
        if isinstance(node.target, cst.Name):
            before = names.get(node.target.value)
        else:
            before = self.value(node.target, names)
        if isinstance(value, Tuple) and value.is_list and isinstance(before, (Static, Sequence)):
            label = self.loops[-1].labels[0] if self.loops else "constant"
            grown: Value = Sequence(value.items[0] if value.items else UNKNOWN, label)
        else:
            operator = type(node.operator).__name__.removesuffix("Assign")
            grown = self.operated(node.value, operator, before, value)
        self._updating = {node.target.attr.value} if isinstance(node.target, cst.Attribute) else set()
        self.assign(node.target, grown, names)
