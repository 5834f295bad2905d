"""Whether a loop carries a state from one iteration to the next that is more than a sum, a product or a maximum."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from .carried_entries import entries_as_names
from .helpers import Resolve, calls_helpers, inlined
from .source_file import children_of, dotted, walk

# `total = f(total, term)`: the order does not matter, so it is a reduction.
_REDUCING_CALLS = frozenset(
    [
        "maximum",
        "minimum",
        "add",
        "multiply",
        "logaddexp",
        "max",
        "min",
        "logical_and",
        "logical_or",
        "concatenate",
        "concat",
        "cat",
        "append",
        "fmax",
        "fmin",
    ]
)
_FILLING = frozenset({"write", "set", "add", "append", "scatter", "index_put", "index_add", "slice_scatter"})
_REDUCING_OPERATORS = (cst.Add, cst.Multiply, cst.Subtract, cst.BitAnd, cst.BitOr)


def carried_names(loop: cst.For | cst.While | cst.BaseComp, resolve: Resolve | None = None) -> tuple[str, ...]:
    """The names whose value in one iteration depends on the iteration before, other than as a reduction.

    Args:
        loop: The loop or comprehension.
        resolve: Gives the user's function of a call, to read what it returns.
    """
    plain = loop if isinstance(loop, (cst.For, cst.While)) else _as_loop(loop, loop.for_in)
    if resolve is not None and calls_helpers(plain.body, resolve):
        plain = inlined(plain, resolve)
    plain, spelled = entries_as_names(plain)
    return tuple(spelled.get(name, name) for name in _carried(plain))


def _as_loop(node: cst.BaseComp, clause: cst.CompFor) -> cst.For:
    """A comprehension as the loop that it stands for."""
    lines: list[cst.BaseStatement] = [cst.SimpleStatementLine([cst.Expr(one.test)]) for one in clause.ifs]
    if clause.inner_for_in is not None:
        lines.append(_as_loop(node, clause.inner_for_in))
    else:
        parts = (node.key, node.value) if isinstance(node, cst.DictComp) else (node.elt,)  # type: ignore[attr-defined]
        lines += [cst.SimpleStatementLine([cst.Expr(one)]) for one in parts]
    return cst.For(clause.target, clause.iter, cst.IndentedBlock(lines))


def _carried(loop: cst.For | cst.While) -> tuple[str, ...]:
    found: list[str] = []
    counters = set(_counters(loop))
    assigned = list(_assignments(loop.body))
    local = _set_before_read(loop.body)
    for name in dict.fromkeys(name for name, _, _ in assigned):
        if name in counters or name in local:
            continue
        changing = {one for one, _, _ in assigned} | counters
        if all(_is_steady(name, value, changing) for target, _, value in assigned if target == name):
            continue
        uses = [(node, value) for target, node, value in assigned if target == name]
        kinds = {_is_product(value) for _, value in uses if isinstance(value, cst.BinaryOperation)}
        if len(kinds) > 1 and all(name in _names(value) for _, value in uses):
            found.append(name)  # `s *= 0.9` and `s += x` are a recurrence together.
            continue
        if any(_depends(name, value, assigned) and not _reduces(name, value) for _, value in uses) or (
            any(_depends(name, value, assigned) for _, value in uses) and _read_elsewhere(name, loop, uses)
        ):
            found.append(name)
    return tuple(dict.fromkeys([*found, *_containers(loop)]))


def folded_name(function: cst.FunctionDef | cst.Lambda) -> str:
    """The parameter of a fold's function that holds a state; "" where the function only adds up."""
    names = [parameter.name.value for parameter in function.params.params]
    return names[0] if names and not only_reduces(function, "fold") else ""


def only_reduces(function: cst.FunctionDef | cst.Lambda, how: str) -> bool:
    """Whether the function of a scan, fold or counted loop only adds to what it carries (or multiplies, or compares).

    Args:
        function: The function of the loop.
        how: `"scan"`, `"fold"`, `"fori_loop"` or `"while_loop"`.
    """
    names = [parameter.name.value for parameter in function.params.params]
    results = [function.body] if isinstance(function, cst.Lambda) else _results(function)
    inside = list(_assignments(function.body)) if isinstance(function, cst.FunctionDef) else []
    if len(results) != 1 or not names:
        return False
    parts = (
        [item.value for item in results[0].elements] if isinstance(results[0], (cst.Tuple, cst.List)) else [results[0]]
    )
    if how == "while_loop":
        pairs = list(zip(names, parts, strict=False)) if len(names) == len(parts) else []
    else:
        carried = names[1] if how == "fori_loop" and len(names) > 1 else names[0]
        pairs = [(carried, parts[0])] if how == "scan" or len(parts) == 1 else []
    others = {name for name, _ in pairs}
    return bool(pairs) and all(_adds(name, part, inside, others - {name}) for name, part in pairs)


