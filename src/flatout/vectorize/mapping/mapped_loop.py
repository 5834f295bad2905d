"""The map form: a loop over the samples becomes `ops.vectorized_map` of its body, for bodies without an array form.

The body is taken as it is written, as a function of one sample. So it must be a sample's own computation: nothing is
carried from sample to sample but sums and lists, and nothing is drawn, printed, changed or left early (see `purity`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.vectorize.arrays.lifted_values import Refused

from .purity import Impure, check_pure, has_recurrence


@dataclass(frozen=True)
class Samples:
    """How a loop runs over the samples: its counter, if any, and the arrays that each sample's names stand for."""

    counter: str | None
    rows: tuple[tuple[str, str], ...]  # The name in the body, and the parameter.


def map_samples(
    tree: ast.FunctionDef, arrays: Mapping[str, int], names: Mapping[str, Any], ops_name: str, first: str
) -> str:
    """The source of a function with its loop over the samples as a map.

    Args:
        tree: The function.
        arrays: Its parameters that are arrays, with their ranks.
        names: What the function's global and closure variables are.
        ops_name: How the source says `keras.ops`.
        first: The import that this needs, or nothing.

    Raises:
        Refused: It has no such loop, or the body is more than a sample's own computation.
    """
    found = [at for at, statement in enumerate(tree.body) if _over_samples(statement, arrays, tree) is not None]
    if len(found) != 1:
        raise Refused("There is no single loop over the samples that could be mapped.")
    at = found[0]
    loop, samples = _over_samples(tree.body[at], arrays, tree)  # type: ignore[misc]
    before, after = tree.body[:at], tree.body[at + 1 :]
    if any(_stores(statement) & set(arrays) for statement in before):
        raise Refused("An array of samples is replaced before its loop.")
    try:
        for statement in tree.body:
            check_pure(statement, names, set(arrays) | _stores(tree))
    except Impure as impure:
        raise Refused(impure.reason, impure.code, impure.line) from impure
    if isinstance(loop, ast.For):
        made, filled = _mapped_statement(loop, samples, arrays, before, ops_name)
        after = [_Filled(filled, ops_name).visit(copy.deepcopy(statement)) for statement in after]
        body = [*before, *made, *after]
    else:
        made = _mapped_comprehension(tree.body[at], loop, samples, arrays, ops_name)
        body = [*before, *made, *after]
    body = [*ast.parse(first).body, *body]
    function = ast.FunctionDef(tree.name, copy.deepcopy(tree.args), body, [], None)
    return ast.unparse(ast.fix_missing_locations(ast.Module([function], []))) + "\n"


def _over_samples(statement: ast.stmt, arrays: Mapping[str, int], tree: ast.FunctionDef) -> Any:
    if isinstance(statement, ast.For):
        samples = _samples(statement.target, statement.iter, arrays, tree)
        return (statement, samples) if samples and not statement.orelse else None
    if isinstance(statement, (ast.Assign, ast.Return, ast.AugAssign)) and statement.value is not None:
        for node in ast.walk(statement.value):
            if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
                one = node.generators[0]
                samples = _samples(one.target, one.iter, arrays, tree)
                if samples and not one.ifs:
                    return node, samples
    return None


def _samples(target: ast.expr, over: ast.expr, arrays: Mapping[str, int], tree: ast.FunctionDef) -> Samples | None:
    """What a loop's target stands for if it runs over the samples of one batch."""
    if isinstance(over, ast.Name) and over.id in arrays and isinstance(target, ast.Name):
        return Samples(None, ((target.id, over.id),))
    if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name):
        return None
    if over.func.id == "range" and len(over.args) == 1 and isinstance(target, ast.Name):
        return Samples(target.id, ()) if _is_batch_size(over.args[0], arrays, tree) else None
    if over.func.id == "enumerate" and len(over.args) == 1 and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        inside = _samples(target.elts[1], over.args[0], arrays, tree)
        counter = target.elts[0]
        if inside and inside.counter is None and isinstance(counter, ast.Name):
            return Samples(counter.id, inside.rows)
    if over.func.id == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(over.args):
        pairs = list(zip(target.elts, over.args, strict=True))
        if all(isinstance(a, ast.Name) and isinstance(b, ast.Name) and b.id in arrays for a, b in pairs):
            return Samples(None, tuple((a.id, b.id) for a, b in pairs))  # type: ignore[attr-defined]
    return None


