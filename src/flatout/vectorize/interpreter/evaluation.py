"""Expressions of a loss on lifted values: names, operators, indexing, comprehensions, conditions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from flatout.vectorize.arrays import exact_numbers as wide
from flatout.vectorize.arrays.algebra import as_constant, binary, elementwise, negative, not_, number, opened, operand
from flatout.vectorize.arrays.expression_graph import PYTHON
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Bag,
    Host,
    Items,
    Known,
    Listing,
    Local,
    Match,
    Mutable,
    Question,
    Refused,
    Sum,
    Tensor,
    WrongRank,
)
from flatout.vectorize.arrays.reductions import reduce
from flatout.vectorize.calls import calls, value_parts
from flatout.vectorize.calls.operations import matmul
from flatout.vectorize.lookups.lookups import is_series
from flatout.vectorize.loops.loop_totals import join

from . import best_so_far, heap_access
from .heap import Interpreting, constant_key, is_object, read
from .library_loops import comprehension, dictionary
from .scopes import Scope, watched

SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


def evaluate(run: Interpreting, node: ast.expr, scope: Scope) -> Any:
    """The lifted value of an expression."""
    graph = run.lift.graph
    match node:
        case ast.Constant():
            return Known(node.value, graph.const(node.value))
        case ast.Name():
            value = scope.find(node.id, graph, run.injected)
            if isinstance(value, Refused):
                raise Refused(value.reason, value.code, node.lineno)
            return watched(run.lift, value)
        case ast.Tuple() | ast.List():
            made = _sequence(run, node, scope)
            return run.heap.make("list", made) if isinstance(node, ast.List) else made
        case ast.Dict():
            return _dictionary(run, node, scope)
        case ast.BinOp():
            made = operate(run, node.op, run.expression(node.left, scope), run.expression(node.right, scope))
            return run.heap.make("list", made) if _is_fresh_list(made) else made
        case ast.UnaryOp():
            return _unary(run, node, scope)
        case ast.Compare():
            return _compare(run, node, scope)
        case ast.BoolOp():
            return _operand(run, node, scope)
        case ast.IfExp():
            return _either(run, node, scope)
        case ast.Subscript():
            return _subscript(run, node, scope)
        case ast.Attribute():
            of = evaluate(run, node.value, scope)
            if is_object(of):
                return heap_access.attribute(run, of, node.attr)
            return watched(run.lift, value_parts.attribute(run.lift, read(run, of), node.attr))
        case ast.Call():
            return calls.call(run, node, scope)
        case ast.Lambda():
            return Local(node, scope, "lambda")
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            listing = comprehension(run, node, scope)
            if isinstance(node, ast.ListComp):
                return run.heap.make("list", listing)
            return Bag(listing_to_tensor(run.lift, listing)) if isinstance(node, ast.SetComp) else listing
        case ast.DictComp():
            return dictionary(run, node, scope)
        case ast.JoinedStr():
            return Known("text", graph.const("text"))
        case ast.NamedExpr():
            value = evaluate(run, node.value, scope)
            run.assign(node.target, value, scope)
            return value
    raise Refused(f"An expression that cannot be lifted: {ast.unparse(node)}", line=getattr(node, "lineno", None))


def _sequence(run: Interpreting, node: ast.Tuple | ast.List, scope: Scope) -> Any:
    if any(isinstance(item, ast.Starred) for item in node.elts):
        raise Refused("A list is unpacked into another.")
    items = tuple(evaluate(run, item, scope) for item in node.elts)
    is_constant = items and all(isinstance(item, Known) and item.node.kind == "const" for item in items)
    made = Items(items, isinstance(node, ast.List))
    return as_constant(run.lift, made) if is_constant else made


def _is_fresh_list(value: Any) -> bool:
    """Whether an operator made a new list of Python's."""
    if isinstance(value, Items):
        return value.is_list
    return isinstance(value, Listing) or (isinstance(value, Known) and isinstance(value.value, list))


