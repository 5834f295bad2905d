"""Dicts that hold what is computed of each key: `center[c] = y_pred[y == c].mean(0)` is a function of `c`."""

from __future__ import annotations

import ast
import copy

# Their values differ from each other, so that there are as many entries as steps.
_DISTINCT = ("unique", "set", "range")


def keyed(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function in which such dicts are functions of the key, where they are only ever read by key or value."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    at = 0
    while at < len(tree.body):
        found = _comprehended(tree.body[at]) or _filled(tree.body[at : at + 2])
        if found is not None and not names & {f"{found[0]}_of", f"{found[0]}_keys"}:
            trial = _replaced(tree, at, *found)
            tree = tree if trial is None else ast.fix_missing_locations(trial)
        _listed(tree, tree.body[at])
        at += 1
    return tree


def _listed(tree: ast.FunctionDef, made: ast.stmt) -> None:
    """`name = {}` that a loop fills with an entry a step, and of which only the values are read, as a list."""
    if not isinstance(made, ast.Assign) or ast.unparse(made.value) not in ("{}", "dict()"):
        return
    name = ast.unparse(made.targets[0])
    set_in = [(loop, one) for loop in tree.body if isinstance(loop, ast.For) for one in loop.body if _sets(one, name)]
    if len(set_in) != 1:
        return
    loop, entry = set_in[0]
    assert isinstance(entry, ast.Assign)
    key = entry.targets[0].slice  # type: ignore[attr-defined]
    keys = [part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
    if not isinstance(key, ast.Name) or key.id not in keys or any(isinstance(p, ast.Continue) for p in ast.walk(loop)):
        return
    read = [part for part in ast.walk(tree) if ast.unparse(part) in (f"{name}.values()", f"len({name})")]
    read = [part for part in read if isinstance(part, ast.Call)]
    mentions = sum(isinstance(part, ast.Name) and part.id == name for part in ast.walk(tree))
    if not read or mentions != len(read) + 2:
        return
    made.value = ast.copy_location(ast.List([], ast.Load()), made.value)
    append = ast.parse(f"{name}.append(0)").body[0]
    append.value.args = [entry.value]  # type: ignore[attr-defined]
    loop.body[loop.body.index(entry)] = ast.copy_location(append, entry)
    tree.body = [_Values(name).visit(one) for one in tree.body]
    ast.fix_missing_locations(tree)


def _sets(statement: ast.stmt, name: str) -> bool:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    (target,) = statement.targets
    return isinstance(target, ast.Subscript) and ast.unparse(target.value) == name


class _Values(ast.NodeTransformer):
    def __init__(self, name: str):
        self._name = name

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node) != f"{self._name}.values()":
            return node
        return ast.copy_location(ast.Name(self._name, ast.Load()), node)


_Found = tuple[str, str, ast.expr, list[ast.stmt], int]


def _comprehended(statement: ast.stmt) -> _Found | None:
    """`name = {key: value for key in keys}`: name, key, keys, what computes the value, and how many statements."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.DictComp):
        return None
    made, target = statement.value, statement.targets[0]
    (first, *rest) = made.generators
    if rest or first.ifs or not isinstance(first.target, ast.Name) or not isinstance(target, ast.Name):
        return None
    if ast.unparse(made.key) not in (first.target.id, f"int({first.target.id})"):
        return None
    back = ast.copy_location(ast.Return(made.value), statement)
    return target.id, first.target.id, first.iter, [back], 1


def _filled(statements: list[ast.stmt]) -> _Found | None:
    """`name = {}`, and the loop behind it that sets `name[key]`."""
    if len(statements) < 2:
        return None
    made, loop = statements
    if not isinstance(made, ast.Assign) or ast.unparse(made.value) not in ("{}", "dict()"):
        return None
    if not isinstance(loop, ast.For) or loop.orelse or not isinstance(loop.target, ast.Name):
        return None
    *before, last = loop.body
    name, key = ast.unparse(made.targets[0]), loop.target.id
    if not isinstance(last, ast.Assign) or ast.unparse(last.targets[0]) not in (
        f"{name}[{key}]",
        f"{name}[int({key})]",
    ):
        return None
    if not all(isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) for one in before):
        return None
    if any(_mentions(part, name) for part in (*before, last.value, loop.iter)):
        return None
    return name, key, loop.iter, [*before, ast.copy_location(ast.Return(last.value), last)], 2


def _replaced(
    tree: ast.FunctionDef, at: int, name: str, key: str, keys: ast.expr, body: list[ast.stmt], count: int
) -> ast.FunctionDef | None:
    later = tree.body[at + count :]
    needed = {part.id for one in body for part in ast.walk(one) if isinstance(part, ast.Name)}
    changed = {
        part.id
        for one in later
        for part in ast.walk(one)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    own = {part.id for one in body for part in ast.walk(one) if isinstance(part, ast.Name) and _is_set(part)}
    if name in changed or changed & (needed - own - {key}) or not any(_mentions(one, name) for one in later):
        return None
    function = ast.parse(f"def {name}_of({key}):\n    pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = copy.deepcopy(body)
    listed = ast.Assign([ast.Name(f"{name}_keys", ast.Store())], copy.deepcopy(keys))
    reading = _Reading(name, any(f"{word}(" in ast.unparse(keys) for word in _DISTINCT))
    made = [reading.visit(copy.deepcopy(one)) for one in later]
    if any(_mentions(one, name) for one in made):
        return None
    start = [ast.copy_location(one, tree.body[at]) for one in (function, listed)]
    trial = copy.copy(tree)
    trial.body = [*tree.body[:at], *start, *made]
    return trial


def _is_set(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


class _Reading(ast.NodeTransformer):
    """Reads of the dict as calls of the function."""

    def __init__(self, name: str, is_distinct: bool):
        self._name = name
        self._is_distinct = is_distinct

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.value) != self._name or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(ast.Name(f"{self._name}_of", ast.Load()), [node.slice], [])
        return ast.copy_location(call, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, text = self._name, ast.unparse(node)
        made = {
            f"{name}.values()": f"[{name}_of({name}_key) for {name}_key in {name}_keys]",
            f"{name}.items()": f"[({name}_key, {name}_of({name}_key)) for {name}_key in {name}_keys]",
            f"{name}.keys()": f"{name}_keys",
            f"len({name})": f"len({name}_keys)",
        }.get(text)
        if made is None or not self._is_distinct:
            return node
        result = ast.parse(made, mode="eval").body
        for part in ast.walk(result):
            if isinstance(part, ast.expr):
                ast.copy_location(part, node)
        return result
