"""Assignments: to names, to entries and attributes of what the user's code made, and to places of its arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import known_items, number
from flatout.vectorize.arrays.indexing import index
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Mutable,
    Refused,
    Splice,
    Sum,
    Tensor,
    WrongRank,
)
from flatout.vectorize.loops.loop_totals import join, masked_entries

from . import evaluation as expressions
from . import heap_access
from .heap import HELD, Interpreting, is_object, read
from .scopes import Scope


class Assigning(Interpreting):
    """The assignments of an `Interpreter`."""

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope.nonlocals.get(target.id, scope).variables[target.id] = value
                if isinstance(value, Mutable):
                    self.heap.named(value, target.id)
                node = getattr(value, "node", None)
                if (
                    isinstance(value, (Tensor, Host))
                    and node is not None
                    and node.kind not in ("name", "const", "size")
                ):
                    self.lift.graph.names.setdefault(node, target.id)
            case ast.Tuple() | ast.List():
                for one, part in _paired(self, target.elts, value):
                    self.assign(one, part, scope)
            case ast.Subscript() | ast.Attribute() if self._is_part(target, value, scope):
                pass
            case ast.Subscript(value=ast.Name()) | ast.Subscript(value=ast.Subscript(value=ast.Name())):
                self._assign_entry(target, read(self, value), scope)
            case _:
                names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
                is_own = isinstance(target, ast.Subscript) and any(name in scope.variables for name in names)
                code = "FO106" if is_own else "FO303"
                raise Refused(f"An attribute or entry is changed: {ast.unparse(target)}", code)

    def _is_part(self, target: ast.Subscript | ast.Attribute, value: Any, scope: Scope) -> bool:
        """Set an entry or attribute of a mutable object; False: it is none."""
        try:
            of = self.reference(target.value, scope)
        except Refused:
            return False
        if not is_object(of):
            return False
        if isinstance(target, ast.Attribute):
            heap_access.set_attribute(self, of, target.attr, value)
        else:
            heap_access.set_entry(self, of, self._key(target.slice, scope), value)
        return True

    def _assign_entry(self, target: ast.Subscript, value: Any, scope: Scope) -> None:
        root = target.value if isinstance(target.value, ast.Name) else target.value.value  # type: ignore[attr-defined]
        name = root.id
        held = scope.variables.get(name)
        if isinstance(value, Sum) and value.entry is not None:
            keys = expressions.array_place(self, target, scope)
            heap_access.change(self, scope.nonlocals.get(name, scope), name, keys[1] if keys else (), value)
            return
        slot = self._slot(target.slice, scope) if root is target.value else ()
        if isinstance(held, Sum) and slot:
            scope.variables[name] = join(self.lift, "entries", held, Splice(Listing(value, ()), slot))
            return
        is_whole = root is target.value
        if is_whole and isinstance(held, Tensor) and held.node.kind not in HELD and not _is_shared(held, scope):
            mask = None if isinstance(target.slice, (ast.Slice, ast.Tuple)) else self.expression(target.slice, scope)
            chosen = None if mask is None else masked_entries(self.lift, held, mask, value)
            if chosen is not None:
                scope.variables[name] = chosen
                return
        raise Refused(f"An entry is changed: {ast.unparse(target)}", "FO106" if held is not None else "FO303")

    def _slot(self, at: ast.expr, scope: Scope) -> tuple[Axis | None, ...]:
        """Which loops' variables say where an entry goes; None for `:`. Empty: it goes where the data say."""
        slot: list[Axis | None] = []
        for part in at.elts if isinstance(at, ast.Tuple) else [at]:
            if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                slot.append(None)
                continue
            place = None if isinstance(part, ast.Slice) else self.expression(part, scope)
            if not isinstance(place, Tensor) or not place.position or place.position[1]:
                return ()
            slot.append(place.position[0])
        axes = [axis for axis in slot if axis is not None]
        return tuple(slot) if axes and len(set(axes)) == len(axes) else ()

    def augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        """`target += value`; what is indexed or asked for an attribute is evaluated once."""
        target = node.target
        put: Callable[[Any], None] = lambda value: self.assign(target, value, scope)  # noqa: E731
        of = None if isinstance(target, ast.Name) else self.reference(target.value, scope)
        if is_object(of) and isinstance(target, ast.Attribute):
            old = heap_access.attribute(self, of, target.attr)
            put = partial(heap_access.set_attribute, self, of, target.attr)
        elif is_object(of) and isinstance(target, ast.Subscript):
            key = self._key(target.slice, scope)
            old, put = heap_access.entry(self, of, key), partial(heap_access.set_entry, self, of, key)
        else:
            old = self.reference(ast.parse(ast.unparse(target), mode="eval").body, scope)
        if isinstance(old, Known) and old.node.kind in HELD and _changes_in_place(old.value):
            raise Refused(f"Something outside the function is changed: {ast.unparse(node)}", "FO303")
        value = self.expression(node.value, scope)
        if is_object(old) and isinstance(node.op, ast.Add):
            heap_access.extend(self, old, value)
        else:
            put(expressions.operate(self, node.op, read(self, old), value))

    def _key(self, at: ast.expr, scope: Scope) -> Any:
        """A key, or a slice."""
        if isinstance(at, ast.Slice):
            bounds = (at.lower, at.upper, at.step)
            return slice(*(None if bound is None else self.expression(bound, scope) for bound in bounds))
        return self.expression(at, scope)


def _is_shared(held: Tensor, scope: Scope) -> bool:
    """Whether another variable holds the same array, or a part of it, and would change with it."""
    return sum(getattr(one, "node", None) is held.node for one in scope.variables.values()) > 1


def _changes_in_place(value: Any) -> bool:
    """Whether `value += x` or `value |= x` changes the value, as that of a list, dict, array of NumPy or torch does."""
    return any(hasattr(type(value), name) for name in ("__iadd__", "__ior__"))


def _paired(run: Interpreting, targets: list[ast.expr], value: Any) -> list[tuple[ast.expr, Any]]:
    """What each of several variables is assigned; one with a star gets the rest."""
    stars = [at for at, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if not stars:
        return list(zip(targets, _unpacked(run, value, len(targets)), strict=True))
    if not isinstance(value, Items) or len(value.values) < len(targets) - 1:
        raise Refused("Something of unknown length is assigned to several variables.")
    (at,) = stars
    behind = at + 1 + len(value.values) - len(targets)
    parts = [*value.values[:at], Items(value.values[at:behind], True), *value.values[behind:]]
    named = [target.value if isinstance(target, ast.Starred) else target for target in targets]
    return list(zip(named, parts, strict=True))


def _unpacked(run: Interpreting, value: Any, count: int) -> list[Any]:
    """The parts of a value that is assigned to several variables."""
    if isinstance(value, Items) and len(value.values) == count:
        return list(value.values)
    if isinstance(value, Known) and isinstance(value.value, (tuple, list)) and len(value.value) == count:
        return list(known_items(run.lift, value))
    if isinstance(value, Tensor) and value.rank:
        return [index(run.lift, value, [number(run.lift, k)]) for k in range(count)]
    if isinstance(value, Items):
        raise WrongRank(f"{len(value.values)} values are assigned to {count} variables.")
    raise Refused(f"Something of unknown length is assigned to {count} variables.")
