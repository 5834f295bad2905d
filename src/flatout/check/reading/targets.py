"""What loops and assignments bind: the counter of a `while`, the names of a target, the parts of a value."""

from __future__ import annotations

import libcst as cst

from .abstract_values import UNKNOWN, Data, Sequence, Shape, Static, Tuple, Value, data_in
from .operation_results import first_element, size_of_axis


def counted(test: cst.BaseExpression) -> tuple[str | None, cst.BaseExpression | None]:
    """`i < n`: the counter and the bound of a `while`; one that counts down, `i > 0`, begins with its bound."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 and isinstance(test.left, cst.Name):
        target = test.comparisons[0]
        is_number = isinstance(target.comparator, (cst.Integer, cst.UnaryOperation))
        falls = (cst.GreaterThan, cst.GreaterThanEqual, *((cst.NotEqual,) if is_number else ()))
        if isinstance(target.operator, falls):
            return test.left.value, test.left
        if isinstance(target.operator, (cst.LessThan, cst.LessThanEqual, cst.NotEqual)):
            return test.left.value, target.comparator
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        # `i < n and error > tolerance`: it ends by the other one sooner, if at all.
        found = counted(test.left)
        return found if found[0] is not None else counted(test.right)
    return None, None


def names_in(target: cst.CSTNode) -> list[str]:
    """The names that a target binds."""
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, (cst.Tuple, cst.List)):
        return [name for item in target.elements for name in names_in(item.value)]
    return []


def unpacked(value: Value, at: int, count: int) -> Value:
    """One of the `count` parts of a value that is taken apart."""
    if isinstance(value, Tuple):
        return (
            value.items[at] if at < len(value.items) else Data(frozenset({"weight"})) if data_in([value]) else UNKNOWN
        )
    if isinstance(value, Shape):
        return size_of_axis(value, at)
    if isinstance(value, Data):
        return first_element(value) if value.axes else value
    if isinstance(value, Sequence):
        return value.element
    return Static("object") if isinstance(value, Static) else UNKNOWN
