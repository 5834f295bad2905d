"""The map form: a loop over the samples becomes `ops.vectorized_map` of its body, for bodies without an array form.

The body is taken as it is written, as a function of one sample. So it must be a sample's own computation: nothing is
carried from sample to sample but sums and lists, and nothing is drawn, printed, changed or left early.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections.abc import Mapping
from typing import Any

from flatout.pysource.library_functions import is_random, library_of, may_define_gradient, path_of
from flatout.pysource.trees import dotted
from flatout.vectorize.arrays.expression_graph import fresh_name
from flatout.vectorize.arrays.lifted_values import Refused
from flatout.vectorize.interpreter.scopes import outside_of
from flatout.vectorize.reading.function_source import check_decorators, loaded, stored, tree_of

_DEEPEST = 8
_EFFECTS = ("print", "input", "open", "exec", "eval", "setattr", "delattr", "globals", "next", "iter", "id", "vars")
_CHANGES = (
    "assign", "assign_add", "assign_sub", "write", "pop", "update", "setdefault", "add_", "mul_", "copy_", "fill_",
)  # fmt: skip
_OWN_CHANGES = ("append", "extend", "insert", "add", "remove")
_FORBIDDEN = (
    ast.Global, ast.Nonlocal, ast.Break, ast.While, ast.Assert, ast.Try, ast.With, ast.Raise, ast.Yield, ast.Await,
    ast.Delete, ast.ClassDef,
)  # fmt: skip
# The name of an array in the body, and the parameter whose rows it stands for.
_Rows = list[tuple[str, str]]


def map_samples(
    tree: ast.FunctionDef, arrays: Mapping[str, int], names: Mapping[str, Any], ops_name: str, first: str
) -> str:
    """The source of a function with its loop over the samples as a map, or `Refused`.

    `arrays` has the ranks of its parameters, `names` what its global and closure variables are; the source says
    `keras.ops` by `ops_name`, for which it needs the import `first`, or none.
    """
    body = [part for statement in tree.body for part in _with_loops(copy.deepcopy(statement), arrays, tree)]
    found = [at for at, one in enumerate(body) if isinstance(one, ast.For) and _samples(one, arrays, tree) is not None]
    if len(found) != 1:
        raise Refused("There is no single loop over the samples that could be mapped.")
    before, loop, after = body[: found[0]], body[found[0]], body[found[0] + 1 :]
    assert isinstance(loop, ast.For)
    if stored(*before) & set(arrays) or not _is_pure(tree.body, names, set(arrays)):
        raise Refused("An array of samples is replaced before its loop, or the function does more than compute.")
    counter, rows = _samples(loop, arrays, tree)  # type: ignore[misc]
    made, filled = _mapped(loop, counter, rows, arrays, stored(*before), ops_name)
    after = [_Filled(filled, ops_name).visit(statement) for statement in after]
    function = ast.FunctionDef(tree.name, tree.args, [*ast.parse(first).body, *before, *made, *after], [], None)
    return ast.unparse(ast.fix_missing_locations(ast.Module([function], []))) + "\n"


def _with_loops(statement: ast.stmt, arrays: Mapping[str, int], tree: ast.FunctionDef) -> list[ast.stmt]:
    """A statement with a comprehension over the samples, as a loop that fills a list and the statement that uses it."""
    if not isinstance(statement, (ast.Assign, ast.Return, ast.AugAssign)) or statement.value is None:
        return [statement]
    for node in ast.walk(statement.value):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
            one = node.generators[0]
            loop = ast.For(one.target, one.iter, ast.parse("of_all.append(0)").body, [], lineno=statement.lineno)
            loop.body[0].value.args = [node.elt]  # type: ignore[attr-defined]
            if _samples(loop, arrays, tree) is not None and not one.ifs:
                used = _Exchange(node).visit(statement)
                return [ast.parse("of_all = []").body[0], loop, used]
    return [statement]


class _Exchange(ast.NodeTransformer):
    """Puts the list that a loop fills in place of the comprehension that it was."""

    def __init__(self, node: ast.AST):
        self._node = node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return ast.Name("of_all", ast.Load()) if node is self._node else super().generic_visit(node)


def _samples(loop: ast.For, arrays: Mapping[str, int], tree: ast.FunctionDef) -> tuple[str | None, _Rows] | None:
    """The counter of a loop that runs over the samples of one batch, if any, and its rows; None: it is another loop."""
    match loop.target, loop.iter:
        case _ if loop.orelse:
            return None
        case ast.Name(id=row), ast.Name(id=array) if array in arrays:
            return None, [(row, array)]
        case ast.Name(id=counter), ast.Call(func=ast.Name(id="range"), args=[size]):
            return (counter, []) if _is_batch_size(size, arrays, tree) else None
        case ast.Tuple(elts=[ast.Name(id=counter), target]), ast.Call(func=ast.Name(id="enumerate"), args=[over]):
            inside = _samples(ast.For(target, over, [], []), arrays, tree)
            return (counter, inside[1]) if inside and inside[0] is None else None
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=given) if len(targets) == len(given):
            pairs = [(ast.unparse(a), ast.unparse(b)) for a, b in zip(targets, given, strict=True)]
            is_plain = all(isinstance(one, ast.Name) for one in targets) and all(b in arrays for _, b in pairs)
            return (None, pairs) if is_plain else None
    return None


def _is_batch_size(node: ast.expr, arrays: Mapping[str, int], tree: ast.FunctionDef) -> bool:
    if isinstance(node, ast.Name):
        given = [one.value for one in tree.body if isinstance(one, ast.Assign) and stored(one) == {node.id}]
        return len(given) == 1 and not isinstance(given[0], ast.Name) and _is_batch_size(given[0], arrays, tree)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "int":
        return _is_batch_size(node.args[0], arrays, tree)
    text = ast.unparse(node)
    sizes = ("len({})", "{}.shape[0]", "{}.size(0)", "{}.get_shape()[0]", "{}.shape.as_list()[0]")
    return any(
        text in [size.format(name) for size in sizes] or text.endswith((f"shape({name})[0]", f"int_shape({name})[0]"))
        for name in arrays
    )


def _mapped(
    loop: ast.For, counter: str | None, rows: _Rows, arrays: Mapping[str, int], known: set[str], ops_name: str
) -> tuple[list[ast.stmt], set[str]]:
    """`for` as a map: what it becomes, and the lists that are arrays then."""
    if any(isinstance(part, ast.Continue) for part in ast.walk(loop)):
        raise Refused("A sample is skipped.")
    if any(
        _is_recurrence(one) for part in loop.body for one in ast.walk(part) if isinstance(one, (ast.For, ast.While))
    ):
        raise Refused("A value is carried from one step to the next: a recurrence is not a map.")
    terms = {at: term for at, statement in enumerate(loop.body) if (term := _term(statement, known))}
    rest = [statement for at, statement in enumerate(loop.body) if at not in terms]
    filled = {name for name, _, _ in terms.values()}
    results = [term for _, _, term in terms.values()]
    is_plain = bool(terms) and len(filled) == len(terms) and not stored(*rest) & known
    if not is_plain or loaded(*rest, *results) & filled:
        raise Refused("A sample's result is carried on in a way that is neither a sum nor a list.")
    result = results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
    naming = _Naming(counter, arrays, loaded(*loop.body) | stored(*loop.body) | set(arrays))
    inside = [naming.visit(statement) for statement in [*rest, ast.Return(result)]]
    needed = loaded(*inside)
    if counter in needed:
        raise Refused("The number of the sample takes part in the computation.")
    used = [*(pair for pair in rows if pair[0] in needed), *((one, array) for array, one in naming.names.items())]
    if not used:
        raise Refused("The loop over the samples reads none of them.")
    names, given = [one for one, _ in used], ", ".join(array for _, array in used)
    made: list[Any] = ast.parse(
        f"def of_one({names[0]}): pass\nof_each = {ops_name}.vectorized_map(of_one, {given})"
        if len(used) == 1
        else f"def of_one(sample): {', '.join(names)} = sample\nof_each = {ops_name}.vectorized_map(of_one, ({given}))"
    ).body
    made[0].body = [*made[0].body[len(used) == 1 :], *inside]
    for place, (name, how, _) in enumerate(terms.values()):
        part = "of_each" if len(terms) == 1 else f"of_each[{place}]"
        made += ast.parse(f"{name} = {part if how == 'list' else f'{name} {how} {ops_name}.sum({part}, axis=0)'}").body
    return made, {name for name, how, _ in terms.values() if how == "list"}


def _is_recurrence(loop: ast.For | ast.While) -> bool:
    """Whether a loop inside a sample's needs the result of its step before, other than as a sum or list."""
    later, known = stored(*loop.body), stored(*loop.body) | loaded(*loop.body)
    for statement in loop.body:
        term = _term(statement, known)
        # A loop or branch has variables of its own; an assignment reads before it stores.
        own = stored(statement.value) if isinstance(statement, ast.Assign) else stored(statement)
        if loaded(term[2] if term else statement) & (later if term else later - own):
            return True
        later -= set() if term else stored(statement)
    return False


