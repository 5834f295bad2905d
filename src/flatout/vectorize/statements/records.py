"""Local dicts and lists that stand for a few variables: `parts["value"].append(x)` is `parts_value.append(x)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def separated(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function whose dicts and lists, where they are only ever read and written by constant keys, are variables."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg)}
    for made in [statement for statement in tree.body if _entries(statement) is not None]:
        assert isinstance(made, ast.Assign)
        target = made.targets[0]
        assert isinstance(target, ast.Name)
        keys = _keys(tree, target)
        variables = {} if keys is None else {key: f"{target.id}_{key}" for key in keys | set(_entries(made) or {})}
        if variables and not names & set(variables.values()):
            tree = _Separating(made, target.id, variables).visit(tree)
    return tree


def _entries(statement: ast.stmt) -> dict[str, ast.expr] | None:
    """The entries of `name = {"key": value, ...}`, `dict(key=value)` or `[value, ...]`; None: it is something else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    value = statement.value
    if not isinstance(statement.targets[0], ast.Name):
        return None
    if isinstance(value, ast.Dict):
        pairs = list(zip(value.keys, value.values, strict=True))
    elif isinstance(value, ast.List) and value.elts:
        pairs = [(ast.Constant(at), item) for at, item in enumerate(value.elts)]
    elif isinstance(value, ast.Call) and ast.unparse(value.func) == "dict" and not value.args:
        pairs = [(ast.Constant(word.arg), word.value) for word in value.keywords]
    else:
        return None
    if not all(isinstance(key, ast.Constant) and _is_name(key.value) for key, _ in pairs):
        return None
    return {str(key.value): item for key, item in pairs}  # type: ignore[union-attr]


def _is_name(key: object) -> bool:
    is_number = isinstance(key, int) and not isinstance(key, bool) and key >= 0
    return is_number or (isinstance(key, str) and key.isidentifier())


def _keys(tree: ast.FunctionDef, target: ast.Name) -> set[str] | None:
    """The keys that a dict is used with; None: it is used otherwise, too, or is never changed."""
    found, changed, uses = set(), False, 0
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not tree and _mentions(node, target.id):
            return None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == target.id:
            if not isinstance(node.slice, ast.Constant) or not _is_name(node.slice.value):
                return None
            found.add(str(node.slice.value))
            uses += 1
            changed |= not isinstance(node.ctx, ast.Load)
        changed |= isinstance(node, ast.Attribute) and isinstance(node.value, ast.Subscript) and node.attr == "append"
    mentions = sum(isinstance(node, ast.Name) and node.id == target.id for node in ast.walk(tree))
    return found if changed and mentions == uses + 1 else None


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


class _Separating(ast.NodeTransformer):
    def __init__(self, made: ast.Assign, name: str, variables: dict[str, str]):
        self._made = made
        self._name = name
        self._variables = variables

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        if node is not self._made:
            self.generic_visit(node)
            return node
        return list(self._assignments(node))

    def _assignments(self, node: ast.Assign) -> Iterator[ast.stmt]:
        for key, value in (_entries(node) or {}).items():
            target = ast.Name(self._variables[key], ast.Store())
            yield ast.fix_missing_locations(ast.copy_location(ast.Assign([target], value), node))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self._name and isinstance(node.slice, ast.Constant):
            return ast.copy_location(ast.Name(self._variables[str(node.slice.value)], node.ctx), node)
        return node
