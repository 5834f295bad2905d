"""What loops and assignments bind: the counter of a `while`, the parts of a value that is taken apart."""

from __future__ import annotations

import ast

from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Shape, Static, Tuple, data_in
from flatout.check.values.operation_results import first_element, size_of_axis
from flatout.pysource.trees import number_of

_RISING = (ast.Lt, ast.LtE, ast.NotEq)
_FALLING = (ast.Gt, ast.GtE)
_OPPOSITES: dict[type, ast.cmpop] = {
    ast.GtE: ast.Lt(),
    ast.Gt: ast.LtE(),
    ast.Eq: ast.NotEq(),
    ast.Lt: ast.GtE(),
    ast.LtE: ast.Gt(),
}


def counted(test: ast.expr) -> tuple[str | None, ast.expr | None]:
    """`i < n`: the counter and the bound of a `while`; one that counts down, `i > 0`, begins with its bound."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        operator, bound = test.ops[0], test.comparators[0]
        is_number = isinstance(number_of(bound), int) or isinstance(bound, ast.UnaryOp)
        if isinstance(operator, _FALLING) or (isinstance(operator, ast.NotEq) and is_number):
            return test.left.id, test.left
        if isinstance(operator, _RISING):
            return test.left.id, bound
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        # `i < n and error > tolerance`: it ends by the other one sooner, if at all.
        return next((found for one in test.values if (found := counted(one))[0] is not None), (None, None))
    return None, None


def test_on_top(node: ast.While) -> ast.expr:
    """The test of a `while`; of `while True` with `if i >= n: break` on top, what must hold to go on."""
    first = node.body[0]
    is_endless = isinstance(node.test, ast.Constant) and node.test.value is True
    if not is_endless or not isinstance(first, ast.If) or not isinstance(first.body[0], ast.Break):
        return node.test
    test = first.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _OPPOSITES:
        return node.test
    opposite = ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]], test.comparators)
    return ast.copy_location(opposite, test)


def unpacked(value: AbstractValue, at: int) -> AbstractValue:
    """One of the parts of a value that is taken apart."""
    if isinstance(value, Tuple):
        if at < len(value.items):
            return value.items[at]
        return Data(frozenset({"weight"})) if data_in([value]) else UNKNOWN
    if isinstance(value, Shape):
        return size_of_axis(value, at)
    if isinstance(value, Data):
        return first_element(value) if value.axes else value
    if isinstance(value, Sequence):
        return value.element
    return Static("object") if isinstance(value, Static) else UNKNOWN
