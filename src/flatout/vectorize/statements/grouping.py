"""Dicts and lists that a loop fills by a key of the data: a list of (key, term), summed or picked where they are read.

`sums[g] = sums.get(g, 0.0) + x` is `sums_terms.append((g, x))`, and `sums[h]` behind the loop is the sum of the terms
whose key is `h`. Both are Python with the same meaning; the second has loops that become axes.
"""

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Iterator

from .cells import Cells, Counting, cells_of, table_behind
from .filling import Filling, NotOfThisKind, Table, assignment, is_name, setdefault_key
from .grouped_reads import Reading
from .slots import Slots, slots_of


def grouped(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function without dicts and lists that a loop fills by keys of the data, where it has such."""
    tree = _split(tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    at = 0
    while at < len(tree.body):
        found: Table | Slots | None = _table(tree.body[at]) or slots_of(tree.body[at])
        if found is not None and not names & {f"{found.name}_{word}" for word in _OURS}:
            trial = copy.deepcopy(tree)
            try:
                if isinstance(found, Slots):
                    _filled(trial, at, found)
                else:
                    _rewritten(trial, at, found)
                tree = ast.fix_missing_locations(trial)
            except NotOfThisKind:
                pass
        cells = cells_of(tree.body[at])
        if cells is not None and not names & {f"{cells.name}_{word}" for word in _OURS}:
            trial = copy.deepcopy(tree)
            with contextlib.suppress(NotOfThisKind):
                _counted(trial, at, cells)
                tree = ast.fix_missing_locations(trial)
        at += 1
    return tree


# What the names end in that are made here.
_OURS = ("terms", "key", "term", "wanted", "slot", "cell")


def _counted(tree: ast.FunctionDef, at: int, cells: Cells) -> None:
    """Put terms in place of a table of zeros that a loop counts in."""
    name = cells.name
    loops = [place for place, one in enumerate(tree.body) if place > at and _mentions(one, name)]
    if not loops or not isinstance(loop := tree.body[loops[0]], (ast.For, ast.While)):
        raise NotOfThisKind
    counting = Counting(cells, lambda key: _is_counter(key, loop))
    loop.body = [counting.visit(statement) for statement in loop.body]
    if not counting.found or _mentions(loop, name):
        raise NotOfThisKind
    tree.body[at] = ast.copy_location(_parsed(f"{name}_terms = []"), tree.body[at])
    tree.body.insert(loops[0] + 1, _located(_parsed(table_behind(cells)), loop))


def _filled(tree: ast.FunctionDef, at: int, slots: Slots) -> None:
    """Put terms in place of a list, or array of zeros, with a slot for every key."""
    name, terms = slots.name, f"{slots.name}_terms"
    loops = [
        place
        for place, one in enumerate(tree.body)
        if place > at and isinstance(one, (ast.For, ast.While)) and _is_written(one, name)
    ]
    if len(loops) != 1 or any(_mentions(one, name) for one in tree.body[at + 1 : loops[0]]):
        raise NotOfThisKind
    loop = tree.body[loops[0]]
    assert isinstance(loop, (ast.For, ast.While))
    if any(_is_counter(key, loop) for key in _keys_written(loop, name)):
        raise NotOfThisKind
    filling = Filling(Table(name, slots.made, slots.default), terms)
    loop.body = filling.block(loop.body)
    if not filling.kind or _mentions(loop, name):
        raise NotOfThisKind
    # Python counts negative places from the end.
    picked = f"[{name}_term for {name}_key, {name}_term in {terms} if {name}_key % {slots.count} == {name}_slot]"
    each = picked if slots.default == "list" else f"sum({picked})"
    every = slots.stacked.format(f"[{each} for {name}_slot in range({slots.count})]")
    tree.body[at] = ast.copy_location(_parsed(f"{terms} = []"), tree.body[at])
    tree.body.insert(loops[0] + 1, _located(_parsed(f"{name} = {every}"), loop))


def _located(made: ast.Assign, old: ast.AST) -> ast.Assign:
    for part in ast.walk(made):
        if isinstance(part, (ast.expr, ast.stmt)):
            ast.copy_location(part, old)
    return made


def _keys_written(loop: ast.stmt, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and is_name(node.value, name):
            yield node.slice


def _is_counter(key: ast.expr, loop: ast.stmt) -> bool:
    """Whether a key is the variable of a range, which has a form of its own, or holds several."""
    if not isinstance(key, ast.Name):
        return isinstance(key, (ast.Tuple, ast.Slice, ast.Constant))
    for node in ast.walk(loop):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            called = ast.unparse(node.iter.func).rpartition(".")[2]
            target = node.target
            if called == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if called in ("range", "enumerate") and is_name(target, key.id):
                return True
    return False


def _split(tree: ast.FunctionDef) -> ast.FunctionDef:
    """`a, b = {}, {}` as two statements."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                parts = [ast.copy_location(ast.Assign([one], two), statement)
                         for one, two in zip(target.elts, value.elts, strict=True)]  # fmt: skip
                if any(_table(part) or slots_of(part) for part in parts) and _is_apart(target, value):
                    body += parts
                    continue
        body.append(statement)
    if len(body) != len(tree.body):
        tree = copy.copy(tree)
        tree.body = body
    return tree


