"""Whether a loss takes columns of y_true apart that y_pred does not have."""

from __future__ import annotations

import ast

from .trees import FunctionNode, dotted, given_values, index_parts, last_name, number_of, walk

_SPLITS = frozenset({"split", "unstack", "unbind", "chunk"})


def packed_columns(function: FunctionNode, true: str, pred: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """The first place where y_true is taken apart, and the names that its columns are given; None if it is not."""
    if not true or not pred:
        return None
    assignments = [node for node in walk(function) if isinstance(node, ast.Assign)]
    splits = {name: node for node in assignments if (name := _split(node))}
    if true in splits and pred not in splits:
        return splits[true].value, tuple(dotted(one) for one in splits[true].targets[0].elts)  # type: ignore[attr-defined]
    truth, guess = _columns(function, true), _columns(function, pred)
    if len(truth) < 2 or set(guess) == set(truth) or len(guess) > 1:
        return None
    places = set(map(id, truth.values()))
    names = [
        target.id
        for node in assignments
        for whole in node.targets
        for target, value in _pairs(whole, node.value)
        if isinstance(target, ast.Name) and any(id(one) in places for one in walk(value))
    ]
    return next(iter(truth.values())), tuple(names)


def _columns(function: ast.AST, name: str) -> dict[str, ast.Subscript]:
    """The constant selections along the last axis of a name, by how they are written."""
    found = {}
    for node in walk(function):
        if isinstance(node, ast.Subscript) and dotted(node.value) == name and len(index_parts(node)) > 1:
            last = index_parts(node)[-1]
            ends = [one for one in ((last.lower, last.upper) if isinstance(last, ast.Slice) else (last,)) if one]
            if ends and all(map(_is_integer, ends)):
                found[ast.unparse(last)] = node
    return found


def _is_integer(node: ast.expr) -> bool:
    return isinstance(number_of(node.operand if isinstance(node, ast.UnaryOp) else node), int)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    is_apart = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    return list(zip(target.elts, value.elts, strict=False)) if is_apart else [(target, value)]  # type: ignore[attr-defined]


def _split(node: ast.Assign) -> str:
    """`y` of `target, weight = ops.split(y, 2, axis=-1)`; empty for anything else."""
    call = node.value
    if not isinstance(call, ast.Call) or last_name(call.func) not in _SPLITS or not call.args:
        return ""
    axis = [ast.unparse(one) for one in given_values(call)[1:]]
    is_last = isinstance(node.targets[0], ast.Tuple) and ("-1" in axis or "1" in axis[-1:])
    return dotted(call.args[0]) if is_last else ""
