"""Objects that live in one call of a loss, such as `mean = Mean()`: attributes as variables, methods as functions."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
import types
from collections.abc import Mapping
from typing import Any


def opened(tree: ast.FunctionDef, names: Mapping[str, Any], module_globals: Mapping[str, Any]) -> ast.FunctionDef:
    """A function without objects of small classes of its module, where they are only asked and told.

    Args:
        tree: The function.
        names: Its global and closure variables.
        module_globals: The globals that the methods must share: their names mean the same there.
    """
    tree.body = [part for one in tree.body for part in _one_by_one(one, names)]
    for made in list(tree.body):
        kind = _class_of(made, names)
        if kind is None:
            continue
        methods = _methods(kind, module_globals)
        opening = None if methods is None else _Opening(tree, made, methods)  # type: ignore[arg-type]
        if opening is not None and opening.is_whole:
            tree.body = opening.body()
    return ast.fix_missing_locations(tree)


def _one_by_one(statement: ast.stmt, names: Mapping[str, Any]) -> list[ast.stmt]:
    """`a, b = Mean(), Mean()` as two statements."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    value = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return [statement]
    made: list[ast.stmt] = [
        ast.copy_location(ast.Assign([one], given), statement)
        for one, given in zip(target.elts, value.elts, strict=True)
    ]
    is_plain = all(isinstance(given, ast.Call) and not given.args and not given.keywords for given in value.elts)
    return made if is_plain and all(_class_of(one, names) for one in made) else [statement]


def _class_of(statement: ast.stmt, names: Mapping[str, Any]) -> type | None:
    """The class of the user's in `name = Class(...)`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    call = statement.value
    if not isinstance(statement.targets[0], ast.Name) or not isinstance(call, ast.Call):
        return None
    kind = names.get(call.func.id) if isinstance(call.func, ast.Name) else None
    is_plain = isinstance(kind, type) and type(kind) is type and kind.__mro__ == (kind, object)
    return kind if is_plain else None


def _methods(kind: type, module_globals: Mapping[str, Any]) -> dict[str, ast.FunctionDef] | None:
    """The methods of a class that holds nothing else; None: it does, or its source is not to be had."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.ClassDef) or tree.decorator_list or tree.keywords:
        return None
    found: dict[str, ast.FunctionDef] = {}
    for one in tree.body:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            continue
        if not isinstance(one, ast.FunctionDef) or one.decorator_list or not one.args.args:
            return None
        function = vars(kind).get(one.name)
        is_here = isinstance(function, types.FunctionType) and function.__globals__ is module_globals
        if not is_here or function.__closure__ or function.__code__.co_name != one.name:  # type: ignore[union-attr]
            return None
        if any(isinstance(node, ast.Global | ast.Nonlocal | ast.Yield) for node in ast.walk(one)):
            return None
        found[one.name] = one
    return found


class _Opening:
    """One object: where it is made and used, and the variables and functions that stand for it."""

    def __init__(self, tree: ast.FunctionDef, made: ast.Assign, methods: dict[str, ast.FunctionDef]):
        assert isinstance(made.targets[0], ast.Name)
        self._tree = tree
        self._made = made
        self._methods = methods
        self._name = name = made.targets[0].id
        self._attributes = {
            node.attr
            for method in methods.values()
            for node in ast.walk(method)
            if isinstance(node, ast.Attribute) and _is_name(node.value, _self_of(method))
        } - set(methods)
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_name(node.value, name)]
        mentions = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
        names = {name for one in (tree, *methods.values()) for name in _names_in(one)}
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        inner = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda) and node is not tree]
        variables = [self._variable(one) for one in ("class", *self._attributes, *methods)]
        self.is_whole = (
            "__init__" in methods
            and len(mentions) == len(uses) + 1
            and all(use.attr in self._attributes or id(use) in called for use in uses)
            and all(use.attr in self._attributes | set(methods) for use in uses)
            and all(_is_only_told(method, self._attributes) for method in methods.values())
            and not any(_is_name(node, name) for function in inner for node in ast.walk(function))
            and not names & set(variables)
            and len(set(variables)) == len(variables)
        )

    def _variable(self, name: str) -> str:
        return f"{self._name}_{name.strip('_')}"

    def body(self) -> list[ast.stmt]:
        """The function's statements, with variables and inner functions in place of the object."""
        made: list[ast.stmt] = []
        for statement in self._tree.body:
            if statement is not self._made:
                made.append(_Renaming(self._name, self._variable).visit(statement))
                continue
            assert isinstance(statement.value, ast.Call)
            # So that the class is noted as read: a rewrite does not outlive it.
            kind = ast.Assign([ast.Name(self._variable("class"), ast.Store())], statement.value.func)
            begun = ast.Call(ast.Name(self._variable("__init__"), ast.Load()), statement.value.args, [])
            begun.keywords = statement.value.keywords
            parts: list[ast.stmt] = [kind, *map(self._function, self._methods.values()), ast.Expr(begun)]
            made += [ast.copy_location(part, statement) for part in parts]
        return made

    def _function(self, method: ast.FunctionDef) -> ast.FunctionDef:
        made = _Renaming(_self_of(method), self._variable).visit(copy.deepcopy(method))
        made.name = self._variable(method.name)
        made.args.args = made.args.args[1:]
        stored = {node.id for node in ast.walk(made) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        changed = sorted(stored & {self._variable(name) for name in self._attributes})
        if changed:
            made.body.insert(0, ast.Nonlocal(changed))
        for node in ast.walk(made):
            ast.copy_location(node, self._made)
        return made  # type: ignore[no-any-return]


def _is_only_told(method: ast.FunctionDef, attributes: set[str]) -> bool:
    """Whether a method uses `self` for the object's own attributes alone."""
    name = _self_of(method)
    uses = [node for node in ast.walk(method) if isinstance(node, ast.Attribute) and _is_name(node.value, name)]
    mentions = [node for node in ast.walk(method) if isinstance(node, ast.Name) and node.id == name]
    return len(uses) == len(mentions) and all(use.attr in attributes for use in uses)


def _names_in(tree: ast.AST) -> set[str]:
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return arguments | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _self_of(method: ast.FunctionDef) -> str:
    return method.args.args[0].arg


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class _Renaming(ast.NodeTransformer):
    """`it.name` as the variable, or the function, that stands for it."""

    def __init__(self, it: str, variable: Any):
        self._it = it
        self._variable = variable

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if not _is_name(node.value, self._it):
            return node
        return ast.copy_location(ast.Name(self._variable(node.attr), node.ctx), node)
