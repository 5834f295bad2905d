"""Whether a loop carries a state from one iteration to the next that is more than a sum, a product or a maximum."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .carried_entries import entries_as_names
from .helpers import Resolve, calls_helpers, inlined
from .trees import (
    ComprehensionNode,
    FunctionNode,
    LoopNode,
    Trees,
    assigned_targets,
    dotted,
    given_values,
    is_none,
    last_name,
    method_name,
    names_in,
    number_of,
    root_of,
    target_names,
    walk,
)

# `total = f(total, term)`: the order does not matter, so it is a reduction.
_REDUCING_CALLS = frozenset({
    "maximum", "minimum", "add", "multiply", "logaddexp", "max", "min", "logical_and", "logical_or", "concatenate",
    "concat", "cat", "append", "fmax", "fmin",
})  # fmt: skip
_FILLING = frozenset({"write", "set", "add", "append", "scatter", "index_put", "index_add", "slice_scatter"})
_REDUCING_OPERATORS = (ast.Add, ast.Mult, ast.Sub, ast.BitAnd, ast.BitOr)
_LOGGING = ("print", "logging", "logger", "log")
# A counter beside what is carried may be read.
_COUNTED = frozenset("ijkt")
# A name, the statement that assigns it, and its new value.
_Assignment = tuple[str, ast.AST, ast.expr]


def carried_names(loop: LoopNode | ComprehensionNode, resolve: Resolve | None = None) -> tuple[str, ...]:
    """The names whose value in one iteration depends on the iteration before, other than as a reduction.

    Args:
        loop: The loop or comprehension.
        resolve: Gives the user's function of a call, to read what it returns.
    """
    plain = loop if isinstance(loop, (ast.For, ast.While)) else _as_loop(loop, loop.generators)
    if resolve is not None and calls_helpers(plain.body, resolve):
        plain = inlined(plain, resolve, carried_names)
    plain, spelled = entries_as_names(plain)
    return tuple(spelled.get(name, name) for name in _carried(plain))


def _as_loop(node: ComprehensionNode, clauses: list[ast.comprehension]) -> ast.For:
    """A comprehension as the loop that it stands for."""
    first, *rest = clauses
    lines: list[ast.stmt] = [ast.Expr(test) for test in first.ifs]
    if rest:
        lines.append(_as_loop(node, rest))
    else:
        parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        lines += [ast.Expr(one) for one in parts]
    return ast.For(first.target, first.iter, lines, [])


def _carried(loop: LoopNode) -> tuple[str, ...]:
    found: list[str] = []
    counters = names_in(loop.target if isinstance(loop, ast.For) else loop.test)
    assigned = list(_assignments(loop.body))
    local = _set_before_read(loop.body)
    changing = {one for one, _, _ in assigned} | counters
    for name in dict.fromkeys(name for name, _, _ in assigned):
        if name in counters or name in local:
            continue
        uses = [(node, value) for target, node, value in assigned if target == name]
        if all(_is_steady(name, value, changing) for _, value in uses):
            continue
        kinds = {_is_product(value) for _, value in uses if isinstance(value, ast.BinOp)}
        depends = [_depends(name, value, assigned) for _, value in uses]
        if (
            # `s *= 0.9` and `s += x` are a recurrence together.
            (len(kinds) > 1 and all(name in names_in(value) for _, value in uses))
            or any(one and not _reduces(name, value) for one, (_, value) in zip(depends, uses, strict=True))
            or (any(depends) and _is_read_elsewhere(name, loop.body, {id(node) for node, _ in uses}))
        ):
            found.append(name)
    return tuple(dict.fromkeys([*found, *_containers(loop.body)]))


def folded_name(function: FunctionNode) -> str:
    """The parameter of a fold's function that holds a state; "" where the function only adds up."""
    names = [parameter.arg for parameter in function.args.args]
    return names[0] if names and not only_reduces(function, "fold") else ""


