"""Reads of a dict that a loop has filled by key, as sums or lists of the terms with that key."""

from __future__ import annotations

import ast
import copy

from .filling import is_name


class Reading(ast.NodeTransformer):
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
        if is_name(node.value, self._name) and isinstance(node.ctx, ast.Load):
            return self._made(self._picked, node.slice, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func
        if isinstance(function, ast.Name) and function.id == "len" and is_name(node.args[0], self._name):
            return self._made(f"len({self._keys})", None, node)
        is_listed = isinstance(function, ast.Name) and function.id in ("list", "tuple", "sorted")
        if is_listed and len(node.args) == 1 and is_name(node.args[0], self._name):
            node.args[0] = self._made(self._keys, None, node)
            return node
        if isinstance(function, ast.Attribute) and is_name(function.value, self._name):
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
        if is_name(node.iter, self._name):
            node.iter = self._made(self._keys, None, node)
        self.generic_visit(node)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        if is_name(node.iter, self._name):
            node.iter = self._made(self._keys, None, node.iter)
        self.generic_visit(node)
        return node


class _Filled(ast.NodeTransformer):
    def __init__(self, wanted: ast.expr):
        self._wanted = wanted

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._wanted) if node.id == "WANTED" else node
