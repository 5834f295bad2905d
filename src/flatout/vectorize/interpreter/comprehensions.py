"""Comprehensions: the elements for all steps at once, or written out where they are few."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from flatout.vectorize.arrays.algebra import both, number
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    EACH,
    Host,
    Items,
    Known,
    Listing,
    Mutable,
    Range,
    Record,
    Refused,
    Several,
    Tensor,
    Terms,
)
from flatout.vectorize.arrays.lifting import Masked
from flatout.vectorize.loops.iterated_axes import in_order, stream

from .heap import is_blank, read
from .scopes import Scope


def comprehension(run: Any, node: Any, scope: Scope) -> Any:
    """`[f(i) for i in range(n) if c(i)]`: the elements for all i at once."""
    inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root, scope.nonlocals)
    before = run.heap.snapshot()
    made = _generators(run, node, list(node.generators), inside)
    if run.heap.changed(before):
        raise Refused("A comprehension changes what it does not make.", "FO303")
    return made


def iterated(run: Any, node: ast.expr, scope: Scope) -> Any:
    """What a loop runs over; a list of a few objects as these objects, a dict as its keys."""
    over = run.reference(node, scope)
    if isinstance(over, Mutable) and isinstance(over.variables.get(CONTENT), Items):
        return over.variables[CONTENT]
    over = read(run, over)
    if isinstance(over, Record):
        return Items(tuple(Known(key, run.lift.graph.const(key)) for key in over.columns))
    return over


def _generators(run: Any, node: Any, generators: list[ast.comprehension], scope: Scope) -> Any:
    first, *rest = generators
    over = iterated(run, first.iter, scope)
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
        element = _generators(run, node, rest, scope) if rest else _element(run, node, scope)
    finally:
        for mask in masks:
            mask.__exit__()
    if rest:
        if not isinstance(element, Listing):
            raise Refused("A comprehension over a list of constants inside another.")
        inner = in_order(run.lift, element.element, flow.axes)
        return Listing(inner, (*flow.axes, *element.axes), both(run.lift, keep, element.keep))
    return Listing(in_order(run.lift, element, flow.axes), flow.axes, keep)


def _element(run: Any, node: Any, scope: Scope) -> Any:
    """An element of a list; of objects that are made here, one that stands for all of them."""
    before = run.heap.snapshot()
    made = run.reference(node.elt, scope)
    is_new = (
        isinstance(made, Mutable)
        and made not in before
        and isinstance(node, ast.ListComp)
        and len(node.generators) == 1
    )
    if not is_new or made.kind == "object" or node.generators[0].ifs or not is_blank(made):
        return read(run, made)
    made.is_many = True
    return made


def dictionary(run: Any, node: ast.DictComp, scope: Scope) -> Mutable:
    """`{key: f(k) for k, key in enumerate(names)}`: over a few constants, or as what is set under keys of the data."""
    made = run.heap.make("dict")
    (first, *rest) = node.generators
    inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root, scope.nonlocals)
    over = iterated(run, first.iter, inside)
    steps = few_steps(run, over, 16) if not rest and not first.ifs else None
    if steps is None:
        pairs = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
        listing = comprehension(run, ast.copy_location(ast.ListComp(pairs, node.generators), node), scope)
        if not isinstance(listing, Listing) or not isinstance(listing.element, Items):
            raise Refused(f"An expression that cannot be lifted: {ast.unparse(node)}", line=node.lineno)
        made.variables[EACH] = Terms("sets", (listing,))
        return made
    for item in steps:
        run.assign(first.target, item, inside)
        key = run.expression(node.key, inside)
        if not isinstance(key, Known):
            raise Refused("A dict of tensors.")
        made.variables[key.value] = run.reference(node.value, inside)
    return made


def _written_out(run: Any, node: Any, first: Any, rest: Any, flow: Items, scope: Scope) -> Any:
    values: list[Any] = []
    for item in flow.values:
        run.assign(first.target, item, scope)
        conditions = [run.condition(test, scope) for test in first.ifs]
        if any(not isinstance(condition, bool) for condition in conditions):
            run.expression(node.elt, scope)  # What it says of the element is the better reason.
            raise Refused("A comprehension over constants with a condition on the data.", "FO108")
        if all(conditions):
            part = _generators(run, node, rest, scope) if rest else run.reference(node.elt, scope)
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
