"""Along which axis a loop runs, what one of its elements is, and what the parts of a value are that is taken apart."""

from __future__ import annotations

import ast
import math
import re

from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Static, Tuple
from flatout.check.values.operation_results import first_element, selected
from flatout.pysource.trees import number_of

from .events import Domain, WalkedLoop

_TIME_COUNTER = re.compile(r"^(t|tt|ts|step|time|frame|pos|tau|timestep|time_step|token)$", re.IGNORECASE)
_CLASS_COUNTER = re.compile(
    r"^(c|cc|cls|klass|class_.*|k|q|ch|channel|label|lab|category|quantile|head|bin)$", re.IGNORECASE
)
# Axes that grow with the data; the others are known and mostly short.
GROWING = frozenset({av.BATCH, av.GROUPS, *av.AXES})


def domain(iterated: AbstractValue) -> Domain:
    """The axis, or axes, that a loop over `iterated` runs along."""
    if isinstance(iterated, Data):
        if iterated.mapping or not iterated.origins:
            return Domain((iterated.label if iterated.label in GROWING and not iterated.mapping else av.STATIC,))
        return Domain((iterated.label if iterated.axes else av.LAST,), direct=not iterated.on_host)
    if isinstance(iterated, Sequence):
        labels = (iterated.label,) * (2 if iterated.is_pairs else 1)
        return Domain(labels, iterated.length, bounded_by_data=iterated.selected)
    if isinstance(iterated, av.Together):
        return _together(iterated)
    if isinstance(iterated, Tuple):
        return Domain((av.STATIC,), len(iterated.items))
    return Domain((av.STATIC,), iterated.length if isinstance(iterated, Static) else None)


def _together(iterated: av.Together) -> Domain:
    # What is iterated beside a tensor is no dict.
    items = [item.but(mapping=False) if isinstance(item, Data) else item for item in iterated.items]
    parts = [domain(item) for item in (items if len(items) > 1 else iterated.items)]
    if not parts:
        return Domain((av.STATIC,))
    if iterated.how == "product":
        return Domain(
            tuple(label for part in parts for label in part.labels),
            None if any(part.length is None for part in parts) else math.prod(part.length or 0 for part in parts),
            any(part.direct for part in parts),
        )
    if iterated.how == "enumerate":
        return parts[0]
    length = min((part.length for part in parts if part.length is not None), default=None)
    if any(part.labels == (av.STATIC,) for part in parts):
        whole = any(isinstance(item, Data) and item.origins for item in iterated.items)
        return Domain((av.STATIC,), length, whole=whole)
    return Domain(parts[0].labels[:1], length, any(part.direct for part in parts), parts[0].bounded_by_data)


def element(iterated: AbstractValue, loop: WalkedLoop) -> AbstractValue:
    """One element of what a loop runs over."""
    counter = av.Counter(loop.labels[0], id(loop))
    if isinstance(iterated, av.Together):
        items = [element(item, loop) for item in iterated.items]
        return Tuple((counter, *(items or [UNKNOWN])) if iterated.how == "enumerate" else tuple(items))
    if isinstance(iterated, av.Shape):
        return av.Size(loop.labels[0])
    if isinstance(iterated, Data):
        inner: AbstractValue = first_element(iterated)
    elif isinstance(iterated, Static):
        inner = Static()
    else:
        inner = iterated.element if isinstance(iterated, Sequence) else UNKNOWN
        inner = av.merge_all(iterated.items) if isinstance(iterated, Tuple) else inner
    return inner.but(loop=id(loop)) if isinstance(inner, (Data, av.Counter, Static)) else inner


def settled(label: str, variables: tuple[str, ...]) -> str:
    """The label, corrected where the names of the counters say which axis is meant: `t` for time, `c` for classes."""
    if label == av.LAST and any(_TIME_COUNTER.match(name) for name in variables):
        return av.AXES[1]
    if label == av.AXES[1] and any(_CLASS_COUNTER.match(name) for name in variables):
        return av.CLASSES
    return label


def counted(node: ast.While) -> tuple[str | None, ast.expr | None]:
    """The counter and the bound of a `while`: of `while i < n`, and of `while True` with `if i >= n: break` on top."""
    first = node.body[0]
    is_endless = isinstance(node.test, ast.Constant) and node.test.value is True
    if is_endless and isinstance(first, ast.If) and isinstance(first.body[0], ast.Break):
        return _counted(first.test, (ast.GtE, ast.Gt, ast.Eq), (ast.LtE, ast.Lt))
    return _counted(node.test, (ast.Lt, ast.LtE, ast.NotEq), (ast.Gt, ast.GtE))


def _counted(test: ast.expr, rising: tuple[type, ...], falling: tuple[type, ...]) -> tuple[str | None, ast.expr | None]:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        operator, bound = test.ops[0], test.comparators[0]
        is_number = isinstance(number_of(bound), int) or isinstance(bound, ast.UnaryOp)
        # One that counts down, `i > 0`, begins with its bound.
        if isinstance(operator, falling) or (isinstance(operator, rising[-1]) and is_number):
            return test.left.id, test.left
        if isinstance(operator, rising):
            return test.left.id, bound
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        # `i < n and error > tolerance`: it ends by the other one sooner, if at all.
        inside = (_counted(one, rising, falling) for one in test.values)
        return next((found for found in inside if found[0] is not None), (None, None))
    return None, None


def unpacked(value: AbstractValue, at: int) -> AbstractValue:
    """One of the parts of a value that is taken apart."""
    if isinstance(value, Tuple) and at >= len(value.items):
        return Data(frozenset({"weight"})) if av.data_in([value]) else UNKNOWN
    return selected(value, [Static("number", number=at)])
