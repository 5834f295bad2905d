"""Loops that keep the best so far and what goes with it: `if d < best: best, at = d, j` is `min(..., key=...)`."""

from __future__ import annotations

import ast
import copy
from typing import TypeGuard

from .simpler_statements import extreme


def searched(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function in which such loops ask for the best step, and then for what that step gives."""
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return ast.fix_missing_locations(_Searching(taken).visit(tree))  # type: ignore[no-any-return]


class _Searching(ast.NodeTransformer):
    def __init__(self, taken: set[str]):
        self._taken = taken

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        search = _Search.of(node)
        if search is None:
            return node
        return [ast.copy_location(one, node) for one in search.statements(self._fresh("key"), self._fresh("found"))]

    def _fresh(self, name: str) -> str:
        made = f"{name}_of_best"
        while made in self._taken:
            made += "_"
        self._taken.add(made)
        return made


class _Search:
    """A loop whose last statement keeps the best value so far."""

    def __init__(
        self, loop: ast.For, how: str, best: ast.Name, value: ast.expr, also: list[ast.expr], kept: list[ast.stmt]
    ):
        self._loop = loop
        self._how = how
        self._best = best
        self._value = value
        self._also = also
        self._kept = kept

    @classmethod
    def of(cls, loop: ast.For) -> _Search | None:
        last = loop.body[-1]
        if loop.orelse or not isinstance(last, ast.If) or last.orelse:
            return None
        if not all(_is_assignment(one) or _is_skip(one) for one in loop.body[:-1]):
            return None
        if not all(_is_assignment(one) for one in last.body):
            return None
        pairs = [pair for one in last.body for pair in _pairs(one)]
        if len(pairs) < 2:
            return None
        tests = last.test.values if isinstance(last.test, ast.BoolOp) and isinstance(last.test.op, ast.And) else []
        tests = tests or [last.test]
        for test in tests:
            for target, value in pairs:
                how = extreme(test, value, target)
                if how is not None and _is_strict(test) and not _carries(loop, last, test):
                    return cls(loop, how, target, value, [one for one in tests if one is not test], last.body)
        return None

    def statements(self, key: str, found: str) -> list[ast.stmt]:
        """The best step, and what is kept of it if it is better than what was kept before."""
        none = "float('inf')" if self._how == "min" else "-float('inf')"
        function = ast.parse(f"def {key}({found}):\n    pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        begun: list[ast.stmt] = [ast.Assign([self._loop.target], ast.Name(found, ast.Load()))]
        function.body = [*begun, *(_returning(one, none) for one in self._loop.body[:-1])]
        for test in self._also:
            function.body.append(ast.If(ast.UnaryOp(ast.Not(), test), [_return(none)], []))
        number = ast.unparse(self._value)
        # NaN is neither less nor more than the best so far.
        function.body.append(_return(f"{number} if {number} == {number} else {none}"))
        step = ast.Assign(
            [ast.Name(found, ast.Store())],
            _expression(f"{self._how}({ast.unparse(self._loop.iter)}, key={key})"),
        )
        sign = "<" if self._how == "min" else ">"
        is_better = _expression(f"{key}({found}) {sign} {self._best.id}")
        again = [one for one in self._loop.body[:-1] if _is_assignment(one)]
        kept = copy.deepcopy([*begun, *again, *self._kept])
        return [copy.deepcopy(function), step, ast.If(is_better, kept, [])]


def _is_assignment(node: ast.stmt) -> bool:
    """Whether a statement gives values to names, and nothing else."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target = node.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(part, ast.Name) for part in parts)


def _is_skip(node: ast.stmt) -> bool:
    """Whether a statement is `if c: continue`."""
    return isinstance(node, ast.If) and not node.orelse and [type(one) for one in node.body] == [ast.Continue]


def _pairs(node: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    assert isinstance(node, ast.Assign)
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Name):
        return [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))  # type: ignore[arg-type]
    return []


def _is_strict(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.Gt)


def _carries(loop: ast.For, last: ast.If, test: ast.expr) -> bool:
    """Whether a step reads what another has left, but for the best so far in the test."""
    tested = {id(node) for node in ast.walk(test)}
    kept = _stored(last)
    later = _stored(loop) - _stored(loop.target)
    for one in loop.body:
        read = {node.id for node in ast.walk(one) if _is_read(node) and id(node) not in tested}
        if read & (kept | later):
            return True
        later -= _stored(one)
    return False


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _is_read(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _returning(node: ast.stmt, none: str) -> ast.stmt:
    return ast.If(node.test, [_return(none)], []) if isinstance(node, ast.If) else node


def _return(text: str) -> ast.stmt:
    return ast.Return(_expression(text))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
