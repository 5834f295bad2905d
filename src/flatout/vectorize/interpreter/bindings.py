"""What assignments and imports bind."""

from __future__ import annotations

import ast
import importlib
import types
from typing import Any

from flatout.vectorize.arrays.algebra import known_items, number
from flatout.vectorize.arrays.indexing import index
from flatout.vectorize.arrays.lifted_values import Items, Known, Refused, Tensor, WrongRank

from .scopes import Scope


def paired(run: Any, targets: list[ast.expr], value: Any) -> list[tuple[ast.expr, Any]]:
    """What each of several variables is assigned; one with a star gets the rest."""
    stars = [at for at, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if not stars:
        return list(zip(targets, unpacked(run, value, len(targets)), strict=True))
    if not isinstance(value, Items) or len(value.values) < len(targets) - 1:
        raise Refused("Something of unknown length is assigned to several variables.")
    (at,) = stars
    behind = len(targets) - at - 1
    middle = Items(value.values[at : len(value.values) - behind], True)
    rest = value.values[len(value.values) - behind :] if behind else ()
    star = targets[at]
    assert isinstance(star, ast.Starred)
    named = [*targets[:at], star.value, *targets[at + 1 :]]
    return list(zip(named, [*value.values[:at], middle, *rest], strict=True))


def unpacked(run: Any, value: Any, count: int) -> list[Any]:
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


def bring_in(run: Any, node: Any, scope: Scope) -> None:
    """An import inside the function."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            module = importlib.import_module(alias.name if alias.asname else alias.name.partition(".")[0])
            if not alias.asname:
                importlib.import_module(alias.name)
            scope.variables[name] = Known(module, run.lift.graph.name(_given(run, name, module)))
        else:
            if node.level or node.module is None:
                raise Refused("A relative import inside the function.")
            module = importlib.import_module(node.module)
            value = getattr(module, alias.name)
            path = f"{node.module}.{alias.name}"
            name = alias.asname or alias.name
            if isinstance(value, types.ModuleType):
                path = value.__name__
            scope.variables[name] = Known(value, run.lift.graph.name(_given(run, name, value)), path)


def _given(run: Any, name: str, value: Any) -> str:
    run.injected.setdefault(name, value)
    return name