def _is_apart(target: ast.expr, value: ast.expr) -> bool:
    """Whether no variable that is assigned is read on the other side."""
    set_here = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    return not set_here & {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _table(statement: ast.stmt) -> Table | None:
    assigned = assignment(statement)
    if assigned is None:
        return None
    name, statement, value = assigned
    if isinstance(value, ast.Dict) and not value.keys:
        return Table(name, statement)
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    called = ast.unparse(value.func).rpartition(".")[2]
    if called == "dict" and not value.args:
        return Table(name, statement)
    if called == "Counter" and len(value.args) < 2:
        return Table(name, statement, "number", value.args[0] if value.args else None)
    if called in ("defaultdict", "OrderedDict") and len(value.args) == 1:
        made = ast.unparse(value.args[0])
        kinds = {"list": "list", "float": "number", "int": "number", "lambda: 0.0": "number", "lambda: 0": "number",
                 "lambda: []": "list"}  # fmt: skip
        return Table(name, statement, kinds[made]) if made in kinds else None
    return Table(name, statement) if called == "OrderedDict" and not value.args else None


def _rewritten(tree: ast.FunctionDef, at: int, table: Table) -> None:
    """Put terms in place of a dict; raises `NotOfThisKind`, with the tree half done, if it has other uses."""
    name, terms = table.name, f"{table.name}_terms"
    loops = [one for one in tree.body[at + 1 :] if isinstance(one, (ast.For, ast.While)) and _is_written(one, name)]
    if table.counted is not None:
        made = _parsed(f"{terms} = [(key, 1) for key in 0]")
        made.value.generators[0].iter = table.counted  # type: ignore[attr-defined]
        kind = "number"
        if loops:
            raise NotOfThisKind
    else:
        if len(loops) != 1:
            raise NotOfThisKind
        filling = Filling(table, terms)
        loops[0].body = [part for one in filling.block(loops[0].body) for part in [one]]
        made, kind = _parsed(f"{terms} = []"), filling.kind or ""
        if not filling.kind or _mentions(loops[0], name):
            raise NotOfThisKind
    tree.body[at] = ast.copy_location(made, table.made)
    reading = Reading(name, terms, kind)
    for place, statement in enumerate(tree.body):
        if place != at:
            tree.body[place] = reading.visit(statement)
    if _mentions(tree, name):
        raise NotOfThisKind


def _is_written(loop: ast.stmt, name: str) -> bool:
    """Whether a loop has a statement that changes an entry of a dict."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and is_name(node.value, name):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            held = node.func.value
            if isinstance(held, ast.Subscript) and is_name(held.value, name):
                return True
            if setdefault_key(held, name) is not None:
                return True
    return False


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(is_name(node, name) for node in ast.walk(tree))


def _parsed(text: str) -> ast.Assign:
    made = ast.parse(text).body[0]
    assert isinstance(made, ast.Assign)
    return made
