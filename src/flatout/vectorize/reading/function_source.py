"""The syntax tree of a user's function: of a lambda, of one with decorators, with its defaults as they are."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from typing import Any

from flatout.vectorize.arrays.lifted_values import Refused

from .simpler_statements import simplified

# Decorators that return the function that they are given.
_HARMLESS = ("register_keras_serializable", "keras_export", "vectorize", "staticmethod", "loss", "property")


def tree_of(function: Any) -> ast.FunctionDef | ast.Lambda:
    """The syntax tree of a function.

    Raises:
        Refused: There is no source, or a decorator changes what the function does.
    """
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise Refused(
            f"The source of {getattr(function, '__name__', function)!r} is not to be had.", "FO101"
        ) from error
    first = function.__code__.co_firstlineno
    if getattr(function, "__name__", "") == "<lambda>":
        return _lambda_in(source, function)
    tree = ast.parse(source)
    found = next(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function.__name__), None
    )
    if found is None:
        raise Refused(f"The source of {function.__name__!r} holds no function of that name.", "FO101")
    check_decorators(found)
    ast.increment_lineno(found, first - 1)
    _give_defaults(found, function)
    return simplified(found)


def _give_defaults(tree: ast.FunctionDef, function: Any) -> None:
    """Write the defaults that a function has, where they are constants, in place of the expressions that made them."""
    tree.args, tree.as_written = copy.deepcopy(tree.args), tree.args  # type: ignore[attr-defined]
    values = function.__defaults__ or ()
    written = [None] * (len(values) - len(tree.args.defaults)) + list(tree.args.defaults)
    made = [_constant_of(value, old) for value, old in zip(values, written, strict=False)]
    if len(written) == len(values) and all(one is not None for one in made):
        tree.args.defaults = made  # type: ignore[assignment]
    named = function.__kwdefaults__ or {}
    for at, arg in enumerate(tree.args.kwonlyargs):
        if arg.arg in named:
            tree.args.kw_defaults[at] = _constant_of(named[arg.arg], tree.args.kw_defaults[at])


def _constant_of(value: Any, otherwise: ast.expr | None) -> ast.expr | None:
    try:
        return ast.parse(repr(value), mode="eval").body if ast.literal_eval(repr(value)) == value else otherwise
    except (SyntaxError, ValueError):
        return otherwise


def check_decorators(tree: ast.FunctionDef) -> None:
    for decorator in tree.decorator_list:
        name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if "custom_gradient" in name or "custom_vjp" in name or "custom_jvp" in name:
            raise Refused(
                f"{tree.name!r} has a gradient that the user defined (@{name}): it cannot be derived from the body.",
                "FO101",
                tree.lineno,
            )
        if name.rpartition(".")[2] not in _HARMLESS:
            raise Refused(f"{tree.name!r} is changed by its decorator @{name}.", "FO101", tree.lineno)


def _lambda_in(source: str, function: Any) -> ast.Lambda:
    """The one lambda of a line of source that has the function's parameters and names."""
    wanted = list(inspect.signature(function).parameters)
    matching: dict[str, ast.Lambda] = {}
    for start in (found.start() for found in re.finditer(r"\blambda\b", source)):
        for end in range(len(source), start, -1):
            try:
                tree = ast.parse(f"({source[start:end]})", mode="eval").body
            except (SyntaxError, ValueError):
                continue
            fits = isinstance(tree, ast.Lambda) and [arg.arg for arg in tree.args.args] == wanted
            if isinstance(tree, ast.Lambda) and fits and _code_names(tree) >= set(function.__code__.co_names):
                matching.setdefault(ast.unparse(tree), tree)
            if isinstance(tree, ast.Lambda):
                break
    if len(matching) == 1:
        return next(iter(matching.values()))
    raise Refused("The source of a lambda is not to be told from its surroundings.", "FO101")


def _code_names(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