def _is_batch_size(node: ast.expr, arrays: Mapping[str, int], tree: ast.FunctionDef) -> bool:
    if isinstance(node, ast.Name):
        given = [one.value for one in tree.body if isinstance(one, ast.Assign) and _stores(one) == {node.id}]
        return len(given) == 1 and not isinstance(given[0], ast.Name) and _is_batch_size(given[0], arrays, tree)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("int", "len"):
        inside = node.args[0]
        if node.func.id == "len":
            return isinstance(inside, ast.Name) and inside.id in arrays
        return _is_batch_size(inside, arrays, tree)
    text = ast.unparse(node)
    for name in arrays:
        if text in (f"{name}.shape[0]", f"{name}.size(0)", f"{name}.get_shape()[0]", f"{name}.shape.as_list()[0]"):
            return True
        if text.endswith(("shape(" + name + ")[0]", "int_shape(" + name + ")[0]")):
            return True
    return False


def _stores(statement: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _loads(statements: list[Any]) -> set[str]:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _mapped_statement(
    loop: ast.For, samples: Samples, arrays: Mapping[str, int], before: list[ast.stmt], ops_name: str
) -> tuple[list[ast.stmt], set[str]]:
    """`for` as a map: what it becomes, and the lists that are arrays then."""
    if any(isinstance(part, (ast.Continue, ast.Break)) for one in loop.body for part in ast.walk(one)):
        raise Refused("A sample is skipped, or the loop ends early.", "FO101", loop.lineno)
    if has_recurrence(loop.body):
        raise Refused("A value is carried from one step to the next: a recurrence is not a map.", "FO106", loop.lineno)
    known = {name for statement in before for name in _stores(statement)}
    rest: list[ast.stmt] = []
    terms: list[tuple[str, str, ast.expr]] = []
    for statement in loop.body:
        term = _term(statement, known)
        if term is None:
            rest.append(statement)
        else:
            terms.append(term)
    carried = {name for name, _, _ in terms}
    changed = {name for statement in rest for name in _stores(statement)}
    if (
        not terms
        or len(carried) < len(terms)
        or changed & known
        or _loads([*rest, *(t for _, _, t in terms)]) & carried
    ):
        raise Refused(
            "A sample's result is carried on in a way that is neither a sum nor a list.", "FO106", loop.lineno
        )
    result: ast.expr = terms[0][2] if len(terms) == 1 else ast.Tuple([term for _, _, term in terms], ast.Load())
    used, inside = _of_one_sample([*rest, ast.Return(result)], samples, arrays)
    made: list[ast.stmt] = [_function(used, inside, len(used) > 1)]
    made.append(_assign("of_each", _map_call(used, ops_name)))
    for place, (name, how, _) in enumerate(terms):
        part = "of_each" if len(terms) == 1 else f"of_each[{place}]"
        if how == "list":
            made.append(ast.parse(f"{name} = {part}").body[0])
        else:
            made.append(ast.parse(f"{name} = {name} {how} {ops_name}.sum({part}, axis=0)").body[0])
    return made, {name for name, how, _ in terms if how == "list"}


def _term(statement: ast.stmt, known: set[str]) -> tuple[str, str, ast.expr] | None:
    """`total += term`, `total = total + term` and `rows.append(term)`."""
    match statement:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub() as op) if name in known:
            return name, "+" if isinstance(op, ast.Add) else "-", statement.value
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp(left=ast.Name(id=same), op=ast.Add() | ast.Sub())):
            value = statement.value
            if same == name and name in known and isinstance(value, ast.BinOp):
                return name, "+" if isinstance(value.op, ast.Add) else "-", value.right
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[term])):
            return (name, "list", term) if name in known else None
    return None


def _of_one_sample(
    statements: list[Any], samples: Samples, arrays: Mapping[str, int]
) -> tuple[list[tuple[str, str]], list[Any]]:
    """The body with each sample's rows by names of their own: those names with their arrays, and the body."""
    rows = list(samples.rows)
    taken = _loads(statements) | {name for statement in statements for name in _stores(statement)} | set(arrays)
    renamer = _Rows(samples.counter, arrays, taken)
    made = [renamer.visit(copy.deepcopy(statement)) for statement in statements]
    if samples.counter is not None and samples.counter in _loads(made):
        raise Refused("The number of the sample takes part in the computation.", "FO101")
    needed = _loads(made)
    rows = [*(pair for pair in rows if pair[0] in needed), *((one, array) for array, one in renamer.names.items())]
    if not rows:
        raise Refused("The loop over the samples reads none of them.")
    return rows, made


