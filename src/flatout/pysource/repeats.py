"""Expressions that a function computes more than once with the same inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from .operation_names import HEAVY, plain
from .source_file import SourceFile, children_of, dotted, walk

# A sum of squares costs nothing to repeat; distances of all pairs do.
_WORTH_NAMING = 4
_OF_PAIRS = frozenset(["matmul", "einsum", "cdist", "tensordot"])
_IMPURE = frozenset(
    [
        "random",
        "normal",
        "uniform",
        "dropout",
        "next",
        "print",
        "append",
        "assign",
        "assign_add",
        "update",
        "update_state",
        "pop",
        "SeedGenerator",
    ]
)


@dataclass
class _Seen:
    nodes: list[cst.BaseExpression] = field(default_factory=list)
    arms: list[dict[int, int]] = field(default_factory=list)


def repeated_work(function: cst.FunctionDef | cst.Lambda, file: SourceFile) -> Iterator[tuple[cst.CSTNode, str, int]]:
    """The second occurrence of each repeated expression, its text, and how often it is computed."""
    helpers = {node.name.value: node for node in _definitions(function, file)}
    unstable = _reassigned(function)
    seen: dict[str, _Seen] = {}
    for node, arms in _expressions(function.body, {}):
        if not _names(node) & unstable and _cost(node, helpers, 0) >= _WORTH_NAMING:
            entry = seen.setdefault("".join(file.code(node).split()), _Seen())
            if all(_compatible(arms, other) for other in entry.arms):
                entry.nodes.append(node)
                entry.arms.append(arms)
    covered: set[int] = set()
    for entry in sorted(seen.values(), key=lambda one: -len(file.code(one.nodes[0]))):
        if len(entry.nodes) < 2 or id(entry.nodes[1]) in covered:
            continue
        covered |= {id(inner) for node in entry.nodes for inner in walk(node)}
        yield entry.nodes[1], file.code(entry.nodes[0]), len(entry.nodes)


def _definitions(function: cst.CSTNode, file: SourceFile) -> Iterator[cst.FunctionDef]:
    for statement in file.tree.body:
        if isinstance(statement, cst.FunctionDef):
            yield statement
    for node in walk(function):
        if isinstance(node, cst.FunctionDef) and node is not function:
            yield node


def _expressions(node: cst.CSTNode, arms: dict[int, int]) -> Iterator[tuple[cst.BaseExpression, dict[int, int]]]:
    """Calls outside nested functions, each with the side of every branch that it is on."""
    if isinstance(node, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
        return
    if isinstance(node, cst.Call):
        yield node, arms
    if isinstance(node, (cst.IndentedBlock, cst.Module)):
        for statement in node.body:
            yield from _expressions(statement, arms)
            if isinstance(statement, cst.If) and _leaves(statement.body):
                # What follows is the other side of the branch.
                arms = {**arms, id(statement): 1}
        return
    if isinstance(node, (cst.If, cst.IfExp)):
        yield from _expressions(node.test, arms)
        yield from _expressions(node.body, {**arms, id(node): 0})
        if node.orelse is not None:
            yield from _expressions(node.orelse, {**arms, id(node): 1})
        return
    for child in children_of(node):
        yield from _expressions(child, arms)


def _leaves(body: cst.BaseSuite) -> bool:
    last = body.body[-1] if body.body else None
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, (cst.Return, cst.Raise, cst.Continue, cst.Break))


def _compatible(first: dict[int, int], second: dict[int, int]) -> bool:
    return all(second.get(branch, side) == side for branch, side in first.items())


def _reassigned(function: cst.CSTNode) -> set[str]:
    """Names that may differ between two places of the function: assigned twice, or by a loop."""
    counts: Counter[str] = Counter()
    for node in walk(function):
        if isinstance(node, cst.AssignTarget):
            counts.update(name for name in _targets(node.target))
        elif isinstance(node, (cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr)):
            counts.update(list(_targets(node.target)) * 2)
        elif isinstance(node, cst.Param):
            counts[node.name.value] += 1
    return {name for name, count in counts.items() if count > 1}


def _targets(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, (cst.Tuple, cst.List)):
        for item in node.elements:
            yield from _targets(item.value)
    elif isinstance(node, cst.Subscript):
        yield from _targets(node.value)


def _names(node: cst.CSTNode) -> set[str]:
    return {one.value for one in walk(node) if isinstance(one, cst.Name)}


def _cost(node: cst.CSTNode, helpers: dict[str, cst.FunctionDef], depth: int) -> int:
    """Roughly the number of array operations; far below zero for what must not be merged."""
    total = 0
    for one in walk(node):
        if isinstance(one, cst.Call):
            name = dotted(one.func)
            short = plain(name.rsplit(".", 1)[-1])
            if short in _IMPURE or name.startswith(("self.", "random.")) or "random" in name:
                return -100
            if name in helpers and depth < 3:
                total += _cost(helpers[name].body, helpers, depth + 1)
            elif "." in name:
                total += 1 + (short in HEAVY) + 3 * (short in _OF_PAIRS)
        elif isinstance(one, cst.SubscriptElement) and isinstance(one.slice, cst.Index):
            index = one.slice.value
            # `y[:, None]` is how pairs are made.
            total += isinstance(index, cst.Name) and index.value == "None"
    return total