def _term(statement: ast.stmt, known: set[str]) -> tuple[str, str, ast.expr] | None:
    """`total += term`, `total = total + term` and `rows.append(term)`: the name, how it grows, and by what."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub() as op, value=term) if name in known:
            return name, "+" if isinstance(op, ast.Add) else "-", term
        case ast.Assign(
            targets=[ast.Name(id=name)],
            value=ast.BinOp(left=ast.Name(id=same), op=ast.Add() | ast.Sub() as op, right=term),
        ) if same == name and name in known:
            return name, "+" if isinstance(op, ast.Add) else "-", term
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[term])):
            return (name, "list", term) if name in known else None
    return None


class _Naming(ast.NodeTransformer):
    """`y_true[i]` and `y_true[i, j]` as `row_of_y_true` and `row_of_y_true[j]`."""

    def __init__(self, counter: str | None, arrays: Mapping[str, int], taken: set[str]):
        self._counter, self._arrays, self._taken = counter, arrays, taken
        self.names: dict[str, str] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_row = isinstance(node.value, ast.Name) and node.value.id in self._arrays
        if not is_row or not isinstance(first, ast.Name) or first.id != self._counter:
            return node
        array = node.value.id  # type: ignore[attr-defined]
        one = ast.Name(self.names.setdefault(array, fresh_name(f"row_of_{array}", self._taken)), ast.Load())
        if not rest:
            return one
        return ast.Subscript(one, rest[0] if len(rest) == 1 else ast.Tuple(rest, ast.Load()), ast.Load())


class _Filled(ast.NodeTransformer):
    """What is done with a list of results, done with the array that it is now."""

    def __init__(self, names: set[str], ops_name: str):
        self._names, self._ops = names, ops_name

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.args:
            case [ast.Name(id=name)] if name in self._names and not node.keywords:
                library, _, called = ast.unparse(node.func).rpartition(".")
                if called in ("stack", "convert_to_tensor", "array", "asarray") or (called == "list" and not library):
                    return node.args[0]
                if library:
                    return node  # A function of arrays, on what it made an array of anyhow.
                if called in ("sum", "max", "min"):
                    return ast.parse(f"{self._ops}.{called}({name}, axis=0)", mode="eval").body
                if called == "len":
                    return ast.parse(f"{self._ops}.shape({name})[0]", mode="eval").body
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._names:
            raise Refused("A list of samples' results is used as a list.")
        return node


def _is_pure(statements: list[Any], names: Mapping[str, Any], own: set[str], depth: int = 0) -> bool:
    """Whether statements, with all functions of the user's that they call, compute and do nothing else."""
    local = own | stored(*statements)
    nodes = (node for statement in statements for node in ast.walk(statement))
    return not any(_does_more(node, names, local, depth) for node in nodes)


