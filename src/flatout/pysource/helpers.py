"""Calls of the user's own functions replaced by what they return: `step(total, x)` becomes `total + x`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import libcst as cst

from flatout.check.reading.abstract_values import Function

from .source_file import walk

Resolve = Callable[[cst.BaseExpression], Function | None]
# A branch is written out twice with what follows it.
_MOST_BRANCHES = 4
_DEEPEST = 4


def inlined(node: Any, resolve: Resolve) -> Any:
    """A part of the source with the calls of helpers replaced; those that do more than compute a value stay."""
    return node.visit(_Calls(resolve, 0))


def calls_helpers(body: cst.CSTNode, resolve: Resolve) -> bool:
    """Whether anything in a part of the source calls a function of the user."""
    return any(isinstance(node, cst.Call) and resolve(node.func) is not None for node in walk(body))


class _Calls(cst.CSTTransformer):
    def __init__(self, resolve: Resolve, depth: int):
        super().__init__()
        self._resolve = resolve
        self._depth = depth
        # What the helpers of a statement do before they return.
        self._effects: list[cst.SimpleStatementLine] = []

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        function = self._resolve(original_node.func) if self._depth < _DEEPEST else None
        if function is None or any(argument.star for argument in original_node.args):
            return updated_node
        given = _parameters(function, updated_node)
        if isinstance(function.node, cst.Lambda):
            result: cst.BaseExpression | None = _substituted(function.node.body, given)
        else:
            result = _returned(function.node.body.body, given, 0) or self._changing(function.node.body.body, given)
        if result is None:
            return updated_node
        made: cst.BaseExpression = result.visit(_Calls(self._resolve, self._depth + 1))  # type: ignore[assignment]
        return _parenthesized(made)

    def _changing(
        self, statements: Sequence[cst.CSTNode], given: Mapping[str, cst.BaseExpression]
    ) -> cst.BaseExpression | None:
        """What a helper returns that changes variables around it: its lines are to stand before the call."""
        lines = [line for line in statements if isinstance(line, cst.SimpleStatementLine)]
        if len(lines) < len(statements):
            return None
        result: cst.BaseExpression = cst.Name("None")
        for line in lines:
            last = line.body[-1]
            if isinstance(last, cst.Return):
                result = result if last.value is None else _substituted(last.value, given)
                break
            self._effects.append(line.visit(_Names(given)))  # type: ignore[arg-type]
        return result

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        """`push(x)`, where `push` changes variables around it, is what `push` does."""
        effects, self._effects = self._effects, []
        return cst.FlattenSentinel([*effects, updated_node]) if effects else updated_node


def _parameters(function: Function, call: cst.Call) -> dict[str, cst.BaseExpression]:
    parameters = [one.name.value for one in (*function.node.params.posonly_params, *function.node.params.params)]
    places = [argument.value for argument in call.args if argument.keyword is None]
    if function.owner is not None:
        places.insert(0, call.func.value if isinstance(call.func, cst.Attribute) else cst.Name(parameters[0]))
    named = {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}
    return {**dict(zip(parameters, places, strict=False)), **named}


def _returned(
    statements: Sequence[cst.CSTNode], known: Mapping[str, cst.BaseExpression], branches: int
) -> cst.BaseExpression | None:
    """What statements return, in terms of `known`; None: they do more than compute it."""
    names = dict(known)
    for at, statement in enumerate(statements):
        if isinstance(statement, cst.SimpleStatementLine):
            if any(isinstance(small, cst.Return) for small in statement.body):
                small = statement.body[0]
                value = small.value if isinstance(small, cst.Return) else None
                return None if value is None else _substituted(value, names)
            if not all(_compute(small, names) for small in statement.body):
                return None
        elif isinstance(statement, cst.If):
            if branches == _MOST_BRANCHES:
                return None
            rest = statements[at + 1 :]
            other = statement.orelse
            otherwise: Sequence[cst.CSTNode] = (
                () if other is None else (other,) if isinstance(other, cst.If) else other.body.body
            )
            sides = [_returned([*side, *rest], names, branches + 1) for side in (statement.body.body, otherwise)]
            if sides[0] is None or sides[1] is None:
                return None
            return cst.IfExp(*(_parenthesized(one) for one in (_substituted(statement.test, names), *sides)))  # type: ignore[arg-type]
        elif isinstance(statement, cst.For):
            # One step stands for all: what a step adds, they add.
            from .carried import carried_names

            lines = [line for line in statement.body.body if isinstance(line, cst.SimpleStatementLine)]
            if len(lines) < len(statement.body.body) or carried_names(statement):
                return None
            if not all(_compute(small, names) for line in lines for small in line.body):
                return None
        else:
            return None
    return None


def _compute(small: cst.BaseSmallStatement, names: dict[str, cst.BaseExpression]) -> bool:
    """Take an assignment into `names`; False: the statement is something else."""
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target, value = small.targets[0].target, _substituted(small.value, names)
        if isinstance(target, cst.Name):
            names[target.value] = value
            return True
        if (
            isinstance(target, cst.Tuple)
            and isinstance(value, cst.Tuple)
            and len(target.elements) == len(value.elements)
        ):
            for one, part in zip(target.elements, value.elements, strict=True):
                if not isinstance(one.value, cst.Name):
                    return False
                names[one.value.value] = part.value
            return True
        # Parts of what is not known here: each holds all that it is made of.
        parts = list(walk(target))
        if isinstance(target, cst.Tuple) and all(isinstance(one.value, cst.Name) for one in target.elements):
            names.update({one.value: value for one in parts if isinstance(one, cst.Name)})
            return True
        return False
    if isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Name):
        operator = getattr(cst, type(small.operator).__name__.removesuffix("Assign"), cst.Power)()
        names[small.target.value] = cst.BinaryOperation(
            _parenthesized(names.get(small.target.value, small.target)),
            operator,
            _parenthesized(_substituted(small.value, names)),
        )
        return True
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        function, arguments = small.value.func, small.value.args
        if isinstance(function, cst.Attribute) and function.attr.value == "append" and len(arguments) == 1:
            if not isinstance(function.value, cst.Name):
                return False
            added = cst.List([cst.Element(_substituted(arguments[0].value, names))])
            before = names.get(function.value.value, function.value)
            names[function.value.value] = cst.BinaryOperation(_parenthesized(before), cst.Add(), added)
            return True
    return isinstance(small, (cst.Pass, cst.Assert)) or (
        isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
    )


def _substituted(node: cst.BaseExpression, names: Mapping[str, cst.BaseExpression]) -> cst.BaseExpression:
    made: cst.BaseExpression = node.visit(_Names(names))  # type: ignore[assignment]
    return made


class _Names(cst.CSTTransformer):
    def __init__(self, names: Mapping[str, cst.BaseExpression]):
        super().__init__()
        self._names = names

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return False

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.with_changes(value=_substituted(updated_node.value, self._names))

    def visit_Arg(self, node: cst.Arg) -> bool:
        return False

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(value=_substituted(updated_node.value, self._names))

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        found = self._names.get(original_node.value)
        return updated_node if found is None else _parenthesized(found)


def _parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """In parentheses, so that it may stand anywhere."""
    if node.lpar or isinstance(node, cst.Name):
        return node
    made: cst.BaseExpression = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return made