def array_place(run: Interpreting, node: ast.expr, scope: Scope) -> tuple[str, tuple[Any, ...]] | None:
    """The variable and the places of `table[a, b]` and `table[a][b]`; None: it is indexed by other than numbers."""
    places: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        places[:0] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        node = node.value
    if not isinstance(node, ast.Name) or any(isinstance(place, ast.Slice) for place in places):
        return None
    keys = tuple(run.expression(place, scope) for place in places)
    if any(isinstance(key, Tensor) and key.rank and key.kind != "bool" for key in keys):
        raise WrongRank("An entry is changed at more than one place at once.")
    is_plain = all(isinstance(key, (Known, Host)) or (isinstance(key, Tensor) and not key.rank) for key in keys)
    # Where all are variables of loops, entries are set in the order of the loops, which has a form of its own.
    is_counted = all(isinstance(key, Tensor) and key.position is not None for key in keys)
    return (node.id, keys) if is_plain and not is_counted else None


def _subscript(run: Interpreting, node: ast.Subscript, scope: Scope) -> Any:
    of = evaluate(run, node.value, scope)
    if isinstance(of, Sum):
        place = array_place(run, node, scope)
        if place is not None and (of.entry is None or isinstance(of.entry[0], Scope)):
            owner = scope.nonlocals.get(place[0], scope)
            return Sum(of.name, entry=(owner, place[0], place[1]))
    if is_object(of) and not isinstance(node.slice, ast.Slice):
        key = run.expression(node.slice, scope)
        if not (isinstance(key, Known) and (key.value is None or key.value is Ellipsis)):
            return heap_access.entry(run, of, key)
    if isinstance(of, Items) and isinstance(node.slice, (ast.Constant, ast.UnaryOp)):
        return value_parts.subscript(run, of, node.slice, scope)
    made = value_parts.subscript(run, read(run, of), node.slice, scope)
    return run.heap.make("list", made) if isinstance(node.slice, ast.Slice) and _is_fresh_list(made) else made


def _dictionary(run: Interpreting, node: ast.Dict, scope: Scope) -> Mutable:
    made = run.heap.make("dict")
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise Refused("A dict is unpacked into another.")
        known = constant_key(run.expression(key, scope))
        if known is None:
            raise Refused("A dict of tensors.")
        made.variables[known[0]] = evaluate(run, value, scope)
    if all(isinstance(value, Known) for value in made.variables.values()):
        content = {key: value.value for key, value in made.variables.items()}
        whole = Known(content, run.lift.graph.make("raw", ast.unparse(node)))
        made.made = (whole, dict(made.variables))
    return made


def operate(run: Interpreting, op: ast.operator, left: Any, right: Any) -> Any:
    if type(op) not in SYMBOLS:
        raise Refused(f"An operator that cannot be lifted: {type(op).__name__}.")
    return apply_operator(run, SYMBOLS[type(op)], left, right)


