"""Names: what a variable of the user's function means, and how the rewritten source can say it."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import re
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flatout.vectorize.arrays.expression_graph import ExpressionGraph
from flatout.vectorize.arrays.lifted_values import Known, Local, Refused
from flatout.vectorize.statements.plainer import plainer
from flatout.vectorize.statements.tracking import searched


@dataclass(eq=False)
class Scope:
    """The variables of one function, with the scope around it.

    Attributes:
        variables: What was assigned.
        parent: The function around it, or None.
        outside: Global and closure variables, as objects.
        is_root: Whether the rewritten source is executed with `outside` as its globals.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    parent: Scope | None = None
    outside: Mapping[str, Any] = field(default_factory=dict)
    is_root: bool = True
    # The variables of scopes around it that it changes, and whose they are.
    nonlocals: dict[str, Scope] = field(default_factory=dict)

    def find(self, name: str, graph: ExpressionGraph, injected: dict[str, Any]) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            top, scope = scope, scope.parent
        if name in top.outside:
            value = top.outside[name]
        elif hasattr(builtins, name):
            value = getattr(builtins, name)
            return Known(value, graph.name(name), f"builtins.{name}")
        else:
            raise Refused(f"The name {name!r} is not known.", "FO303")
        is_read_now = isinstance(value, (types.FunctionType, type)) or not top.is_root
        if is_read_now and isinstance(top.outside, Outside) and not isinstance(value, types.ModuleType):
            graph.pins.append((top.outside.function, name, value))
        if top.is_root:
            return Known(value, graph.name(name))
        if value is None or isinstance(value, (bool, int, float, str)):
            return Known(value, graph.const(value))
        return Known(value, graph.name(_inject(name, value, injected)))


def _inject(name: str, value: Any, injected: dict[str, Any]) -> str:
    """A name in the rewritten source for an object of another module."""
    chosen, number = name, 2
    while chosen in injected and injected[chosen] is not value:
        chosen, number = f"{name}_{number}", number + 1
    injected[chosen] = value
    return chosen


class Outside(dict[str, Any]):
    """The globals of a function, and what it closes over, as they are now."""

    def __init__(self, function: types.FunctionType):
        super().__init__(function.__globals__)
        self.function = function


def is_still(function: types.FunctionType, name: str, value: Any) -> bool:
    """Whether a name that a function reads outside means what it did."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            now = cell.cell_contents
        except ValueError:  # It was deleted.
            return False
    else:
        now = function.__globals__.get(name)
    return now is value or _are_equal(now, value)


def _are_equal(now: Any, value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) and type(now) is type(value) and bool(now == value)


def outside_of(function: types.FunctionType) -> dict[str, Any]:
    """The globals of a function, and what it closes over."""
    names = Outside(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue  # Not assigned yet.
    return names


# Decorators that return the function that they are given.
_HARMLESS = ("register_keras_serializable", "keras_export", "vectorize", "staticmethod", "loss")


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
    return searched(plainer(found))


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


def as_local(function: Any, is_same_module: bool) -> Local:
    """A function of the user's, ready to be read in place of being called."""
    tree = tree_of(function)
    scope = Scope(outside=outside_of(function), is_root=is_same_module and not function.__closure__)
    return Local(tree, scope, getattr(function, "__name__", "helper"))
