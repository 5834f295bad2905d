"""Names: what a variable of the user's function means, and how the rewritten source can say it."""

from __future__ import annotations

import builtins
import collections
import contextlib
import hashlib
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flatout.vectorize.arrays.expression_graph import ExpressionGraph, fresh_name
from flatout.vectorize.arrays.lifted_values import Known, Local, Refused
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.reading.function_source import tree_of

_PLAIN = frozenset((bool, int, float, str, type(None)))


@dataclass(eq=False)
class Scope:
    """The variables of one function, with the scope around it."""

    variables: dict[str, Any] = field(default_factory=dict)  # What was assigned.
    parent: Scope | None = None  # The function around it, or None.
    outside: Mapping[str, Any] = field(default_factory=dict)  # Global and closure variables, as objects.
    is_root: bool = True  # Whether the rewritten source is executed with `outside` as its globals.
    # The variables of scopes around it that it changes, and whose they are.
    nonlocals: dict[str, Scope] = field(default_factory=dict)
    function: Any = None  # Whose globals and closure `outside` is.

    def find(self, name: str, graph: ExpressionGraph, injected: dict[str, Any]) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            top, scope = scope, scope.parent
        if name in top.outside:
            value = top.outside[name]
        elif hasattr(builtins, name):
            value = getattr(builtins, name)
            return Known(value, graph.name(name), f"builtins.{name}")
        else:
            raise Refused(f"The name {name!r} is not known.", "FO303")
        is_read_now = isinstance(value, (types.FunctionType, type)) or not top.is_root
        if is_read_now and not isinstance(value, types.ModuleType):
            graph.pins.append((top.function, name, value))
        if top.is_root:
            return Known(value, graph.name(name))
        if value is None or isinstance(value, (bool, int, float, str)):
            return Known(value, graph.const(value))
        # An object of another module has a name of its own in the rewritten source.
        chosen = fresh_name(name, {one for one, held in injected.items() if held is not value})
        injected[chosen] = value
        return Known(value, graph.name(chosen))


def is_still(function: types.FunctionType, name: str, value: Any) -> bool:
    """Whether a name that a function reads outside means what it did."""
    now = outside_of(function).get(name)
    is_plain = isinstance(value, (bool, int, float, str)) and type(now) is type(value)
    return now is value or (is_plain and bool(now == value))


def outline(value: Any) -> Any:
    """What a rewrite takes from a container for granted: keys, lengths and types; not the numbers, which it reads."""
    match value:
        case Mapping():
            return [list(value), outline(list(value.values()))]
        case list() | tuple():
            kinds = set(map(type, value))
            parts = sorted(kind.__name__ for kind in kinds) if kinds <= _PLAIN else [*map(outline, value)]
            return [type(value).__name__, len(value), parts]
        case set() | frozenset():
            return [type(value).__name__, len(value)]
        case _ if type(value).__module__.partition(".")[0] == "pandas":
            labels = [getattr(value, name).tolist() for name in ("index", "columns") if hasattr(value, name)]
            return [type(value).__name__, labels, str(getattr(value, "dtypes", ""))]
        case _ if hasattr(value, "shape") and hasattr(value, "dtype"):
            return [type(value).__name__, tuple(value.shape), str(value.dtype)]
    return type(value).__name__


def digest_of(value: Any) -> str:
    """The outline of a container, in short."""
    return hashlib.sha256(repr(outline(value)).encode()).hexdigest()[:16]


def watched(lift: Lifting, value: Any) -> Any:
    """A value, of which the rewrite holds as long as its outline stays the same if it is a container."""
    if isinstance(value, Known) and value.node.kind in ("name", "attribute") and _is_container(value.value):
        lift.stays(lift.graph.call("digest_of", value.node), digest_of(value.value))
    return value


def _is_container(value: Any) -> bool:
    is_pandas = type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "index")
    return is_pandas or isinstance(value, (Mapping, list, tuple, set, frozenset, np.ndarray))


def outside_of(function: types.FunctionType) -> Mapping[str, Any]:
    """What a function closes over, and its globals."""
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # Not assigned yet, or deleted.
            cells[name] = cell.cell_contents
    return collections.ChainMap(cells, function.__globals__)


def scope_of(function: types.FunctionType, is_root: bool = True) -> Scope:
    """What is around a function."""
    return Scope(outside=outside_of(function), is_root=is_root, function=function)


def as_local(function: Any, is_same_module: bool) -> Local:
    """A function of the user's, ready to be read in place of being called."""
    tree = tree_of(function)
    scope = scope_of(function, is_same_module and not function.__closure__)
    return Local(tree, scope, getattr(function, "__name__", "helper"))
