"""Whether a loss takes columns of y_true apart that y_pred does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .trees import FunctionNode, dotted, index_parts, last_name, number_of, walk

_SPLITS = frozenset({"split", "unstack", "unbind", "chunk"})


def packed_columns(function: FunctionNode, true: str, pred: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """The first place where y_true is taken apart, and the names that its columns are given; None if it is not."""
    if not true or not pred:
        return None
    split = _split_call(function, true, pred)
    if split is not None:
        return split
    truth = dict(_columns(function, true))
    guess = dict(_columns(function, pred))
    if len(truth) < 2 or set(guess) == set(truth) or len(guess) > 1:
        return None
    places = set(map(id, truth.values()))
    names = [name for name, value in _assignments(function) if any(id(one) in places for one in walk(value))]
    return next(iter(truth.values())), tuple(names)


def _columns(function: ast.AST, name: str) -> Iterator[tuple[str, ast.Subscript]]:
    """The constant selections along the last axis of a name."""
    for node in walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            pieces = index_parts(node)
            if len(pieces) < 2:
                continue
            last = pieces[-1]
            ends = (last.lower, last.upper) if isinstance(last, ast.Slice) else (last,)
            if all(end is None or _is_integer(end) for end in ends) and any(end is not None for end in ends):
                yield ast.unparse(last), node


def _is_integer(node: ast.expr) -> bool:
    return isinstance(number_of(node.operand if isinstance(node, ast.UnaryOp) else node), int)


def _assignments(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=False)
                yield from ((left.id, right) for left, right in pairs if isinstance(left, ast.Name))


def _split_call(function: ast.AST, true: str, pred: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """`target, weight = ops.split(y_true, 2, axis=-1)` while y_pred stays whole."""
    splits: dict[str, tuple[ast.expr, tuple[str, ...]]] = {}
    for node in walk(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        call, target = node.value, node.targets[0]
        if last_name(call.func) not in _SPLITS or not isinstance(target, ast.Tuple) or not call.args:
            continue
        axis = [ast.unparse(one) for one in (*call.args[1:], *(one.value for one in call.keywords))]
        if "-1" in axis or "1" in axis[-1:]:
            splits[dotted(call.args[0])] = (call, tuple(dotted(item) for item in target.elts))
    return splits[true] if true in splits and pred not in splits else None
