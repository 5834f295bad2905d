"""Statements that add a term to an entry of a dict, as terms that are appended to a list."""

from __future__ import annotations

import ast
from dataclasses import dataclass


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


class NotOfThisKind(Exception):
    """It is used in a way that is not known here."""


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def setdefault_key(node: ast.AST, name: str) -> ast.expr | None:
    """The key of `name.setdefault(key, [])`."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault"
    if is_call and is_name(node.func.value, name) and len(node.args) == 2 and ast.unparse(node.args[1]) == "[]":  # type: ignore[attr-defined]
        return node.args[0]  # type: ignore[attr-defined, no-any-return]
    return None


class Filling:
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
        if not is_name(held, self._table.name):
            return None, False
        return ast.unparse(test.left), isinstance(test.ops[0], ast.In)

    def _entry(self, node: ast.AST) -> str | None:
        """The key of `d[key]`, as source."""
        if isinstance(node, ast.Subscript) and is_name(node.value, self._table.name):
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
            given = setdefault_key(held, self._table.name)
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
        if not is_call or not is_name(node.func.value, self._table.name) or len(node.args) != 2:  # type: ignore[attr-defined]
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


def assignment(statement: ast.stmt) -> tuple[str, ast.Assign, ast.expr] | None:
    """The variable that a statement sets, the statement and the value; None: it is another statement, or sets more."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    (target,) = statement.targets
    return (target.id, statement, statement.value) if isinstance(target, ast.Name) else None