def apply_operator(run: Interpreting, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` of any two lifted values."""
    lift, graph = run.lift, run.lift.graph
    if isinstance(left, Sum) or isinstance(right, Sum):
        return _carried(run, symbol, left, right)
    if isinstance(left, Bag) and isinstance(right, Bag) and symbol == "&":
        return Bag(left.entries, (*left.others, right.entries, *right.others))
    if isinstance(left, Match) and isinstance(right, Match) and symbol == "&":
        return replace(left, also=(*left.also, (right.on, right.key), *right.also))
    if isinstance(left, Known) and isinstance(right, Known):
        try:
            return Known(PYTHON[symbol](left.value, right.value), graph.binary(symbol, left.node, right.node))
        except Exception as error:
            raise Refused(f"A constant expression fails: {error}") from error
    is_repeated = symbol == "*" and isinstance(left, Known) and isinstance(left.value, list)
    if isinstance(left, (Known, Host)) and isinstance(right, (Known, Host)) and not is_repeated:
        return Host(graph.binary(symbol, left.node, right.node))
    if symbol == "==" and (is_series(left) or is_series(right)):
        series, key = (left, right) if is_series(left) else (right, left)
        if isinstance(key, Tensor) and not key.rank:
            return Match(series, key)
    if is_repeated or isinstance(left, (Items, Listing)) or isinstance(right, (Items, Listing)):
        return _lists(run, symbol, left, right)
    if symbol == "@":
        return matmul(lift, operand(lift, left), operand(lift, right))
    return binary(lift, symbol, left, right)


def _lists(run: Interpreting, symbol: str, left: Any, right: Any) -> Any:
    left, right = opened(run.lift, left), opened(run.lift, right)
    if symbol == "+" and isinstance(left, Items) and isinstance(right, Items):
        return Items((*left.values, *right.values), left.is_list)
    if symbol == "*" and isinstance(left, Items) and isinstance(right, Host) and len(left.values) == 1:
        return Listing(left.values[0], (Axis("made", right.node),))
    raise Refused("Lists are combined in a way that has no array form.")


def _carried(run: Interpreting, symbol: str, left: Any, right: Any) -> Any:
    """An operator on a variable that a loop carries: it may only grow by a term."""
    lift = run.lift
    if isinstance(left, Sum) and isinstance(right, Sum):
        raise Refused(f"{left.name!r} depends on its own value at the step before.", "FO106")
    carried, other = (left, right) if isinstance(left, Sum) else (right, left)
    if symbol == "+" and carried is left and isinstance(other, Items) and carried.how is None:
        return replace(carried, how="list", terms=other.values)
    if symbol == "+" and isinstance(other, (Items, Listing)):
        raise Refused(f"The list {carried.name!r} is rebuilt at every step.", "FO106")
    if symbol == "+" or (symbol == "-" and carried is left):
        if symbol == "-":
            other = negated(run, other)
        return join(lift, "sum", carried, other)
    if symbol == "*":
        return join(lift, "prod", carried, other)
    raise Refused(
        f"{carried.name!r} is carried from one step to the next by {symbol!r}: a recurrence is not a map.", "FO106"
    )


def negated(run: Interpreting, value: Any) -> Any:
    if isinstance(value, (Known, Host)):
        node = run.lift.graph.make("negative", value.node)
        return Known(-value.value, node) if isinstance(value, Known) else Host(node)
    return negative(run.lift, operand(run.lift, value))


def _unary(run: Interpreting, node: ast.UnaryOp, scope: Scope) -> Any:
    if isinstance(node.op, ast.Not):
        test = condition(run, node.operand, scope)
        return number(run.lift, not test) if isinstance(test, bool) else run.inverse(test)
    value = run.expression(node.operand, scope)
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is carried from step to step.", "FO106")
    if isinstance(node.op, ast.USub):
        if isinstance(value, Listing):
            value = listing_to_tensor(run.lift, value)
        return negated(run, value)
    if isinstance(node.op, ast.UAdd):
        return value
    if isinstance(value, Tensor) and value.kind == "bool":
        return not_(run.lift, value)
    raise Refused("Bits are inverted.")


def _compare(run: Interpreting, node: ast.Compare, scope: Scope) -> Any:
    left = run.expression(node.left, scope)
    result: Any = None
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(run, right_node, scope)
        part = None
        if isinstance(op, (ast.In, ast.NotIn)):
            part = heap_access.contains(run, left, right, isinstance(op, ast.NotIn))
        right = read(run, right)
        part = _comparison(run, op, left, right) if part is None else part
        result = part if result is None else _decided(run, True, result, partial(lambda last: last, part))
        left = right
    return result


def _comparison(run: Interpreting, op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.Is, ast.IsNot)):
        if not isinstance(right, Known) or right.value is not None:
            raise Refused("Objects are compared by identity.")
        is_same, symbol = isinstance(op, ast.Is), "is" if isinstance(op, ast.Is) else "is not"
        if isinstance(left, Sum) and left.how is None and getattr(left.begin, "value", left) is None:
            return Question(left, symbol)
        if not isinstance(left, Known):
            return number(run.lift, not is_same)
        return Known((left.value is None) == is_same, run.lift.graph.binary(symbol, left.node, right.node))
    if isinstance(op, (ast.In, ast.NotIn)):
        return value_parts.contains(run.lift, left, right, isinstance(op, ast.NotIn))
    return compared(run, SYMBOLS[type(op)], left, right)


def compared(run: Interpreting, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`; a `Question` where one of them is what a loop carries."""
    lift = run.lift
    question = best_so_far.compared(symbol, left, right)
    if question is not None:
        return question
    for value in (left, right):
        if isinstance(value, Sum):
            raise Refused(f"A branch on {value.name!r}, which a loop carries from step to step.", "FO106")
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        left, right = wide.as_known(lift, left), wide.as_known(lift, right)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Tensor) and one.domain and isinstance(other, Known):
            lift.hints.append(("value", one.domain, other.value))
        if isinstance(one, Tensor) and one.domain and isinstance(other, Tensor) and other.position:
            kind = "index" if symbol in ("==", "!=") else "count"
            lift.hints.append((kind, one.domain, other.position[0].size))
    return apply_operator(run, *wide.compared(lift, symbol, left, right))


def _operand(run: Interpreting, node: ast.BoolOp, scope: Scope, only_truth: bool = False, first: int = 0) -> Any:
    """`a and b`, `a or b` as a value: that of the operand that decides, which need be no truth."""
    one = node.values[first]
    value = condition(run, one, scope, may_ask=True) if only_truth else run.expression(one, scope)
    if first == len(node.values) - 1:
        return value
    return _decided(run, isinstance(node.op, ast.And), value, lambda: _operand(run, node, scope, only_truth, first + 1))


def _decided(run: Interpreting, is_and: bool, value: Any, rest: Callable[[], Any]) -> Any:
    test = value if isinstance(value, (bool, Question)) else truth(run, value)
    if isinstance(test, bool):
        return rest() if test == is_and else value
    with run.lift.masked(test if is_and or isinstance(test, Question) else run.inverse(test)):
        other = rest()
    if isinstance(other, bool):
        return value if other == is_and else other
    if isinstance(value, Question) or isinstance(other, Question):
        return best_so_far.combined(run.lift, is_and, value, other)
    if all(isinstance(one, Tensor) and one.kind == "bool" for one in (value, other)):
        return elementwise(run.lift, "logical_and" if is_and else "logical_or", (value, other), "bool")
    return run.choose(test, other, value) if is_and else run.choose(test, value, other)


def condition(run: Interpreting, node: ast.expr, scope: Scope, may_ask: bool = False) -> Any:
    """An expression of which only the truth counts: as `truth` of it, or a `Question` where one may be asked."""
    if isinstance(node, ast.BoolOp):
        value = _operand(run, node, scope, only_truth=True)
    else:
        value = run.expression(node, scope)
    return value if isinstance(value, bool) or (may_ask and isinstance(value, Question)) else truth(run, value)


def _either(run: Interpreting, node: ast.IfExp, scope: Scope) -> Any:
    test = condition(run, node.test, scope, may_ask=True)
    if isinstance(test, bool):
        return evaluate(run, node.body if test else node.orelse, scope)
    then, otherwise = run.sides(test, [partial(evaluate, run, side, scope) for side in (node.body, node.orelse)])
    if isinstance(test, Question):
        return best_so_far.answered(run, test, then, otherwise, None, True)
    return run.choose(test, then, otherwise)


def truth(run: Interpreting, value: Any) -> Any:
    """A condition: True or False if known now, else a Host or a Tensor of booleans."""
    lift = run.lift
    if isinstance(value, Known):
        known = bool(value.value)
        if value.node.kind != "const":
            lift.guard(value.node, known)
        return known
    if isinstance(value, Items):
        return bool(value.values)
    if isinstance(value, Host):
        return value
    if isinstance(value, Listing):
        if value.keep is None:
            return Host(lift.graph.binary(">", value.axes[0].size, lift.graph.const(0)))  # type: ignore[arg-type]
        over = tuple(axis for axis in value.axes if axis in value.keep.dims)
        return reduce(lift, "any", value.keep, over)
    if isinstance(value, Tensor):
        if value.rank:
            raise WrongRank("A branch on an array of more than one value.")
        return value if value.kind == "bool" else binary(lift, "!=", value, number(lift, 0))
    if isinstance(value, (Sum, Question)):
        name = value.name if isinstance(value, Sum) else value.carried.name
        raise Refused(f"A branch on {name!r}, which a loop carries from step to step.", "FO106")
    raise Refused("A branch on something that is no number.", "FO202")
