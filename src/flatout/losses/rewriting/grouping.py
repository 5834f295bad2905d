"""Dicts and lists that a loop fills by a key of the data: a list of (key, term), summed or picked where they are read.

`sums[g] = sums.get(g, 0.0) + x` is `sums_terms.append((g, x))`, and `sums[h]` behind the loop is the sum of the terms
whose key is `h`. Both are Python with the same meaning; the second has loops that become axes.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from .slots import Slots, slots_of


@dataclass(frozen=True)
class Table:
    """A dict that starts empty, or a `Counter` of something.

    Attributes:
        name: The variable.
        made: The statement that makes it.
        default: What a key has before its first term: `"number"`, `"list"`, or None where the code must say.
        counted: What a `Counter` is made of.
    """

    name: str
    made: ast.Assign
    default: str | None = None
    counted: ast.expr | None = None


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
        at += 1
    return tree


# What the names end in that are made here.
_OURS = ("terms", "key", "term", "wanted", "slot")


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
    filling = _Filling(Table(name, slots.made, slots.default), terms)
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
        if isinstance(node, ast.Subscript) and _is_name(node.value, name):
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
            if called in ("range", "enumerate") and _is_name(target, key.id):
                return True
    return False


class NotOfThisKind(Exception):
    """It is used in a way that is not known here."""


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
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name):
        return None
    if isinstance(value, ast.Dict) and not value.keys:
        return Table(target.id, statement)
    if not isinstance(value, ast.Call) or value.keywords:
        return None
    called = ast.unparse(value.func).rpartition(".")[2]
    if called == "dict" and not value.args:
        return Table(target.id, statement)
    if called == "Counter" and len(value.args) < 2:
        return Table(target.id, statement, "number", value.args[0] if value.args else None)
    if called in ("defaultdict", "OrderedDict") and len(value.args) == 1:
        made = ast.unparse(value.args[0])
        kinds = {"list": "list", "float": "number", "int": "number", "lambda: 0.0": "number", "lambda: 0": "number",
                 "lambda: []": "list"}  # fmt: skip
        return Table(target.id, statement, kinds[made]) if made in kinds else None
    return Table(target.id, statement) if called == "OrderedDict" and not value.args else None


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
        filling = _Filling(table, terms)
        loops[0].body = [part for one in filling.block(loops[0].body) for part in [one]]
        made, kind = _parsed(f"{terms} = []"), filling.kind or ""
        if not filling.kind or _mentions(loops[0], name):
            raise NotOfThisKind
    tree.body[at] = ast.copy_location(made, table.made)
    reading = _Reading(name, terms, kind)
    for place, statement in enumerate(tree.body):
        if place != at:
            tree.body[place] = reading.visit(statement)
    if _mentions(tree, name):
        raise NotOfThisKind


def _is_written(loop: ast.stmt, name: str) -> bool:
    """Whether a loop has a statement that changes an entry of a dict."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is_name(node.value, name):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            held = node.func.value
            if isinstance(held, ast.Subscript) and _is_name(held.value, name):
                return True
            if _setdefault(held, name) is not None:
                return True
    return False


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _mentions(tree: ast.AST, name: str) -> bool:
    return any(_is_name(node, name) for node in ast.walk(tree))


