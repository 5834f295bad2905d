"""Comprehensions: the elements for all steps at once, or written out where they are few."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import both, number
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Listing, Range, Record, Refused, Several, Tensor

from .iterated_axes import in_order, stream
from .scopes import Scope


def comprehension(run: Any, node: Any, scope: Scope) -> Any:
    """`[f(i) for i in range(n) if c(i)]`: the elements for all i at once."""
    inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
    return _generators(run, node, list(node.generators), inside)


def _generators(run: Any, node: Any, generators: list[ast.comprehension], scope: Scope) -> Any:
    from .branches import Masked

    first, *rest = generators
    over = run.expression(first.iter, scope)
    try:
        flow = stream(run.lift, over)
    except Refused:
        steps = few_steps(run, over, 16)
        if steps is None:
            raise
        flow = Items(tuple(steps))
    if isinstance(flow, Items):
        return _written_out(run, node, first, rest, flow, scope)
    if any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes):
        run.assign(first.target, flow.element, scope)
        flow = run.bounded(flow, over, lambda: run.expression(node.elt, scope))
    run.lift.changes.add("FO101")
    run.assign(first.target, flow.element, scope)
    keep = flow.keep
    masks = []
    for test in first.ifs:
        condition = run.condition(test, scope)
        if condition is False:
            return Items((), True)
        if isinstance(condition, Host):
            raise Refused("A comprehension's condition depends on the shape.", "FO202")
        if isinstance(condition, Tensor):
            keep = both(run.lift, keep, condition)
    if keep is not None:
        masks.append(Masked(run.lift, keep))
    for mask in masks:
        mask.__enter__()
    try:
        element = _generators(run, node, rest, scope) if rest else run.expression(node.elt, scope)
    finally:
        for mask in masks:
            mask.__exit__()
    if rest:
        if not isinstance(element, Listing):
            raise Refused("A comprehension over a list of constants inside another.")
        inner = in_order(run.lift, element.element, flow.axes)
        return Listing(inner, (*flow.axes, *element.axes), both(run.lift, keep, element.keep))
    return Listing(in_order(run.lift, element, flow.axes), flow.axes, keep)


def dictionary(run: Any, node: ast.DictComp, scope: Scope) -> Record:
    """`{key: f(k) for k, key in enumerate(names)}` over a few constants."""
    (first, *rest) = node.generators
    inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
    steps = few_steps(run, run.expression(first.iter, inside), 16)
    if steps is None or rest or first.ifs:
        raise Refused(f"An expression that cannot be lifted: {ast.unparse(node)}", line=node.lineno)
    made: dict[Any, Any] = {}
    for item in steps:
        run.assign(first.target, item, inside)
        key = run.expression(node.key, inside)
        if not isinstance(key, Known):
            raise Refused("A dict of tensors.")
        made[key.value] = run.expression(node.value, inside)
    return Record(made)


def _written_out(run: Any, node: Any, first: Any, rest: Any, flow: Items, scope: Scope) -> Any:
    values: list[Any] = []
    for item in flow.values:
        run.assign(first.target, item, scope)
        conditions = [run.condition(test, scope) for test in first.ifs]
        if any(not isinstance(condition, bool) for condition in conditions):
            run.expression(node.elt, scope)  # What it says of the element is the better reason.
            raise Refused("A comprehension over constants with a condition on the data.", "FO108")
        if all(conditions):
            part = _generators(run, node, rest, scope) if rest else run.expression(node.elt, scope)
            if rest and not isinstance(part, Items):
                raise Refused("A comprehension over arrays inside one over constants.")
            values.extend(part.values if rest else [part])
    return Items(tuple(values), True)


def few_steps(run: Any, over: Any, most: int) -> list[Any] | None:
    """The steps of a loop over a few constants, to be written out; else None."""
    graph = run.lift.graph
    if isinstance(over, Range) and all(
        isinstance(part, Known) or part is None for part in (over.start, over.stop, over.step)
    ):
        numbers = range(over.start.value, over.stop.value, over.step.value if over.step else 1)
        return [number(run.lift, k) for k in numbers] if len(numbers) <= most else None
    if isinstance(over, Known) and isinstance(over.value, (list, tuple, np.ndarray)) and len(over.value) <= most:
        return [Known(item, graph.index(over.node, (graph.const(k),))) for k, item in enumerate(over.value)]
    if isinstance(over, Known) and isinstance(over.value, Mapping) and len(over.value) <= most:
        return [number(run.lift, key) for key in over.value]
    if isinstance(over, Several) and over.how in ("enumerate", "zip", "product"):
        several = over.values[:1] if over.how == "enumerate" else over.values
        parts = [few_steps(run, value, most) for value in several]
        if any(part is None for part in parts):
            return None
        if over.how == "enumerate":
            return [Items((number(run.lift, k), item)) for k, item in enumerate(parts[0] or [], over.values[1].value)]
        if over.how == "zip":
            return [Items(row) for row in zip(*(part or [] for part in parts), strict=False)]
        return None
    if isinstance(over, Items) and len(over.values) <= most:
        return list(over.values)
    return None
