"""Whether code computes and does nothing else, so that the order and the number of its runs do not matter."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any

from flatout.pysource.library_functions import is_random, library_of, may_define_gradient, path_of
from flatout.vectorize.arrays.lifted_values import Refused
from flatout.vectorize.interpreter.scopes import outside_of
from flatout.vectorize.reading.function_source import check_decorators, tree_of

_DEEPEST = 8
_EFFECTS = ("print", "input", "open", "exec", "eval", "setattr", "delattr", "globals", "next", "iter", "id", "vars")
_CHANGES = (
    "assign", "assign_add", "assign_sub", "write", "pop", "update", "setdefault", "add_", "mul_", "copy_", "fill_",
)  # fmt: skip
_OWN_CHANGES = ("append", "extend", "insert", "add", "remove")
_FORBIDDEN: dict[type, tuple[str, str]] = {
    ast.Global: ("A variable outside the function is changed.", "FO303"),
    ast.Nonlocal: ("A variable outside the function is changed.", "FO303"),
    ast.Break: ("A loop ends early (break): how many steps it takes depends on the data.", "FO101"),
    ast.While: ("A while loop: how many steps it takes may depend on the data.", "FO101"),
    ast.Assert: ("Something is asserted at every step of a loop.", "FO203"),
    ast.Try: ("An error is caught inside the loop.", "FO101"),
    ast.With: ("A context is entered inside the loop.", "FO101"),
    ast.Raise: ("An error is raised inside the loop.", "FO101"),
    ast.Yield: ("A generator function.", "FO101"),
    ast.Await: ("An asynchronous function.", "FO101"),
    ast.Delete: ("Something is deleted.", "FO303"),
    ast.ClassDef: ("A class is made at every call.", "FO301"),
}


class Impure(Refused):
    """The code does more than compute, or something is not known of it."""


def check_pure(statement: ast.AST, names: Mapping[str, Any], own: set[str], depth: int = 0) -> None:
    """Raise `Impure` unless a statement, with all functions of the user's that it calls, only computes.

    Args:
        statement: A statement of a function.
        names: The function's global and closure variables.
        own: Names that are local to the function.
        depth: How many calls deep this is.
    """
    local = own | stored(statement)
    for node in ast.walk(statement):
        if type(node) in _FORBIDDEN:
            raise Impure(*_FORBIDDEN[type(node)], getattr(node, "lineno", None))
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            raise Impure(f"An attribute or entry is changed: {ast.unparse(node)}", "FO303", node.lineno)
        if isinstance(node, (ast.For, ast.ListComp)) and any(isinstance(part, ast.Return) for part in ast.walk(node)):
            raise Impure("The function returns from inside a loop: early exit.", "FO101", node.lineno)
        if isinstance(node, ast.FunctionDef):
            check_decorators(node)
        if isinstance(node, ast.Expr) and not _is_of_own(node.value, local):
            raise Impure(f"A call is made for its effect: {ast.unparse(node)}", "FO303", node.lineno)
        if isinstance(node, ast.Call):
            _check_call(node, names, local, depth)


def _is_of_own(node: ast.expr, local: set[str]) -> bool:
    """Whether an expression that is a statement fills a list of the function's own, or does nothing."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return isinstance(node, ast.Constant)
    return node.func.attr in _OWN_CHANGES and isinstance(node.func.value, ast.Name) and node.func.value.id in local


def stored(*nodes: ast.AST) -> set[str]:
    """The names that code gives values to."""
    parts = (part for node in nodes for part in ast.walk(node))
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


def _check_call(node: ast.Call, names: Mapping[str, Any], local: set[str], depth: int) -> None:
    if isinstance(node.func, ast.Name) and node.func.id in _EFFECTS and node.func.id not in names:
        code = "FO203" if node.func.id == "print" else "FO303"
        raise Impure(f"A call does more than compute: {ast.unparse(node)}", code, node.lineno)
    function, root = _resolved(node.func, names)
    if isinstance(node.func, ast.Attribute):
        owner, _ = _resolved(node.func.value, names)
        changes = node.func.attr in _CHANGES or (node.func.attr in _OWN_CHANGES and root not in local)
        # A function of a module, such as `ops.add`, is no method.
        if not isinstance(owner, types.ModuleType) and (changes or node.func.attr.endswith("_")):
            raise Impure(f"Something outside the loop is changed: {ast.unparse(node.func)}()", "FO303", node.lineno)
    if function is None:
        return
    if may_define_gradient(function):
        reason = "A function has a gradient that the user defined: it cannot be derived from the body."
        raise Impure(reason, "FO101", node.lineno)
    path = path_of(function)
    if is_random(path) or is_random(ast.unparse(node.func)):
        raise Impure(
            f"Random numbers are drawn ({path}): one draw for the whole batch would change their number and order.",
            "FO304",
            node.lineno,
        )
    holder = getattr(function, "__self__", None) if isinstance(function, types.MethodType) else None
    function = getattr(function, "__func__", function)
    if isinstance(function, types.FunctionType) and library_of(function.__module__) is None:
        if depth > _DEEPEST:
            raise Impure("Functions are nested too deeply.", "FO101", node.lineno)
        tree = tree_of(function)
        inside = tree.body if isinstance(tree, ast.FunctionDef) else [tree.body]
        own = {arg.arg for arg in tree.args.args} | stored(*inside)
        known = outside_of(function) if holder is None else {**outside_of(function), "self": holder}
        for statement in inside:
            check_pure(statement, known, own, depth + 1)
    elif library_of(path) is None:
        raise Impure(f"A call to {path or ast.unparse(node.func)}, of which nothing is known.", "FO205", node.lineno)


def _resolved(node: ast.expr, names: Mapping[str, Any]) -> tuple[Any, str | None]:
    """The object that a dotted name is, or None for a method of a value; and the name that it starts with."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None, None
    found = names.get(node.id)
    for part in reversed(parts):
        found = getattr(found, part, None)
    return found, node.id
