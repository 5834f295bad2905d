"""Whether a loss takes columns of y_true apart that y_pred does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcst as cst

from .source_file import dotted, walk

_SPLITS = frozenset({"split", "unstack", "unbind", "chunk"})


def packed_columns(function: cst.FunctionDef | cst.Lambda, root: Any) -> tuple[cst.CSTNode, tuple[str, ...]] | None:
    """The first place where y_true is taken apart, and the names that its columns are given; None if it is not."""
    true, pred = root.true_name, root.pred_name
    if not true or not pred:
        return None
    split = _split_call(function, true, pred)
    if split is not None:
        return split
    truth = dict(_columns(function, true))
    guess = dict(_columns(function, pred))
    if len(truth) < 2 or set(guess) == set(truth) or len(guess) > 1:
        return None
    names = tuple(
        name
        for target, value in _assignments(function)
        for name in [target]
        if _mentions(value, set(map(id, truth.values())))
    )
    return next(iter(truth.values())), names


def _columns(function: cst.CSTNode, name: str) -> Iterator[tuple[str, cst.Subscript]]:
    """The constant selections along the last axis of a name."""
    for node in walk(function):
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value == name:
            if len(node.slice) < 2:
                continue
            last: Any = node.slice[-1].slice
            parts = (last.value,) if isinstance(last, cst.Index) else (last.lower, last.upper)
            if all(part is None or _is_number(part) for part in parts) and any(part is not None for part in parts):
                yield _text(last), node


def _is_number(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Integer) or (
        isinstance(node, cst.UnaryOperation) and isinstance(node.expression, cst.Integer)
    )


def _text(node: cst.CSTNode) -> str:
    return "".join(cst.Module([]).code_for_node(node).split())


def _assignments(function: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    for node in walk(function):
        if not isinstance(node, cst.Assign):
            continue
        for target in node.targets:
            if isinstance(target.target, cst.Name):
                yield target.target.value, node.value
            elif isinstance(target.target, cst.Tuple) and isinstance(node.value, cst.Tuple):
                for left, right in zip(target.target.elements, node.value.elements, strict=False):
                    if isinstance(left.value, cst.Name):
                        yield left.value.value, right.value


def _mentions(node: cst.CSTNode, wanted: set[int]) -> bool:
    return any(id(one) in wanted for one in walk(node))


def _split_call(function: cst.CSTNode, true: str, pred: str) -> tuple[cst.CSTNode, tuple[str, ...]] | None:
    """`target, weight = ops.split(y_true, 2, axis=-1)` while y_pred stays whole."""
    splits: dict[str, tuple[cst.CSTNode, tuple[str, ...]]] = {}
    for node in walk(function):
        if not isinstance(node, cst.Assign) or not isinstance(node.value, cst.Call):
            continue
        call, target = node.value, node.targets[0].target
        if dotted(call.func).rsplit(".", 1)[-1] not in _SPLITS or not isinstance(target, cst.Tuple) or not call.args:
            continue
        subject = dotted(call.args[0].value)
        axis = [_text(argument.value) for argument in call.args[1:]]
        if "-1" in axis or "1" in axis[-1:]:
            splits[subject] = (call, tuple(dotted(item.value) for item in target.elements))
    return splits[true] if true in splits and pred not in splits else None