class _Rows(ast.NodeTransformer):
    """`y_true[i]` and `y_true[i, j]` as `row_of_y_true` and `row_of_y_true[j]`."""

    def __init__(self, counter: str | None, arrays: Mapping[str, int], taken: set[str]):
        self._counter, self._arrays, self._taken = counter, arrays, taken
        self.names: dict[str, str] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        is_row = isinstance(node.value, ast.Name) and node.value.id in self._arrays
        first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not is_row or not isinstance(first, ast.Name) or first.id != self._counter:
            self.generic_visit(node)
            return node
        array = node.value.id  # type: ignore[attr-defined]
        one = ast.Name(self.names.setdefault(array, self._fresh(f"row_of_{array}")), ast.Load())
        rest = [self.visit(part) for part in rest]
        if not rest:
            return one
        return ast.Subscript(one, rest[0] if len(rest) == 1 else ast.Tuple(rest, ast.Load()), ast.Load())

    def _fresh(self, wish: str) -> str:
        while wish in self._taken:
            wish += "_"
        return wish


def _function(rows: list[tuple[str, str]], body: list[Any], is_several: bool) -> ast.FunctionDef:
    names = [one for one, _ in rows]
    arguments = ast.arguments([], [ast.arg("sample" if is_several else names[0])], None, [], [], None, [])
    first = [ast.parse(f"{', '.join(names)} = sample").body[0]] if is_several else []
    return ast.FunctionDef("of_one", arguments, [*first, *body], [], None)


def _map_call(rows: list[tuple[str, str]], ops_name: str) -> ast.expr:
    arrays = [array for _, array in rows]
    elements = arrays[0] if len(arrays) == 1 else f"({', '.join(arrays)})"
    return ast.parse(f"{ops_name}.vectorized_map(of_one, {elements})", mode="eval").body


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _mapped_comprehension(
    statement: ast.stmt, node: Any, samples: Samples, arrays: Mapping[str, int], ops_name: str
) -> list[ast.stmt]:
    """A comprehension over the samples as a map."""
    used, inside = _of_one_sample([ast.Return(node.elt)], samples, arrays)
    made: list[ast.stmt] = [_function(used, inside, len(used) > 1), _assign("of_each", _map_call(used, ops_name))]

    class Exchange(ast.NodeTransformer):
        def generic_visit(self, one: ast.AST) -> ast.AST:
            return ast.Name("of_each", ast.Load()) if one is node else super().generic_visit(one)

    exchanged = Exchange().visit(statement)
    filled = {"of_each"}
    if isinstance(exchanged, ast.Assign) and isinstance(exchanged.value, ast.Name):
        raise Refused("A list of samples' results is kept; which array it is cannot be told here.")
    return [*made, _Filled(filled, ops_name).visit(exchanged)]


class _Filled(ast.NodeTransformer):
    """What is done with a list of results, done with the array that it is now."""

    def __init__(self, names: set[str], ops_name: str):
        self._names, self._ops = names, ops_name

    def visit_Call(self, node: ast.Call) -> ast.expr:
        called = ast.unparse(node.func).rpartition(".")
        is_list = len(node.args) >= 1 and isinstance(node.args[0], ast.Name) and node.args[0].id in self._names
        if is_list and not node.keywords and len(node.args) == 1:
            name = node.args[0].id  # type: ignore[attr-defined]
            if called[2] in ("stack", "convert_to_tensor", "array", "asarray") or ast.unparse(node.func) == "list":
                return ast.Name(name, ast.Load())
            if called[0] == "" and called[2] in ("sum", "max", "min"):
                return ast.parse(f"{self._ops}.{called[2]}({name}, axis=0)", mode="eval").body
            if called[0] == "" and called[2] == "len":
                return ast.parse(f"{self._ops}.shape({name})[0]", mode="eval").body
            if called[0]:
                return node  # A function of arrays, on what it made an array of anyhow.
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._names:
            raise Refused("A list of samples' results is used as a list.")
        return node