def _results(function: cst.FunctionDef) -> list[cst.BaseExpression]:
    return [node.value for node in walk(function.body) if isinstance(node, cst.Return) and node.value is not None]


def _adds(
    name: str,
    value: cst.BaseExpression,
    assigned: list[tuple[str, cst.CSTNode, cst.BaseExpression]],
    others: set[str],
) -> bool:
    if isinstance(value, cst.Name):
        made = [one for target, _, one in assigned if target == value.value]
        value = made[0] if len(made) == 1 else value
    return _reduces(name, value) and not (isinstance(value, cst.Name) or (_names(value) & others) - {name} - _COUNTED)


# A counter beside what is carried may be read.
_COUNTED = frozenset("ijkt")


def _is_steady(name: str, value: cst.BaseExpression, changing: set[str]) -> bool:
    """`name + 1`, `name * gamma`: known by the number of the step."""
    if not isinstance(value, cst.BinaryOperation) or dotted(value.left) != name:
        return False
    is_power = isinstance(value.operator, (cst.Add, cst.Subtract, cst.Multiply, cst.Divide))
    is_same = isinstance(value.right, cst.Name) and value.right.value not in changing
    return is_power and (is_same or isinstance(value.right, (cst.Integer, cst.Float)))


def _counters(loop: cst.For | cst.While) -> Iterator[str]:
    if isinstance(loop, cst.For):
        for node in walk(loop.target):
            if isinstance(node, cst.Name):
                yield node.value
        return
    for node in walk(loop.test):
        if isinstance(node, cst.Name):
            yield node.value


def _assignments(body: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode, cst.BaseExpression]]:
    """Name, statement and value of every assignment in a body, those of nested functions aside."""
    for node in walk(body):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                yield from _targets(target.target, node, node.value)
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
            whole = cst.BinaryOperation(node.target, _operator(node.operator), node.value)
            yield node.target.value, node, whole
        elif isinstance(node, cst.NamedExpr) and isinstance(node.target, cst.Name):
            yield node.target.value, node, node.value


def _targets(
    target: cst.CSTNode, node: cst.CSTNode, value: cst.BaseExpression
) -> Iterator[tuple[str, cst.CSTNode, cst.BaseExpression]]:
    if isinstance(target, cst.Name):
        yield target.value, node, value
    elif isinstance(target, (cst.Tuple, cst.List)):
        values = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
        for at, item in enumerate(target.elements):
            inner = values[at].value if len(values) == len(target.elements) else value
            yield from _targets(item.value, node, inner)


def _operator(operator: cst.BaseAugOp) -> cst.BaseBinaryOp:
    name = type(operator).__name__.removesuffix("Assign")
    found = getattr(cst, name, cst.Power)
    result: cst.BaseBinaryOp = found()
    return result


def _names(node: cst.CSTNode) -> set[str]:
    """The names that an expression reads."""
    if isinstance(node, cst.Attribute):
        return _names(node.value)
    if isinstance(node, cst.Arg):
        return _names(node.value)
    if isinstance(node, cst.Name):
        return {node.value}
    return {name for child in children_of(node) for name in _names(child)}


def _depends(name: str, value: cst.BaseExpression, assigned: list[tuple[str, cst.CSTNode, cst.BaseExpression]]) -> bool:
    """Whether a value needs `name`, directly or through other names of the body."""
    seen: set[str] = set()
    queue = list(_names(value))
    while queue:
        one = queue.pop()
        if one == name:
            return True
        if one in seen:
            continue
        seen.add(one)
        for target, _, inner in assigned:
            if target == one:
                queue += _names(inner)
    return False


def _reduces(name: str, value: cst.BaseExpression) -> bool:
    """`name + a - b`, `maximum(name, a)`, `name` itself, or one of them by condition."""
    if isinstance(value, cst.Name):
        return value.value == name
    if name not in _names(value):
        return False
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, _REDUCING_OPERATORS):
        left, right = name in _names(value.left), name in _names(value.right)
        inner = value.left if left else value.right
        if isinstance(inner, cst.BinaryOperation) and _is_product(inner) != _is_product(value):
            return False  # `0.9 * name + a` is a recurrence.
        if left and not right:
            return _reduces(name, value.left)
        return right and not left and not isinstance(value.operator, cst.Subtract) and _reduces(name, value.right)
    if isinstance(value, cst.Call):
        if _fills(name, value):
            return True
        short = dotted(value.func).rsplit(".", 1)[-1]
        holders = [argument.value for argument in value.args if name in _names(argument.value)]
        if short == "where" and name not in _names(value.args[0].value):
            return all(_reduces(name, holder) for holder in holders)
        if short in _REDUCING_CALLS and len(holders) == 1:
            inner = holders[0]
            if isinstance(inner, (cst.List, cst.Tuple)):
                return all(_reduces(name, item.value) or name not in _names(item.value) for item in inner.elements)
            return _reduces(name, inner)
        return False
    if isinstance(value, cst.IfExp):
        if _asks_for_none(name, value.test):  # The first step has nothing to join.
            return any(_reduces(name, side) for side in (value.body, value.orelse))
        return name not in _names(value.test) and all(
            _reduces(name, side) or name not in _names(side) for side in (value.body, value.orelse)
        )
    return False


