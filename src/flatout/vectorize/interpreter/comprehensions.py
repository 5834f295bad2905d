"""Comprehensions: the elements for all steps at once, or written out where they are few."""

from __future__ import annotations

import ast
from typing import Any

from flatout.vectorize.arrays.lifted_values import CONTENT, Items, Known, Listing, Mutable, Record, Refused
from flatout.vectorize.loops.iterated_axes import few_steps
from flatout.vectorize.loops.loop_totals import MOST_UNROLLED

from .heap import Interpreting, is_blank, read
from .scopes import Scope

# The list or dict that a comprehension fills, as a variable of the loop that it is.
_FILLED = "<filled>"
# The keys that a dict gets, where they are a few constants.
_STEPS = "<steps>"


def comprehension(run: Interpreting, node: Any, scope: Scope) -> Any:
    """`[f(i) for i in range(n) if c(i)]`: a list that a loop fills."""
    append = ast.Attribute(ast.Name(_FILLED, ast.Load()), "append", ast.Load())
    made = run.heap.make("list", Items((), True))
    before = _filled(run, made, ast.Expr(ast.Call(append, [node.elt], [])), node, scope)
    content = made.variables[CONTENT]
    element = content.element if isinstance(content, Listing) else None
    if not isinstance(element, Mutable):
        return content
    # Of objects that are made here, one stands for all of them.
    is_plain = isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs
    if not is_plain or element in before or element.kind == "object" or not is_blank(element):
        return read(run, content)
    element.is_many = True
    return content


def _filled(run: Interpreting, made: Mutable, filling: ast.stmt, node: Any, scope: Scope) -> Any:
    """Run a comprehension as a loop that fills a list or dict; returns the state before it."""
    inside = Scope({**scope.variables, _FILLED: made}, scope.parent, scope.outside, scope.is_root, scope.nonlocals)
    inside.variables[_STEPS] = None  # Those of a dict around this one are not its own.
    run.heap.add(inside)
    first = node.generators[0]
    if made.kind == "dict" and len(node.generators) == 1 and not first.ifs:
        inside.variables[_STEPS] = few_steps(run.lift, iterated(run, first.iter, inside), MOST_UNROLLED)
    for one in reversed(node.generators):
        if one.ifs:
            filling = ast.If(one.ifs[0] if len(one.ifs) == 1 else ast.BoolOp(ast.And(), one.ifs), [filling], [])
        is_few = inside.variables.get(_STEPS) is not None
        filling = ast.For(one.target, ast.Name(_STEPS, ast.Load()) if is_few else one.iter, [filling], [])
    before = run.heap.snapshot()
    run.statement(ast.fix_missing_locations(ast.copy_location(filling, node)), inside)
    if any(space not in (made, inside) for space, _ in run.heap.changed(before)):
        raise Refused("A comprehension changes what it does not make.", "FO303")
    return before


def iterated(run: Interpreting, node: ast.expr, scope: Scope) -> Any:
    """What a loop runs over; a list of a few objects as these objects, a dict as its keys."""
    over = run.reference(node, scope)
    if isinstance(over, Mutable) and isinstance(over.variables.get(CONTENT), Items):
        return over.variables[CONTENT]
    over = read(run, over)
    if isinstance(over, Record):
        return Items(tuple(Known(key, run.lift.graph.const(key)) for key in over.columns))
    return over


def dictionary(run: Interpreting, node: ast.DictComp, scope: Scope) -> Mutable:
    """`{key: f(k) for k, key in enumerate(names)}`: over a few constants, or as what is set under keys of the data."""
    made = run.heap.make("dict")
    entry = ast.Subscript(ast.Name(_FILLED, ast.Load()), node.key, ast.Store())
    _filled(run, made, ast.Assign([entry], node.value), node, scope)
    return made
