"""Expressions of a loss on lifted values: names, operators, indexing, comprehensions, conditions."""

from __future__ import annotations

import ast
import importlib
import operator
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import attributes, calls, subscripts
from .algebra import binary, both, elementwise, negative, number, operand, reduce
from .indexing import listing_to_tensor
from .lookups import is_series
from .loops import in_order, join, stream
from .scopes import Scope
from .values import (  # fmt: skip
    Bag,
    Host,
    Items,
    Listing,
    Local,
    Match,
    Range,
    Refused,
    Several,
    Static,
    Sum,
    Tensor,
    Unknown,
)

SYMBOLS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_PYTHON = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip


def evaluate(run: Any, node: ast.expr, scope: Scope) -> Any:
    """The lifted value of an expression."""
    graph = run.lift.graph
    match node:
        case ast.Constant():
            return Static(node.value, graph.const(node.value))
        case ast.Name():
            value = scope.find(node.id, graph, run.injected)
            if isinstance(value, Unknown):
                raise Refused(value.reason, value.code, node.lineno)
            return value
        case ast.Tuple() | ast.List():
            if any(isinstance(item, ast.Starred) for item in node.elts):
                raise Refused("A list is unpacked into another.")
            items = tuple(evaluate(run, item, scope) for item in node.elts)
            if items and all(isinstance(item, Static) and item.node.kind == "const" for item in items):
                content = [item.value for item in items]
                made = graph.sequence(tuple(item.node for item in items), isinstance(node, ast.List))
                return Static(content if isinstance(node, ast.List) else tuple(content), made)
            return Items(items, isinstance(node, ast.List))
        case ast.Dict():
            return _dictionary(run, node, scope)
        case ast.BinOp():
            return operate(run, node.op, evaluate(run, node.left, scope), evaluate(run, node.right, scope))
        case ast.UnaryOp():
            return _unary(run, node, scope)
        case ast.Compare():
            return _compare(run, node, scope)
        case ast.BoolOp():
            return _boolean(run, node, scope)
        case ast.IfExp():
            return _either(run, node, scope)
        case ast.Subscript():
            return subscripts.subscript(run, evaluate(run, node.value, scope), node.slice, scope)
        case ast.Attribute():
            return attributes.attribute(run, evaluate(run, node.value, scope), node.attr)
        case ast.Call():
            return calls.call(run, node, scope)
        case ast.Lambda():
            return Local(node, scope, "lambda")
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            listing = comprehension(run, node, scope)
            return Bag(listing_to_tensor(run.lift, listing)) if isinstance(node, ast.SetComp) else listing
        case ast.JoinedStr():
            return Static("text", graph.const("text"))
        case ast.NamedExpr():
            value = evaluate(run, node.value, scope)
            run.assign(node.target, value, scope)
            return value
    raise Refused(f"An expression that cannot be lifted: {ast.unparse(node)}", line=getattr(node, "lineno", None))


def _dictionary(run: Any, node: ast.Dict, scope: Scope) -> Static:
    pairs = []
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            raise Refused("A dict is unpacked into another.")
        parts = evaluate(run, key, scope), evaluate(run, value, scope)
        if not all(isinstance(part, Static) for part in parts):
            raise Refused("A dict of tensors.")
        pairs.append(tuple(part.value for part in parts))
    return Static(dict(pairs), run.lift.graph.make("raw", ast.unparse(node)))


def operate(run: Any, op: ast.operator, left: Any, right: Any) -> Any:
    return apply_operator(run, SYMBOLS[type(op)], left, right) if type(op) in SYMBOLS else _no_operator(op)


def _no_operator(op: ast.AST) -> Any:
    raise Refused(f"An operator that cannot be lifted: {type(op).__name__}.")