def _is_product(value: cst.BinaryOperation) -> bool:
    return isinstance(value.operator, (cst.Multiply, cst.Divide))


def _asks_for_none(name: str, test: cst.BaseExpression) -> bool:
    """`name is None` and `name is not None`."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or dotted(test.left) != name:
        return False
    target = test.comparisons[0]
    return isinstance(target.operator, (cst.Is, cst.IsNot)) and dotted(target.comparator) == "None"


def _fills(name: str, call: cst.Call) -> bool:
    """`array = array.write(i, value)`, `array = array.at[i].set(value)`: a place of its own for each iteration."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in _FILLING:
        return False
    root: cst.BaseExpression = call.func.value
    while isinstance(root, (cst.Attribute, cst.Subscript)):
        root = root.value
    # `array.write(array.size(), value)` is another way to append.
    is_size = [dotted(getattr(argument.value, "func", None)) == f"{name}.size" for argument in call.args]
    inside = {
        one for argument, own in zip(call.args, is_size, strict=True) if not own for one in _names(argument.value)
    }
    return isinstance(root, cst.Name) and root.value == name and name not in inside


def _read_elsewhere(name: str, loop: cst.For | cst.While, uses: list[tuple[cst.CSTNode, cst.BaseExpression]]) -> bool:
    """Whether a running value is used in the loop beside its own update: then every step's value matters."""
    own = {id(node) for node, _ in uses}

    def reads(node: cst.CSTNode) -> bool:
        if id(node) in own:
            return False
        if isinstance(node, (cst.Assign, cst.AugAssign)):
            return name in _names(node.value)
        if isinstance(node, cst.Expr):
            call = node.value
            noisy = isinstance(call, cst.Call) and dotted(call.func).split(".")[0] in (
                "print",
                "logging",
                "logger",
                "log",
            )
            return not noisy and name in _names(node.value)
        return any(reads(child) for child in children_of(node))

    return reads(loop.body)


def _set_before_read(body: cst.BaseSuite) -> set[str]:
    """The names that every iteration sets afresh before anything reads them."""
    local: set[str] = set()
    seen: set[str] = set()
    for statement in body.body:
        small = statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
        for node in small:
            if isinstance(node, cst.Assign):
                seen |= _names(node.value)
                for target in node.targets:
                    for name, _, _ in _targets(target.target, node, node.value):
                        if name not in seen:
                            local.add(name)
            elif isinstance(node, (cst.For, cst.With)):
                inner = _set_before_read(node.body) - seen
                local |= inner
                seen |= _all_names(node) - inner
            else:
                seen |= _all_names(node)
    return local


def _all_names(node: cst.CSTNode) -> set[str]:
    return {one.value for one in walk(node) if isinstance(one, cst.Name)}


def _containers(loop: cst.For | cst.While) -> Iterator[str]:
    """Tables that the loop fills and reads back at another place: dynamic programming."""
    written: dict[str, set[str]] = {}
    appended: set[str] = set()
    made_inside = _set_before_read(loop.body)
    for node in walk(loop.body):
        if isinstance(node, (cst.AssignTarget, cst.AugAssign)) and isinstance(node.target, cst.Subscript):
            base, text = _root_and_index(node.target)
            if base and base not in made_inside:
                written.setdefault(base, set()).add(text)
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "append":
            base = dotted(node.func.value)
            if base and base not in made_inside:
                appended.add(base)
    targets = {id(node.target) for node in walk(loop.body) if isinstance(node, (cst.AssignTarget, cst.AugAssign))}
    for node in walk(loop.body):
        if not isinstance(node, cst.Subscript) or id(node) in targets:
            continue
        base, text = _root_and_index(node)
        if base in appended or (
            base in written and text not in written[base] and not any(w.startswith(text) for w in written[base])
        ):
            yield base


def _root_and_index(node: cst.Subscript) -> tuple[str, str]:
    texts: list[str] = []
    current: cst.BaseExpression = node
    while isinstance(current, cst.Subscript):
        texts.insert(0, cst.Module([]).code_for_node(current.with_changes(value=cst.Name("_"))))
        current = current.value
    return dotted(current), "".join(texts)