def only_reduces(function: FunctionNode, how: str) -> bool:
    """Whether the function of a scan, fold or counted loop only adds to what it carries (or multiplies, or compares).

    Args:
        function: The function of the loop.
        how: `"scan"`, `"fold"`, `"fori_loop"` or `"while_loop"`.
    """
    names = [parameter.arg for parameter in function.args.args]
    if isinstance(function, ast.Lambda):
        results, inside = [function.body], []
    else:
        results = [node.value for node in walk(function.body) if isinstance(node, ast.Return) and node.value]
        inside = list(_assignments(function.body))
    if len(results) != 1 or not names:
        return False
    parts = results[0].elts if isinstance(results[0], (ast.Tuple, ast.List)) else [results[0]]
    if how == "while_loop":
        pairs = list(zip(names, parts, strict=False)) if len(names) == len(parts) else []
    else:
        carried = names[1] if how == "fori_loop" and len(names) > 1 else names[0]
        pairs = [(carried, parts[0])] if how == "scan" or len(parts) == 1 else []
    others = {name for name, _ in pairs}
    return bool(pairs) and all(_adds(name, part, inside, others - {name}) for name, part in pairs)


def _adds(name: str, value: ast.expr, assigned: list[_Assignment], others: set[str]) -> bool:
    if isinstance(value, ast.Name):
        made = [one for target, _, one in assigned if target == value.id]
        value = made[0] if len(made) == 1 else value
    return _reduces(name, value) and not (isinstance(value, ast.Name) or (names_in(value) & others) - {name} - _COUNTED)


def _is_steady(name: str, value: ast.expr, changing: set[str]) -> bool:
    """`name + 1`, `name * gamma`: known by the number of the step."""
    if not isinstance(value, ast.BinOp) or dotted(value.left) != name:
        return False
    is_power = isinstance(value.op, (ast.Add, ast.Sub, ast.Mult, ast.Div))
    is_same = isinstance(value.right, ast.Name) and value.right.id not in changing
    return is_power and (is_same or number_of(value.right) is not None)


