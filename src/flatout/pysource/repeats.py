"""Expressions that a function computes more than once with the same inputs."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from .source_file import SourceFile
from .spellings import HEAVY, plain
from .trees import FunctionNode, dotted, index_parts, is_none, leaves, names_in, walk

# A sum of squares costs nothing to repeat; distances of all pairs do.
_WORTH_NAMING = 4
_OF_PAIRS = frozenset(["matmul", "einsum", "cdist", "tensordot"])
_IMPURE = frozenset({
    "random", "normal", "uniform", "dropout", "next", "print", "append", "assign", "assign_add", "update",
    "update_state", "pop", "SeedGenerator",
})  # fmt: skip
_Arms = dict[int, int]


def repeated_work(function: FunctionNode, file: SourceFile) -> Iterator[tuple[ast.Call, str, int]]:
    """The second occurrence of each repeated expression, its text, and how often it is computed."""
    inside = (node for node in walk(function) if node is not function)
    helpers = {node.name: node for node in (*file.tree.body, *inside) if isinstance(node, ast.FunctionDef)}
    unstable = _reassigned(function)
    seen: dict[str, list[tuple[ast.Call, _Arms]]] = {}
    for node, arms in _calls(function.body, {}):
        if not names_in(node) & unstable and _cost([node], helpers, 0) >= _WORTH_NAMING:
            uses = seen.setdefault("".join(file.code(node).split()), [])
            if all(other.get(branch, side) == side for _, other in uses for branch, side in arms.items()):
                uses.append((node, arms))
    covered: set[int] = set()
    repeated = [[node for node, _ in uses] for uses in seen.values() if len(uses) > 1]
    for nodes in sorted(repeated, key=lambda nodes: -len(file.code(nodes[0]))):
        if id(nodes[1]) not in covered:
            covered |= {id(inner) for inner in walk(nodes)}
            yield nodes[1], file.code(nodes[0]), len(nodes)


def _calls(part: ast.AST | Sequence[ast.AST], arms: _Arms) -> Iterator[tuple[ast.Call, _Arms]]:
    """Calls outside nested functions, each with the side of every branch that it is on."""
    if not isinstance(part, ast.AST):
        for statement in part:
            yield from _calls(statement, arms)
            leaves_it = (ast.Return, ast.Raise, ast.Continue, ast.Break)
            if isinstance(statement, ast.If) and isinstance(statement.body[-1], leaves_it):
                # What follows is the other side of the branch.
                arms = {**arms, id(statement): 1}
        return
    if isinstance(part, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
        return
    if isinstance(part, ast.Call):
        yield part, arms
    for name, value in ast.iter_fields(part):
        side = {"body": 0, "orelse": 1}.get(name) if isinstance(part, (ast.If, ast.IfExp)) else None
        inner = arms if side is None else {**arms, id(part): side}
        if isinstance(value, ast.AST):
            yield from _calls(value, inner)
        elif isinstance(value, list):
            yield from _calls([one for one in value if isinstance(one, ast.AST)], inner)


def _reassigned(function: ast.AST) -> set[str]:
    """Names that may differ between two places of the function: assigned twice, or by a loop."""
    counts: Counter[str] = Counter()
    for node in walk(function):
        if isinstance(node, ast.Assign):
            counts.update(name for target in node.targets for name in _changed(target))
        elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension, ast.NamedExpr)):
            counts.update(list(_changed(node.target)) * 2)
        elif isinstance(node, ast.arg):
            counts[node.arg] += 1
    return {name for name, count in counts.items() if count > 1}


def _changed(target: ast.expr) -> Iterator[str]:
    for leaf in leaves(target):
        while isinstance(leaf, ast.Subscript):
            leaf = leaf.value
        if isinstance(leaf, ast.Name):
            yield leaf.id


def _cost(nodes: Sequence[ast.AST], helpers: dict[str, ast.FunctionDef], depth: int) -> int:
    """Roughly the number of array operations; far below zero for what must not be merged."""
    total = 0
    for one in walk(nodes):
        if isinstance(one, ast.Call):
            name = dotted(one.func)
            short = plain(name.rpartition(".")[2])
            if short in _IMPURE or name.startswith(("self.", "random.")) or "random" in name:
                return -100
            if name in helpers and depth < 3:
                total += _cost(helpers[name].body, helpers, depth + 1)
            elif "." in name:
                total += 1 + (short in HEAVY) + 3 * (short in _OF_PAIRS)
        elif isinstance(one, ast.Subscript):
            # `y[:, None]` is how pairs are made.
            total += sum(map(is_none, index_parts(one)))
    return total