def _setdefault(node: ast.AST, name: str) -> ast.expr | None:
    """The key of `name.setdefault(key, [])`."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault"
    if is_call and _is_name(node.func.value, name) and len(node.args) == 2 and ast.unparse(node.args[1]) == "[]":  # type: ignore[attr-defined]
        return node.args[0]  # type: ignore[attr-defined, no-any-return]
    return None


def _parsed(text: str) -> ast.Assign:
    made = ast.parse(text).body[0]
    assert isinstance(made, ast.Assign)
    return made


class _Filling:
    """Changes of entries, one after the other, as terms that are appended."""

    def __init__(self, table: Table, terms: str):
        self._table = table
        self._terms = terms
        self.kind: str | None = None

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        started: set[str] = set()  # Keys that have an entry by now, whatever they were before.
        for statement in body:
            key = self._started(statement)
            if key is not None:
                started.add(key)
                continue
            term = self._term(statement, started)
            if term is not None:
                done.append(ast.copy_location(self._appended(*term), statement))
                continue
            for field in ("body", "orelse"):
                inside = getattr(statement, field, None)
                if isinstance(inside, list) and inside and isinstance(inside[0], ast.stmt):
                    setattr(statement, field, self.block(inside) or [ast.Pass()])
            done.append(statement)
        return done

    def _appended(self, key: ast.expr, term: ast.expr) -> ast.stmt:
        append = ast.Attribute(ast.Name(self._terms, ast.Load()), "append", ast.Load())
        return ast.Expr(ast.Call(append, [ast.Tuple([key, term], ast.Load())], []))

    def _is(self, kind: str) -> None:
        if self.kind not in (None, kind):
            raise NotOfThisKind
        self.kind = kind

    def _started(self, statement: ast.stmt) -> str | None:
        """The key of `if key not in d: d[key] = 0.0`, or `= []`."""
        if not isinstance(statement, ast.If) or statement.orelse or len(statement.body) != 1:
            return None
        key, is_in = self._membership(statement.test)
        (only,) = statement.body
        if key is None or is_in or not isinstance(only, ast.Assign) or self._entry(only.targets[0]) != key:
            return None
        first = ast.unparse(only.value)
        if first not in ("0", "0.0", "[]"):
            return None
        self._is("list" if first == "[]" else "number")
        return key

    def _membership(self, test: ast.expr) -> tuple[str | None, bool]:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.In, ast.NotIn)):
            return None, False
        held = test.comparators[0]
        if isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute) and held.func.attr == "keys":
            held = held.func.value
        if not _is_name(held, self._table.name):
            return None, False
        return ast.unparse(test.left), isinstance(test.ops[0], ast.In)

    def _entry(self, node: ast.AST) -> str | None:
        """The key of `d[key]`, as source."""
        if isinstance(node, ast.Subscript) and _is_name(node.value, self._table.name):
            return ast.unparse(node.slice)
        return None

    def _term(self, statement: ast.stmt, started: set[str]) -> tuple[ast.expr, ast.expr] | None:
        """The key and the term of a statement that changes an entry; None: it is another statement."""
        if isinstance(statement, ast.If) and len(statement.body) == len(statement.orelse) == 1:
            return self._first_or_further(statement)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and self._entry(statement.target):
            key = statement.target.slice  # type: ignore[union-attr]
            listed = _only_element(statement.value) if self._has("list", ast.unparse(key), started) else None
            if listed is not None:
                self._is("list")
                return key, listed
            self._must_have("number", ast.unparse(key), started)
            return key, statement.value
        if isinstance(statement, ast.Assign) and self._entry(statement.targets[0]):
            return self._assigned(statement, started)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            held = call.func.value
            given = _setdefault(held, self._table.name)
            if given is not None:
                self._is("list")
                return given, call.args[0]
            if self._entry(held):
                self._must_have("list", ast.unparse(held.slice), started)  # type: ignore[attr-defined]
                return held.slice, call.args[0]  # type: ignore[attr-defined]
        return None

    def _has(self, kind: str, key: str, started: set[str]) -> bool:
        return self._table.default == kind or (key in started and self.kind == kind)

    def _must_have(self, kind: str, key: str, started: set[str]) -> None:
        if not self._has(kind, key, started):
            raise NotOfThisKind
        self._is(kind)

    def _assigned(self, statement: ast.Assign, started: set[str]) -> tuple[ast.expr, ast.expr]:
        """`d[k] = d.get(k, 0.0) + x`, `d[k] = d[k] + x`, `d[k] = d.get(k, []) + [x]`."""
        target, value = statement.targets[0], statement.value
        assert isinstance(target, ast.Subscript)
        key = ast.unparse(target.slice)
        if len(statement.targets) != 1 or not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
            raise NotOfThisKind
        for old, term in ((value.left, value.right), (value.right, value.left)):
            first = self._got(old, key)
            if first is None and self._entry(old) == key:
                first = "[]" if self._has("list", key, started) else "0"
                self._must_have("list" if first == "[]" else "number", key, started)
            if first is None:
                continue
            if first == "[]":
                listed = _only_element(term)
                if listed is None or old is value.right:
                    raise NotOfThisKind
                self._is("list")
                return target.slice, listed
            self._is("number")
            return target.slice, term
        raise NotOfThisKind

    def _got(self, node: ast.expr, key: str) -> str | None:
        """The default of `d.get(key, default)`, if it is nothing."""
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if not is_call or not _is_name(node.func.value, self._table.name) or len(node.args) != 2:  # type: ignore[attr-defined]
            return None
        first = ast.unparse(node.args[1])  # type: ignore[attr-defined]
        if ast.unparse(node.args[0]) != key or first not in ("0", "0.0", "[]"):  # type: ignore[attr-defined]
            raise NotOfThisKind
        return first

    def _first_or_further(self, statement: ast.If) -> tuple[ast.expr, ast.expr] | None:
        """`if k in d: d[k] += x` with `else: d[k] = x`, and the same for lists."""
        key, is_in = self._membership(statement.test)
        if key is None:
            return None
        further, first = statement.body[0], statement.orelse[0]
        further, first = (further, first) if is_in else (first, further)
        if not isinstance(first, ast.Assign) or self._entry(first.targets[0]) != key:
            raise NotOfThisKind
        listed = _only_element(first.value)
        self._is("number" if listed is None else "list")
        term = self._term(further, {key})
        if term is None or ast.unparse(term[0]) != key:
            raise NotOfThisKind
        if ast.unparse(term[1]) != ast.unparse(first.value if listed is None else listed):
            raise NotOfThisKind
        return term


def _only_element(node: ast.expr) -> ast.expr | None:
    return node.elts[0] if isinstance(node, ast.List) and len(node.elts) == 1 else None


class _Reading(ast.NodeTransformer):
    """Reads of a dict, as sums or lists of the terms with a key."""

    def __init__(self, name: str, terms: str, kind: str):
        self._name = name
        self._keys = f"set([{name}_key for {name}_key, {name}_term in {terms}])"
        picked = f"[{name}_term for {name}_key, {name}_term in {terms} if {name}_key == WANTED]"
        self._picked = f"sum({picked})" if kind == "number" else picked
        self._kind = kind

    def _made(self, text: str, wanted: ast.expr | None, old: ast.AST) -> ast.expr:
        made = ast.parse(text, mode="eval").body
        if wanted is not None:
            made = _Filled(wanted).visit(made)
        for part in ast.walk(made):
            if isinstance(part, (ast.expr, ast.keyword)):
                ast.copy_location(part, old)
        return made  # type: ignore[no-any-return]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if _is_name(node.value, self._name) and isinstance(node.ctx, ast.Load):
            return self._made(self._picked, node.slice, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "len" and _is_name(node.args[0], self._name):
            return self._made(f"len({self._keys})", None, node)
        is_listed = isinstance(function, ast.Name) and function.id in ("list", "tuple", "sorted")
        if is_listed and len(node.args) == 1 and _is_name(node.args[0], self._name):
            node.args[0] = self._made(self._keys, None, node)
            return node
        if isinstance(function, ast.Attribute) and _is_name(function.value, self._name):
            wanted = f"{self._name}_wanted"
            each = self._picked.replace("WANTED", wanted)
            if function.attr == "values" and not node.args:
                return self._made(f"[{each} for {wanted} in {self._keys}]", None, node)
            if function.attr == "items" and not node.args:
                return self._made(f"[({wanted}, {each}) for {wanted} in {self._keys}]", None, node)
            if function.attr == "keys" and not node.args:
                return self._made(self._keys, None, node)
            is_sum = self._kind == "number" and len(node.args) == 2 and ast.unparse(node.args[1]) in ("0", "0.0")
            if function.attr == "get" and is_sum:
                self.generic_visit(node)
                return self._made(self._picked, node.args[0], node)
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        if _is_name(node.iter, self._name):
            node.iter = self._made(self._keys, None, node)
        self.generic_visit(node)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        if _is_name(node.iter, self._name):
            node.iter = self._made(self._keys, None, node.iter)
        self.generic_visit(node)
        return node


class _Filled(ast.NodeTransformer):
    def __init__(self, wanted: ast.expr):
        self._wanted = wanted

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._wanted) if node.id == "WANTED" else node
