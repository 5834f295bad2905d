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
    "assign",
    "assign_add",
    "assign_sub",
    "write",
    "pop",
    "update",
    "setdefault",
    "add_",
    "mul_",
    "copy_",
    "fill_",
)
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
    local = own | {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _is_stored(node)}
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


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


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
        own = {arg.arg for arg in tree.args.args}
        own |= {part.id for one in inside for part in ast.walk(one) if isinstance(part, ast.Name) and _is_stored(part)}
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


def has_recurrence(body: list[ast.stmt]) -> bool:
    """Whether an inner loop needs the result of its step before, other than as a sum, maximum or list."""
    return any(
        _is_carried(loop)
        for statement in body
        for loop in ast.walk(statement)
        if isinstance(loop, (ast.For, ast.While))
    )


def _is_carried(loop: ast.For | ast.While) -> bool:
    kept: set[str] = set()
    for statement in (node for part in loop.body for node in ast.walk(part)):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            is_sum = isinstance(statement.value, ast.BinOp) and isinstance(statement.value.op, (ast.Add, ast.Sub))
            if _reads(statement.value, name) and not (is_sum and ast.unparse(statement.value).startswith(name)):
                kept.add(name)
            elif is_sum and _reads(statement.value, name):
                kept |= {name} if _reads_elsewhere(loop, statement, name) else set()
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if not isinstance(statement.op, (ast.Add, ast.Sub)) or _reads_elsewhere(loop, statement, name):
                kept.add(name)
        elif isinstance(statement, ast.Subscript) and isinstance(statement.ctx, ast.Store):
            return True
    return bool(kept) or _reads_before_assigning(loop)


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _reads_elsewhere(loop: Any, but: ast.AST, name: str) -> bool:
    inside = {id(part) for part in ast.walk(but)}
    return any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) and id(part) not in inside
        for statement in loop.body
        for part in ast.walk(statement)
    )


def _reads_before_assigning(loop: Any) -> bool:
    """`use(last); last = x[t]`: the value of the step before."""
    assigned: set[str] = set()
    later = {part.id for one in loop.body for part in ast.walk(one) if isinstance(part, ast.Name) and _is_stored(part)}
    for statement in loop.body:
        sums = isinstance(statement, ast.AugAssign)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            sums = _reads(statement.value, statement.targets[0].id)
        reads = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name) and not _is_stored(part)}
        stored = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name) and _is_stored(part)}
        # A loop or branch has variables of its own; an assignment reads before it stores.
        own = _bound_inside(statement) if isinstance(statement, ast.Assign) else stored
        if not sums and reads & (later - assigned - own):
            return True
        assigned |= stored
    return False


def _bound_inside(statement: ast.AST) -> set[str]:
    """The variables of the comprehensions of a statement."""
    targets = (node.target for node in ast.walk(statement) if isinstance(node, ast.comprehension))
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
