"""`while` loops that count: the range that their counter runs through."""

from __future__ import annotations

import ast
from typing import Any

from flatout.vectorize.arrays.algebra import number
from flatout.vectorize.arrays.lifted_values import Host, Known, Range, Refused, Tensor

from .evaluation import apply_operator
from .scopes import Scope


def counted(run: Any, node: ast.While, scope: Scope) -> tuple[str, Range, list[ast.stmt]]:
    """The counter of `while i < n: ...; i += 1`, the range that it runs through, and the body.

    The counter may rise or fall, and be changed at the end of the body or at its beginning.
    """
    refused = Refused(
        "A while loop that does not count: how many steps it takes depends on the data.", "FO101", node.lineno
    )
    test = node.test
    if node.orelse or not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        raise refused
    name = test.left.id
    steps = {at: step for at, part in enumerate(node.body) if (step := _step(part, name))}
    changed = sum(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
        for statement in node.body
        for part in ast.walk(statement)
    )
    if len(steps) != 1 or changed != 1 or not set(steps) <= {0, len(node.body) - 1}:
        raise refused
    ((at, step),) = steps.items()
    is_first = at == 0 and len(node.body) > 1
    if any(isinstance(part, ast.Continue) for statement in node.body for part in ast.walk(statement)) and not is_first:
        raise refused
    begin, stop = scope.variables.get(name), run.expression(test.comparators[0], scope)
    if not isinstance(begin, (Known, Host, Tensor)):
        raise refused
    op = type(test.ops[0])
    if op is (ast.LtE if step > 0 else ast.GtE):
        stop = _moved(run, stop, 1 if step > 0 else -1)
    elif op is not (ast.Lt if step > 0 else ast.Gt) and not (op is ast.NotEq and abs(step) == 1):
        raise refused
    if is_first:  # The body sees the counter when it was changed already.
        begin, stop = (_moved(run, bound, step) for bound in (begin, stop))
    steps_of = None if step == 1 else number(run.lift, step)
    return name, Range(begin, stop, steps_of), [part for part in node.body if part is not node.body[at]]


def _moved(run: Any, bound: Any, by: int) -> Any:
    return apply_operator(run, "+" if by > 0 else "-", bound, number(run.lift, abs(by)))


def _step(node: ast.stmt, name: str) -> int:
    """By how much a statement changes a counter: `i += 1`, `i = i - 2`; 0: it is none."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        op, by = node.op, node.value
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.BinOp):
        op, (left, by) = node.value.op, (node.value.left, node.value.right)
        if isinstance(op, ast.Add) and ast.unparse(by) == name:
            left, by = by, left
        if ast.unparse(left) != name:
            return 0
    else:
        return 0
    if not isinstance(by, ast.Constant) or type(by.value) is not int or not isinstance(op, (ast.Add, ast.Sub)):
        return 0
    return by.value if isinstance(op, ast.Add) else -by.value