def apply_operator(run: Any, symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` of any two lifted values."""
    lift, graph = run.lift, run.lift.graph
    if isinstance(left, Sum) or isinstance(right, Sum):
        return _carried(run, symbol, left, right)
    if isinstance(left, Bag) and isinstance(right, Bag) and symbol == "&":
        return Bag(left.entries, (*left.others, right.entries, *right.others))
    if isinstance(left, Static) and isinstance(right, Static):
        try:
            return Static(_PYTHON[symbol](left.value, right.value), graph.binary(symbol, left.node, right.node))
        except Exception as error:
            raise Refused(f"A constant expression fails: {error}") from error
    if isinstance(left, (Static, Host)) and isinstance(right, (Static, Host)):
        return Host(graph.binary(symbol, left.node, right.node))
    if symbol == "==" and (is_series(left) or is_series(right)):
        series, key = (left, right) if is_series(left) else (right, left)
        if isinstance(key, Tensor) and not key.rank:
            return Match(series, key)
    if isinstance(left, (Items, Listing)) or isinstance(right, (Items, Listing)):
        return _lists(run, symbol, left, right)
    return binary(lift, symbol, left, right)


def _lists(run: Any, symbol: str, left: Any, right: Any) -> Any:
    def items(value: Any) -> Any:
        if isinstance(value, Static) and isinstance(value.value, (list, tuple)):
            return Items(tuple(number(run.lift, item) for item in value.value), isinstance(value.value, list))
        return value

    left, right = items(left), items(right)
    if symbol == "+" and isinstance(left, Items) and isinstance(right, Items):
        return Items((*left.values, *right.values), left.is_list)
    if symbol == "*" and isinstance(left, Items) and isinstance(right, Host) and len(left.values) == 1:
        return Items(())  # `[None] * n`: to be filled by a loop.
    raise Refused("Lists are combined in a way that has no array form.")


def _carried(run: Any, symbol: str, left: Any, right: Any) -> Any:
    """An operator on a variable that a loop carries: it may only grow by a term."""
    lift = run.lift
    if isinstance(left, Sum) and isinstance(right, Sum):
        raise Refused(f"{left.name!r} depends on its own value at the step before.", "FO106")
    carried, other = (left, right) if isinstance(left, Sum) else (right, left)
    if symbol == "+" and isinstance(other, (Items, Listing)):
        raise Refused(f"The list {carried.name!r} is rebuilt at every step.", "FO106")
    if symbol == "+" or (symbol == "-" and carried is left):
        if symbol == "-":
            other = _negated(run, other)
        return join(lift, "sum", carried, other)
    if symbol == "*":
        return join(lift, "prod", carried, other)
    raise Refused(
        f"{carried.name!r} is carried from one step to the next by {symbol!r}: a recurrence is not a map.", "FO106"
    )


def _negated(run: Any, value: Any) -> Any:
    if isinstance(value, (Static, Host)):
        node = run.lift.graph.make("negative", value.node)
        return Static(-value.value, node) if isinstance(value, Static) else Host(node)
    return negative(run.lift, operand(run.lift, value))


def _unary(run: Any, node: ast.UnaryOp, scope: Scope) -> Any:
    value = evaluate(run, node.operand, scope)
    if isinstance(node.op, ast.Not):
        condition = truth(run, value)
        return number(run.lift, not condition) if isinstance(condition, bool) else run.inverse(condition)
    if isinstance(value, Sum):
        raise Refused(f"{value.name!r} is carried from step to step.", "FO106")
    if isinstance(node.op, ast.USub):
        if isinstance(value, Listing):
            value = listing_to_tensor(run.lift, value)
        return _negated(run, value)
    if isinstance(node.op, ast.UAdd):
        return value
    if isinstance(value, Tensor) and value.kind == "bool":
        return elementwise(run.lift, "logical_not", (value,), "bool")
    raise Refused("Bits are inverted.")


def _compare(run: Any, node: ast.Compare, scope: Scope) -> Any:
    left = evaluate(run, node.left, scope)
    result: Any = None
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(run, right_node, scope)
        part = _comparison(run, op, left, right)
        result = part if result is None else _and(run, result, part)
        left = right
    return result


def _comparison(run: Any, op: ast.cmpop, left: Any, right: Any) -> Any:
    lift = run.lift
    if isinstance(op, (ast.Is, ast.IsNot)):
        if isinstance(right, Static) and right.value is None:
            same = isinstance(left, Static) and left.value is None
            return number(lift, same == isinstance(op, ast.Is))
        raise Refused("Objects are compared by identity.")
    if isinstance(op, (ast.In, ast.NotIn)):
        return subscripts.contains(run, left, right, isinstance(op, ast.NotIn))
    symbol = SYMBOLS[type(op)]
    for value in (left, right):
        if isinstance(value, Sum):
            raise Refused(f"A branch on {value.name!r}, which a loop carries from step to step.", "FO106")
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Tensor) and one.domain and isinstance(other, Static):
            lift.hints.append(("value", one.domain, other.value))
        if isinstance(one, Tensor) and one.domain and isinstance(other, Tensor) and other.position:
            kind = "index" if symbol in ("==", "!=") else "count"
            lift.hints.append((kind, one.domain, other.position[0].size))
    return apply_operator(run, symbol, left, right)


def _and(run: Any, left: Any, right: Any) -> Any:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return both(run.lift, left, right)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Static):
            return other if one.value else one
    if isinstance(left, Host) and isinstance(right, Host):
        return Host(run.lift.graph.make("ifexp", left.node, right.node, left.node))
    raise Refused("A condition on the shape and a condition on values are combined.", "FO202")


def _boolean(run: Any, node: ast.BoolOp, scope: Scope) -> Any:
    is_and = isinstance(node.op, ast.And)
    result: Any = None
    for item in node.values:
        value = truth(run, evaluate(run, item, scope))
        if isinstance(value, bool):
            if value != is_and:
                return number(run.lift, value)
            continue
        if result is None:
            result = value
        elif isinstance(result, Tensor) and isinstance(value, Tensor):
            result = elementwise(run.lift, "logical_and" if is_and else "logical_or", (result, value), "bool")
        elif is_and:
            result = _and(run, result, value)
        else:
            raise Refused("A condition on the shape and a condition on values are combined.", "FO202")
    return number(run.lift, is_and) if result is None else result


def _either(run: Any, node: ast.IfExp, scope: Scope) -> Any:
    from .interpret import _Masked

    condition = truth(run, evaluate(run, node.test, scope))
    if isinstance(condition, bool):
        return evaluate(run, node.body if condition else node.orelse, scope)
    if isinstance(condition, Tensor):
        run.lift.changes.add("FO202")
    with _Masked(run.lift, condition):
        left = evaluate(run, node.body, scope)
    with _Masked(run.lift, run.inverse(condition)):
        right = evaluate(run, node.orelse, scope)
    return run.choose(condition, left, right)


def truth(run: Any, value: Any) -> Any:
    """A condition: True or False if known now, else a Host or a Tensor of booleans."""
    lift = run.lift
    if isinstance(value, Static):
        known = bool(value.value)
        if value.node.kind != "const":
            lift.guards.append((value.node, known))
        return known
    if isinstance(value, Items):
        return bool(value.values)
    if isinstance(value, Host):
        return value
    if isinstance(value, Listing):
        if value.keep is None:
            return Host(lift.graph.binary(">", value.axes[0].size, lift.graph.const(0)))
        over = tuple(axis for axis in value.axes if axis in value.keep.dims)
        return reduce(lift, "any", value.keep, over)
    if isinstance(value, Tensor):
        if value.rank:
            from .values import WrongRank

            raise WrongRank("A branch on an array of more than one value.")
        return value if value.kind == "bool" else binary(lift, "!=", value, number(lift, 0))
    if isinstance(value, Sum):
        raise Refused(f"A branch on {value.name!r}, which a loop carries from step to step.", "FO106")
    raise Refused("A branch on something that is no number.", "FO202")


def comprehension(run: Any, node: Any, scope: Scope) -> Any:
    """`[f(i) for i in range(n) if c(i)]`: the elements for all i at once."""
    inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
    return _generators(run, node, list(node.generators), inside)


def _generators(run: Any, node: Any, generators: list[ast.comprehension], scope: Scope) -> Any:
    from .interpret import _Masked

    first, *rest = generators
    over = evaluate(run, first.iter, scope)
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
        flow = run.bounded(flow, over, lambda: evaluate(run, node.elt, scope))
    run.lift.changes.add("FO101")
    run.assign(first.target, flow.element, scope)
    keep = flow.keep
    masks = []
    for test in first.ifs:
        condition = truth(run, evaluate(run, test, scope))
        if condition is False:
            return Items((), True)
        if isinstance(condition, Host):
            raise Refused("A comprehension's condition depends on the shape.", "FO202")
        if isinstance(condition, Tensor):
            keep = both(run.lift, keep, condition)
    if keep is not None:
        masks.append(_Masked(run.lift, keep))
    for mask in masks:
        mask.__enter__()
    try:
        element = _generators(run, node, rest, scope) if rest else evaluate(run, node.elt, scope)
    finally:
        for mask in masks:
            mask.__exit__()
    if rest:
        if not isinstance(element, Listing):
            raise Refused("A comprehension over a list of constants inside another.")
        inner = in_order(run.lift, element.element, flow.axes)
        return Listing(inner, (*flow.axes, *element.axes), both(run.lift, keep, element.keep))
    return Listing(in_order(run.lift, element, flow.axes), flow.axes, keep)


def _written_out(run: Any, node: Any, first: Any, rest: Any, flow: Items, scope: Scope) -> Any:
    values: list[Any] = []
    for item in flow.values:
        run.assign(first.target, item, scope)
        conditions = [truth(run, evaluate(run, test, scope)) for test in first.ifs]
        if any(not isinstance(condition, bool) for condition in conditions):
            evaluate(run, node.elt, scope)  # What it says of the element is the better reason.
            raise Refused("A comprehension over constants with a condition on the data.", "FO108")
        if all(conditions):
            part = _generators(run, node, rest, scope) if rest else evaluate(run, node.elt, scope)
            if rest and not isinstance(part, Items):
                raise Refused("A comprehension over arrays inside one over constants.")
            values.extend(part.values if rest else [part])
    return Items(tuple(values), True)


def paired(run: Any, targets: list[ast.expr], value: Any) -> list[tuple[ast.expr, Any]]:
    """What each of several variables is assigned; one with a star gets the rest."""
    stars = [at for at, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if not stars:
        return list(zip(targets, unpacked(run, value, len(targets)), strict=True))
    if not isinstance(value, Items) or len(value.values) < len(targets) - 1:
        raise Refused("Something of unknown length is assigned to several variables.")
    (at,) = stars
    behind = len(targets) - at - 1
    middle = Items(value.values[at : len(value.values) - behind], True)
    rest = value.values[len(value.values) - behind :] if behind else ()
    star = targets[at]
    assert isinstance(star, ast.Starred)
    named = [*targets[:at], star.value, *targets[at + 1 :]]
    return list(zip(named, [*value.values[:at], middle, *rest], strict=True))


def unpacked(run: Any, value: Any, count: int) -> list[Any]:
    """The parts of a value that is assigned to several variables."""
    if isinstance(value, Items) and len(value.values) == count:
        return list(value.values)
    if isinstance(value, Static) and isinstance(value.value, (tuple, list)) and len(value.value) == count:
        graph = run.lift.graph
        if value.node.kind in ("tuple", "list"):
            return [Static(item, node) for item, node in zip(value.value, value.node.parts[0], strict=True)]
        return [Static(item, graph.index(value.node, (graph.const(k),))) for k, item in enumerate(value.value)]
    if isinstance(value, Tensor) and value.rank:
        from .indexing import index

        return [index(run.lift, value, [number(run.lift, k)]) for k in range(count)]
    if isinstance(value, Items):
        from .values import WrongRank

        raise WrongRank(f"{len(value.values)} values are assigned to {count} variables.")
    raise Refused(f"Something of unknown length is assigned to {count} variables.")


def few_steps(run: Any, over: Any, most: int) -> list[Any] | None:
    """The steps of a loop over a few constants, to be written out; else None."""
    graph = run.lift.graph
    if isinstance(over, Range) and all(
        isinstance(part, Static) or part is None for part in (over.start, over.stop, over.step)
    ):
        numbers = range(over.start.value, over.stop.value, over.step.value if over.step else 1)
        return [number(run.lift, k) for k in numbers] if len(numbers) <= most else None
    if isinstance(over, Static) and isinstance(over.value, (list, tuple, np.ndarray)) and len(over.value) <= most:
        return [Static(item, graph.index(over.node, (graph.const(k),))) for k, item in enumerate(over.value)]
    if isinstance(over, Static) and isinstance(over.value, Mapping) and len(over.value) <= most:
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


def counted(run: Any, node: ast.While, scope: Scope) -> tuple[str, Any, list[ast.stmt]]:
    """The counter, the bound and the body of `while i < n: ...; i += 1`."""
    refused = Refused(
        "A while loop that does not count: how many steps it takes depends on the data.", "FO101", node.lineno
    )
    test = node.test
    if node.orelse or not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        raise refused
    name = test.left.id
    steps = [at for at, part in enumerate(node.body) if _is_increment(part, name)]
    changed = sum(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store)
        for statement in node.body
        for part in ast.walk(statement)
    )
    if len(steps) != 1 or changed != 1 or steps[0] != len(node.body) - 1:
        raise refused
    if any(isinstance(part, ast.Continue) for statement in node.body for part in ast.walk(statement)):
        raise refused
    stop = evaluate(run, test.comparators[0], scope)
    if isinstance(test.ops[0], ast.LtE):
        stop = apply_operator(run, "+", stop, number(run.lift, 1))
    elif not isinstance(test.ops[0], (ast.Lt, ast.NotEq)):
        raise refused
    if not isinstance(scope.variables.get(name), (Static, Host)):
        if isinstance(scope.variables.get(name), Tensor):
            return name, stop, node.body[:-1]
        raise refused
    return name, stop, node.body[:-1]


def _is_increment(node: ast.stmt, name: str) -> bool:
    return ast.unparse(node) in (f"{name} += 1", f"{name} = {name} + 1", f"{name} = 1 + {name}")


def bring_in(run: Any, node: Any, scope: Scope) -> None:
    """An import inside the function."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            module = importlib.import_module(alias.name if alias.asname else alias.name.partition(".")[0])
            if not alias.asname:
                importlib.import_module(alias.name)
            scope.variables[name] = Static(module, run.lift.graph.name(_given(run, name, module)))
        else:
            if node.level or node.module is None:
                raise Refused("A relative import inside the function.")
            module = importlib.import_module(node.module)
            value = getattr(module, alias.name)
            path = f"{node.module}.{alias.name}"
            name = alias.asname or alias.name
            if isinstance(value, types.ModuleType):
                path = value.__name__
            scope.variables[name] = Static(value, run.lift.graph.name(_given(run, name, value)), path)


def _given(run: Any, name: str, value: Any) -> str:
    run.injected.setdefault(name, value)
    return name