def _assignments(body: Trees) -> Iterator[_Assignment]:
    """Name, statement and value of every assignment in a body."""
    for node in walk(body):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _parts(target, node, node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node, ast.BinOp(node.target, node.op, node.value)
        elif isinstance(node, ast.NamedExpr):
            yield node.target.id, node, node.value


def _parts(target: ast.expr, node: ast.AST, value: ast.expr) -> Iterator[_Assignment]:
    if isinstance(target, ast.Starred):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id, node, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        for at, item in enumerate(target.elts):
            yield from _parts(item, node, values[at] if len(values) == len(target.elts) else value)


def _depends(name: str, value: ast.expr, assigned: list[_Assignment]) -> bool:
    """Whether a value needs `name`, directly or through other names of the body."""
    seen: set[str] = set()
    queue = names_in(value)
    while queue - seen:
        seen |= queue
        queue = {one for target, _, inner in assigned if target in queue for one in names_in(inner)}
    return name in seen


def _reduces(name: str, value: ast.expr) -> bool:
    """`name + a - b`, `maximum(name, a)`, `name` itself, or one of them by condition."""
    if isinstance(value, ast.Name):
        return value.id == name
    if name not in names_in(value):
        return False
    if isinstance(value, ast.BinOp) and isinstance(value.op, _REDUCING_OPERATORS):
        left, right = name in names_in(value.left), name in names_in(value.right)
        inner = value.left if left else value.right
        if isinstance(inner, ast.BinOp) and _is_product(inner) != _is_product(value):
            return False  # `0.9 * name + a` is a recurrence.
        if left and not right:
            return _reduces(name, value.left)
        return right and not left and not isinstance(value.op, ast.Sub) and _reduces(name, value.right)
    if isinstance(value, ast.Call):
        return _call_reduces(name, value)
    if isinstance(value, ast.IfExp):
        if _asks_for_none(name, value.test):  # The first step has nothing to join.
            return any(_reduces(name, side) for side in (value.body, value.orelse))
        return name not in names_in(value.test) and all(
            _reduces(name, side) or name not in names_in(side) for side in (value.body, value.orelse)
        )
    return False


def _call_reduces(name: str, call: ast.Call) -> bool:
    if _fills(name, call):
        return True
    short = last_name(call.func)
    given = given_values(call)
    holders = [argument for argument in given if name in names_in(argument)]
    if short == "where" and given and name not in names_in(given[0]):
        return all(_reduces(name, holder) for holder in holders)
    if short not in _REDUCING_CALLS or len(holders) != 1:
        return False
    inner = holders[0]
    if isinstance(inner, (ast.List, ast.Tuple)):
        return all(_reduces(name, item) or name not in names_in(item) for item in inner.elts)
    return _reduces(name, inner)


def _is_product(value: ast.BinOp) -> bool:
    return isinstance(value.op, (ast.Mult, ast.Div))


def _asks_for_none(name: str, test: ast.expr) -> bool:
    """`name is None` and `name is not None`."""
    return (
        isinstance(test, ast.Compare)
        and dotted(test.left) == name
        and len(test.ops) == 1
        and isinstance(test.ops[0], (ast.Is, ast.IsNot))
        and is_none(test.comparators[0])
    )


def _fills(name: str, call: ast.Call) -> bool:
    """`array = array.write(i, value)`, `array = array.at[i].set(value)`: a place of its own for each iteration."""
    if method_name(call) not in _FILLING:
        return False
    # `array.write(array.size(), value)` is another way to append.
    others = [one for one in given_values(call) if dotted(getattr(one, "func", None)) != f"{name}.size"]
    return dotted(root_of(call.func)) == name and name not in names_in(others)


def _is_read_elsewhere(name: str, body: list[ast.stmt], own: set[int]) -> bool:
    """Whether a running value is used in the loop beside its own update: then every step's value matters."""

    def reads(node: ast.AST) -> bool:
        if id(node) in own:
            return False
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            return name in names_in(node.value)
        if isinstance(node, ast.Expr):
            called = node.value.func if isinstance(node.value, ast.Call) else None
            return dotted(called).split(".")[0] not in _LOGGING and name in names_in(node.value)
        return any(reads(child) for child in ast.iter_child_nodes(node))

    return any(map(reads, body))


def _set_before_read(body: list[ast.stmt]) -> set[str]:
    """The names that every iteration sets afresh before anything reads them."""
    local: set[str] = set()
    seen: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign):
            seen |= names_in(node.value)
            local |= {name for target in node.targets for name in target_names(target) if name not in seen}
        elif isinstance(node, (ast.For, ast.With)):
            inner = _set_before_read(node.body) - seen
            local |= inner
            seen |= names_in(node) - inner
        else:
            seen |= names_in(node)
    return local


def _containers(body: list[ast.stmt]) -> Iterator[str]:
    """Tables that the loop fills and reads back at another place: dynamic programming."""
    made_inside = _set_before_read(body)
    targets = list(assigned_targets(body))
    written: dict[str, set[str]] = {}
    for target in targets:
        if isinstance(target, ast.Subscript):
            base, text = _root_and_index(target)
            written.setdefault(base, set()).add(text)
    appended = {
        dotted(node.func.value)  # type: ignore[attr-defined]
        for node in walk(body)
        if method_name(node) == "append"
    }
    places = set(map(id, targets))
    for node in walk(body):
        if not isinstance(node, ast.Subscript) or id(node) in places:
            continue
        base, text = _root_and_index(node)
        others = written.get(base, set())
        again = bool(others) and text not in others and not any(one.startswith(text) for one in others)
        if base and base not in made_inside and (base in appended or again):
            yield base


def _root_and_index(node: ast.Subscript) -> tuple[str, str]:
    texts: list[str] = []
    current: ast.expr = node
    while isinstance(current, ast.Subscript):
        texts.insert(0, f"[{ast.unparse(current.slice)}]")
        current = current.value
    return dotted(current), "".join(texts)