def _does_more(node: ast.AST, names: Mapping[str, Any], local: set[str], depth: int) -> bool:
    match node:
        case ast.Attribute() | ast.Subscript():
            return not isinstance(node.ctx, ast.Load)
        case ast.For():
            return any(isinstance(part, ast.Return) for part in ast.walk(node))
        case ast.FunctionDef():
            check_decorators(node)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))):
            return method not in _OWN_CHANGES or name not in local
        case ast.Expr():
            return not isinstance(node.value, ast.Constant)
        case ast.Call():
            return not _is_pure_call(node, names, local, depth)
    return isinstance(node, _FORBIDDEN)


def _is_pure_call(node: ast.Call, names: Mapping[str, Any], local: set[str], depth: int) -> bool:
    if isinstance(node.func, ast.Name) and node.func.id in _EFFECTS and node.func.id not in names:
        return False
    function, root = _resolved(node.func, names)
    if isinstance(node.func, ast.Attribute):
        owner, _ = _resolved(node.func.value, names)
        changes = node.func.attr in _CHANGES or (node.func.attr in _OWN_CHANGES and root not in local)
        # A function of a module, such as `ops.add`, is no method.
        if not isinstance(owner, types.ModuleType) and (changes or node.func.attr.endswith("_")):
            return False
    if function is None:
        return True
    path = path_of(function)
    if may_define_gradient(function) or is_random(path) or is_random(ast.unparse(node.func)):
        return False
    holder = getattr(function, "__self__", None) if isinstance(function, types.MethodType) else None
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or library_of(function.__module__) is not None:
        return library_of(path) is not None
    tree = tree_of(function)
    inside = tree.body if isinstance(tree, ast.FunctionDef) else [tree.body]
    known = outside_of(function) if holder is None else {**outside_of(function), "self": holder}
    return depth <= _DEEPEST and _is_pure(inside, known, {arg.arg for arg in tree.args.args}, depth + 1)


def _resolved(node: ast.expr, names: Mapping[str, Any]) -> tuple[Any, str]:
    """The object that a dotted name is, or None for a method of a value; and the name that it starts with."""
    root, *parts = dotted(node).split(".")
    return functools.reduce(lambda of, part: getattr(of, part, None), parts, names.get(root)), root
