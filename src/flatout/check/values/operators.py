"""What operators and comparisons give."""

from __future__ import annotations

import ast
import dataclasses

from .abstract_values import (
    UNKNOWN,
    AbstractValue,
    Counter,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Tuple,
    Unknown,
    Variable,
)
from .operation_results import elementwise, multiplied

NUMBER = Static("number")


def operated(operator: str, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """The value of `left operator right`."""
    pair = (left, right)
    if any(isinstance(one, (Data, Variable)) for one in pair):
        data = [one for one in pair if isinstance(one, Data)]
        if len(data) == 2 and operator == "MatMult":
            return multiplied(data[0], data[1])
        if any(isinstance(one, Tuple) for one in pair):
            return UNKNOWN
        result = elementwise(pair)
        if any(isinstance(one, (Variable, Unknown)) for one in pair):
            result = dataclasses.replace(result, on_host=False)
        roles = {one.role for one in data}
        keeps = operator in ("Add", "Sub", "BitAnd", "BitOr") and len(roles) == 1
        return dataclasses.replace(result, role=roles.pop() if keeps else "")
    if isinstance(left, Tuple) and isinstance(right, Tuple) and operator == "Add":
        return Tuple(left.items + right.items, left.is_list)
    if found := next((one for one in pair if isinstance(one, Sequence)), None):
        return found
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Counter) and isinstance(other, (Static, Size, Counter)):
            return dataclasses.replace(one, shifted=True)
        if isinstance(one, Size) and isinstance(other, (Static, Size)):
            return one
        if isinstance(one, Tuple) and one.is_list and len(one.items) == 1 and operator == "Mult":
            return Static("list")  # `[None] * n`
    if isinstance(left, Static) and isinstance(right, Static):
        return Static(left.tag if left.tag in ("list", "array", "frame") else "number")
    return UNKNOWN


def negated(operator: ast.unaryop, value: AbstractValue) -> AbstractValue:
    """The value of `-value`, `not value` and the like."""
    if isinstance(operator, ast.Not):
        if isinstance(value, Data):
            return dataclasses.replace(value, axes=(), role="mask", differentiable=False)
        return NUMBER
    if isinstance(value, Static) and value.number is not None and isinstance(operator, ast.USub):
        return dataclasses.replace(value, number=-value.number)
    if isinstance(value, Data):
        return dataclasses.replace(value, role="mask" if value.role == "mask" else "")
    return value


def is_computed(operator: ast.cmpop, left: AbstractValue, right: AbstractValue) -> bool:
    """Whether a comparison is one of numbers on the device or read from it."""
    pair = (left, right)
    if isinstance(operator, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return False
    if any(isinstance(one, Static) and one.tag in ("text", "none") for one in pair):
        return False
    return any(isinstance(one, (Data, Variable)) for one in pair)


def compared(operator: ast.cmpop, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """The value of `left < right` and the like."""
    pair = (left, right)
    if is_computed(operator, left, right):
        result = elementwise(pair, "equal")
        only_counters = all(isinstance(one, Counter) or (isinstance(one, Data) and one.on_host) for one in pair)
        # All but one: the count does not depend on the data, only the place.
        if only_counters and isinstance(operator, ast.NotEq) and any(isinstance(one, Counter) for one in pair):
            return dataclasses.replace(result, role="all_but_one")
        return result
    if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(left, Data) and left.on_host:
        return dataclasses.replace(left, axes=(), role="")
    is_plain = isinstance(operator, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) or any(
        isinstance(one, Static) and one.tag in ("text", "none") for one in pair
    )
    return (
        NUMBER if is_plain or all(isinstance(one, (Static, Size, Counter, Tuple, Shape)) for one in pair) else UNKNOWN
    )
