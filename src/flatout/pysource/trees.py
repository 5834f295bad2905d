"""Small questions about Python's syntax trees, asked by everything that reads users' code."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.Lambda
ComprehensionNode = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
Trees = ast.AST | Iterable[ast.AST]


def walk(trees: Trees) -> Iterator[ast.AST]:
    """A node, or several, and everything inside: outside in, in the order of the text."""
    queue = [trees] if isinstance(trees, ast.AST) else list(trees)[::-1]
    while queue:
        node = queue.pop()
        yield node
        queue += reversed(list(ast.iter_child_nodes(node)))


def dotted(node: ast.AST | None) -> str:
    """`a.b.c` of names and attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def last_name(node: ast.AST | None) -> str:
    """`c` of `a.b.c`."""
    return dotted(node).rpartition(".")[2]


def method_name(call: ast.AST) -> str:
    """`c` of a call of `anything.c`; empty for anything else."""
    return call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""


def names_in(trees: Trees) -> set[str]:
    """All names that stand in a piece of code, those of attributes and keywords aside."""
    return {node.id for node in walk(trees) if isinstance(node, ast.Name)}


def root_of(node: ast.AST) -> ast.AST:
    """`a` of `a.b[0].c`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def index_parts(node: ast.Subscript) -> list[ast.expr]:
    """`i` and `1:` of `y[i, 1:]`."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def leaves(target: ast.expr) -> Iterator[ast.expr]:
    """What a target assigns to, one by one."""
    if isinstance(target, ast.Starred):
        yield from leaves(target.value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from leaves(item)
    else:
        yield target


def text_of(node: ast.AST | None) -> str | None:
    """The value of a literal string."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def number_of(node: ast.AST | None) -> float | int | None:
    """The value of a literal number."""
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if is_number else None  # type: ignore[union-attr, return-value]


def is_none(node: ast.AST | None) -> bool:
    """Whether an expression is the literal `None`."""
    return isinstance(node, ast.Constant) and node.value is None


def first_line(node: ast.stmt | FunctionNode) -> int:
    """The first line of a statement, its decorators included."""
    return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])


def parameters(function: FunctionNode) -> list[ast.arg]:
    """The parameters that can be given by position."""
    return [*function.args.posonlyargs, *function.args.args]


def defaults(function: FunctionNode) -> dict[str, ast.expr]:
    """What the parameters are that are not given."""
    arguments = function.args
    places = parameters(function)[::-1]
    found = {one.arg: value for one, value in zip(places, arguments.defaults[::-1], strict=False)}
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {one.arg: value for one, value in named if value is not None}


def given_values(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, by position and by keyword."""
    given = [*call.args, *(one.value for one in call.keywords)]
    return [one.value if isinstance(one, ast.Starred) else one for one in given]
