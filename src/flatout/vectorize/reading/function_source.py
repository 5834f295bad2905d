"""The syntax tree of a user's function: with its defaults as they are, and statements in a simpler spelling."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
from typing import Any

from flatout.pysource.trees import first_line, root_of, walk
from flatout.vectorize.arrays.lifted_values import Refused

# Decorators that return the function that they are given.
_HARMLESS = ("register_keras_serializable", "keras_export", "vectorize", "staticmethod", "loss", "property")


def tree_of(function: Any) -> ast.FunctionDef | ast.Lambda:
    """The syntax tree of a function.

    Raises:
        Refused: There is no source, or a decorator changes what the function does.
    """
    name = getattr(function, "__name__", str(function))
    try:
        lines, _ = inspect.findsource(function)
        nodes = _nodes("".join(lines))
    except (OSError, TypeError, SyntaxError) as error:
        raise Refused(f"The source of {name!r} is not to be had.", "FO101") from error
    code = function.__code__
    if name == "<lambda>":
        wanted = list(inspect.signature(function).parameters)
        found: dict[str, Any] = {
            ast.unparse(one): one
            for one in nodes
            if isinstance(one, ast.Lambda) and one.lineno == code.co_firstlineno
            if [arg.arg for arg in one.args.args] == wanted
            if {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(one)} >= set(code.co_names)
        }
    else:
        defined = [one for one in nodes if isinstance(one, ast.FunctionDef) and one.name == code.co_name]
        firsts = {first_line(one): one for one in defined}
        found = {name: firsts[code.co_firstlineno]} if code.co_firstlineno in firsts else {}
    if len(found) != 1:
        raise Refused(f"The source of {name!r} is not to be told from its surroundings.", "FO101")
    tree = copy.deepcopy(*found.values())
    if isinstance(tree, ast.Lambda):
        return tree
    check_decorators(tree)
    _give_defaults(tree, function)
    for node in ast.walk(tree):
        for side in ("body", "orelse"):
            if isinstance(getattr(node, side, None), list):
                setattr(node, side, _with_defaults(getattr(node, side)))
    return ast.fix_missing_locations(_Simplifying().visit(tree))  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=16)
def _nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


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


def stored(*nodes: ast.AST) -> set[str]:
    """The names that code gives values to, or entries."""
    targets = (part for part in walk(nodes) if isinstance(part, (ast.Name, ast.Subscript)))
    roots = (root_of(part) for part in targets if isinstance(part.ctx, ast.Store))
    return {root.id for root in roots if isinstance(root, ast.Name)}


def loaded(*nodes: ast.AST) -> set[str]:
    """The names that code reads."""
    return {part.id for part in walk(nodes) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _with_defaults(body: list[ast.stmt]) -> list[ast.stmt]:
    """`w = table.get(key)` and `if w is None: w = 1.0` is `w = table.get(key, 1.0)`."""
    made: list[ast.stmt] = []
    for one in body:
        match made[-1:], one:
            case (
                [
                    ast.Assign(
                        targets=[target], value=ast.Call(func=ast.Attribute(attr="get"), args=[_], keywords=[]) as call
                    )
                ],
                ast.If(test=test, body=[ast.Assign(targets=[again], value=ast.Constant() as default)], orelse=[]),
            ) if ast.unparse(test) == f"{ast.unparse(target)} is None" and ast.unparse(again) == ast.unparse(target):
                call.args.append(default)
            case _:
                made.append(one)
    return made


_INDEXERS = (".loc", ".iloc", ".at", ".iat")


class _Simplifying(ast.NodeTransformer):
    """Statements in a simpler form, where they have one."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """`array = array.write(array.size(), x)` of a TensorArray is `array = array + [x]`."""
        self.generic_visit(node)
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name) as target], value=ast.Call(args=[at, given], keywords=[]) as call
            ):
                if ast.unparse(call.func) == f"{name}.write" and ast.unparse(at) == f"{name}.size()":
                    longer = ast.BinOp(ast.Name(name, ast.Load()), ast.Add(), ast.List([given], ast.Load()))
                    return ast.copy_location(ast.Assign([target], longer), node)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:
        """`while True: if i >= n: break; ...` is `while i < n: ...`."""
        self.generic_visit(node)
        match node:
            case ast.While(
                test=ast.Constant(value=endless), body=[ast.If(test=ends, body=[ast.Break()], orelse=[]), _, *_]
            ) if endless and (test := _opposite(ends)) is not None:
                return ast.copy_location(ast.While(test, node.body[1:], node.orelse), node)
        return node

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        """`try: w = table[key]` with `except KeyError: w = 1.0` is `w = table.get(key, 1.0)`."""
        self.generic_visit(node)
        match node:
            case ast.Try(
                body=[ast.Assign(targets=[target], value=ast.Subscript(value=table, slice=key))],
                handlers=[
                    ast.ExceptHandler(
                        type=ast.expr() as kind,
                        body=[ast.Assign(targets=[again], value=ast.Constant() as default)],
                    )
                ],
                orelse=[],
                finalbody=[],
            ) if ast.unparse(target) == ast.unparse(again) and not isinstance(key, ast.Slice):
                # `.get` of a dict or Series; the indexers of pandas, `.loc`, have none.
                is_table = isinstance(table, (ast.Name, ast.Attribute)) and not ast.unparse(table).endswith(_INDEXERS)
                if is_table and ast.unparse(kind) in ("KeyError", "LookupError", "(KeyError,)"):
                    call = ast.Call(ast.Attribute(table, "get", ast.Load()), [key, default], [])
                    return ast.copy_location(ast.Assign([target], call), node)
        return node

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        """`match` on numbers is a chain of `if`."""
        self.generic_visit(node)
        made: list[ast.stmt] = []
        for case in reversed(node.cases):
            test = _test_of(case.pattern, node.subject)
            if test is None:
                return node
            if case.guard is not None:
                test = ast.BoolOp(ast.And(), [test, case.guard])
            if isinstance(test, ast.Constant):  # `case _:` matches all.
                made = list(case.body)
            else:
                made = [ast.copy_location(ast.If(test, case.body, made), case.body[0])]
        return made[0] if len(made) == 1 else ast.copy_location(ast.If(ast.Constant(True), made, []), node)


_OPPOSITES: dict[type, type] = {ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.Eq: ast.NotEq}


def _opposite(test: ast.expr) -> ast.expr | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITES:
        return ast.copy_location(ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators), test)
    return None


def _test_of(pattern: ast.pattern, subject: ast.expr) -> ast.expr | None:
    """Whether a pattern of constants matches; None: it is of another kind."""
    if isinstance(pattern, ast.MatchValue):
        return ast.copy_location(ast.Compare(subject, [ast.Eq()], [pattern.value]), subject)
    if isinstance(pattern, ast.MatchOr):
        tests = [_test_of(one, subject) for one in pattern.patterns]
        known = [test for test in tests if test is not None]
        return ast.copy_location(ast.BoolOp(ast.Or(), list(known)), subject) if len(known) == len(tests) else None
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and pattern.name is None:
        return ast.Constant(True)
    return None
