"""Calls of the user's own functions replaced by what they return: `step(total, x)` becomes `total + x`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from .trees import FunctionNode, LoopNode, Trees, keyword_values, method_name, parameters, text_of, walk


class Helper(Protocol):
    """A function of the user, as whoever resolves a call knows it; `owner` is the object that it is a method of."""

    @property
    def node(self) -> FunctionNode: ...
    @property
    def owner(self) -> object | None: ...


Resolve = Callable[[ast.expr], Helper | None]
Carries = Callable[[LoopNode], tuple[str, ...]]
_Node = TypeVar("_Node", bound=ast.AST)
_Known = Mapping[str, ast.expr]
# A branch is written out twice with what follows it.
_MOST_BRANCHES = 4
_DEEPEST = 4
_COMPOUND = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While, ast.With,
    ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip


def inlined(loop: LoopNode, resolve: Resolve, carries: Carries) -> LoopNode:
    """A loop with the calls of helpers replaced; those that do more than compute a value stay.

    Args:
        loop: It is copied.
        resolve: Gives the function of a call.
        carries: What a loop inside a helper carries.
    """
    return cast("LoopNode", _Calls(resolve, carries, 0).visit(copy.deepcopy(loop)))


def calls_helpers(body: Trees, resolve: Resolve) -> bool:
    """Whether anything in a part of the source calls a function of the user."""
    return any(isinstance(node, ast.Call) and resolve(node.func) is not None for node in walk(body))


class _Calls(ast.NodeTransformer):
    def __init__(self, resolve: Resolve, carries: Carries, depth: int):
        self._resolve = resolve
        self._carries = carries
        self._depth = depth
        # What the helpers of a statement do before they return.
        self._effects: list[ast.stmt] = []

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:  # type: ignore[override]
        """`push(x)`, where `push` changes variables around it, is what `push` does."""
        made: ast.AST = super().visit(node)
        if isinstance(node, ast.stmt) and not isinstance(node, _COMPOUND) and self._effects:
            effects, self._effects = self._effects, []
            return [*effects, made]
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = self._resolve(node.func) if self._depth < _DEEPEST else None
        self.generic_visit(node)
        is_starred = any(isinstance(one, ast.Starred) for one in node.args) or any(not one.arg for one in node.keywords)
        if function is None or is_starred:
            return node
        given = _arguments(function, node)
        if isinstance(function.node, ast.Lambda):
            result: ast.expr | None = _substituted(function.node.body, given)
        else:
            body = function.node.body
            result = self._returned(body, given, 0) or self._changing(body, given)
        if result is None:
            return node
        made: ast.AST = _Calls(self._resolve, self._carries, self._depth + 1).visit(result)  # type: ignore[assignment]
        return made

    def _changing(self, statements: Sequence[ast.stmt], given: _Known) -> ast.expr | None:
        """What a helper returns that changes variables around it: its lines are to stand before the call."""
        if any(isinstance(line, _COMPOUND) for line in statements):
            return None
        for line in statements:
            if isinstance(line, ast.Return):
                return ast.Constant(None) if line.value is None else _substituted(line.value, given)
            self._effects.append(_substituted(line, given))
        return ast.Constant(None)

    def _returned(self, statements: Sequence[ast.stmt], known: _Known, branches: int) -> ast.expr | None:
        """What statements return, in terms of `known`; None: they do more than compute it."""
        names = dict(known)
        for at, statement in enumerate(statements):
            if isinstance(statement, ast.Return):
                return None if statement.value is None else _substituted(statement.value, names)
            if isinstance(statement, ast.If):
                if branches == _MOST_BRANCHES:
                    return None
                rest = statements[at + 1 :]
                sides = [
                    self._returned([*side, *rest], names, branches + 1) for side in (statement.body, statement.orelse)
                ]
                if sides[0] is None or sides[1] is None:
                    return None
                return ast.IfExp(_substituted(statement.test, names), sides[0], sides[1])
            # One step stands for all: what a step adds, they add.
            lines = statement.body if isinstance(statement, ast.For) else [statement]
            if any(isinstance(line, _COMPOUND) for line in lines):
                return None
            if isinstance(statement, ast.For) and self._carries(statement):
                return None
            if not all(_compute(line, names) for line in lines):
                return None
        return None


def _arguments(function: Helper, call: ast.Call) -> dict[str, ast.expr]:
    names = [one.arg for one in parameters(function.node)]
    places = list(call.args)
    if function.owner is not None:
        places.insert(0, call.func.value if isinstance(call.func, ast.Attribute) else ast.Name(names[0]))
    return {**dict(zip(names, places, strict=False)), **keyword_values(call)}


def _compute(line: ast.stmt, names: dict[str, ast.expr]) -> bool:
    """Take an assignment into `names`; False: the statement is something else."""
    if isinstance(line, ast.Assign) and len(line.targets) == 1:
        target, value = line.targets[0], _substituted(line.value, names)
        if isinstance(target, ast.Name):
            names[target.id] = value
            return True
        if not isinstance(target, ast.Tuple) or not all(isinstance(one, ast.Name) for one in target.elts):
            return False
        # Parts of what is not known here: each holds all that it is made of.
        is_apart = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        parts = value.elts if isinstance(value, ast.Tuple) and is_apart else [value] * len(target.elts)
        names.update({one.id: part for one, part in zip(target.elts, parts, strict=True)})  # type: ignore[attr-defined]
        return True
    if isinstance(line, ast.AugAssign) and isinstance(line.target, ast.Name):
        before = names.get(line.target.id, line.target)
        names[line.target.id] = ast.BinOp(before, line.op, _substituted(line.value, names))
        return True
    if isinstance(line, ast.Expr):
        call = line.value
        if isinstance(call, ast.Call) and method_name(call) == "append" and len(call.args) == 1:
            held = call.func.value  # type: ignore[attr-defined]
            if isinstance(held, ast.Name):
                added = ast.List([_substituted(call.args[0], names)])
                names[held.id] = ast.BinOp(names.get(held.id, held), ast.Add(), added)
                return True
        return text_of(call) is not None
    return isinstance(line, (ast.Pass, ast.Assert))


def _substituted(node: _Node, names: _Known) -> _Node:
    made: _Node = _Names(names).visit(copy.deepcopy(node))
    return made


class _Names(ast.NodeTransformer):
    def __init__(self, names: _Known):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = self._names.get(node.id)
        return node if found is None else copy.deepcopy(found)
