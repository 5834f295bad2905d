"""Functions inside the loss that are called for their effect, read in place: `visit(i)` becomes what `visit` does."""

from __future__ import annotations

import ast
import copy


def in_place(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A function without those inner functions; those that also give a value stay as they are."""
    for helper in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        procedure = _Procedure.of(helper, tree)
        if procedure is not None and all(procedure.statements(call) is not None for call in procedure.calls):
            tree = _Reading(procedure).visit(tree)
    return ast.fix_missing_locations(tree)


class _Procedure:
    """An inner function that returns nothing."""

    def __init__(self, helper: ast.FunctionDef, body: list[ast.stmt], calls: list[ast.Call], taken: set[str]):
        self.helper = helper
        self.calls = calls
        self.body = body
        self._taken = taken
        self._outside = {name for node in ast.walk(helper) if isinstance(node, ast.Nonlocal) for name in node.names}
        self._bound = _bound(body) - self._outside
        self._changed = _changed(body)
        self._parameters = [arg.arg for arg in helper.args.args]

    @classmethod
    def of(cls, helper: ast.FunctionDef, tree: ast.FunctionDef) -> _Procedure | None:
        spec = helper.args
        if helper.decorator_list or spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs:
            return None
        kinds = (ast.FunctionDef, ast.Lambda, ast.Yield, ast.YieldFrom, ast.Global, ast.ClassDef)
        inside = [node for one in helper.body for node in ast.walk(one)]
        if any(isinstance(node, kinds) for node in inside):
            return None
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == helper.name]
        statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        calls = [one for one in statements if isinstance(one, ast.Call) and ast.unparse(one.func) == helper.name]
        called = {id(call.func) for call in calls}
        body = _without_returns(helper.body)
        if body is None or not uses or any(id(node) not in called for node in uses):
            return None
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return cls(helper, body, calls, names | {arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg)})

    def statements(self, call: ast.Call) -> list[ast.stmt] | None:
        """What a call does; None: its arguments do not fit."""
        given = self._given(call)
        if given is None:
            return None
        names: dict[str, str] = {}
        done: list[ast.stmt] = []
        for parameter, value in given.items():
            # A list that is handed over and changed is the caller's.
            if isinstance(value, ast.Name) and parameter not in self._bound and value.id not in self._outside:
                names[parameter] = value.id
                continue
            if parameter in self._changed:
                return None
            names[parameter] = self._fresh(parameter)
            done.append(ast.copy_location(ast.Assign([ast.Name(names[parameter], ast.Store())], value), call))
        for name in self._bound - set(given):
            names[name] = self._fresh(name)
        return [*done, *(_Renaming(names).visit(copy.deepcopy(one)) for one in self.body)]

    def _given(self, call: ast.Call) -> dict[str, ast.expr] | None:
        if any(isinstance(one, ast.Starred) for one in call.args) or any(word.arg is None for word in call.keywords):
            return None
        defaults = self.helper.args.defaults
        given = dict(zip(self._parameters[len(self._parameters) - len(defaults) :], defaults, strict=True))
        given |= dict(zip(self._parameters, call.args, strict=False))
        given |= {str(word.arg): word.value for word in call.keywords}
        fits = len(call.args) <= len(self._parameters) and set(given) == set(self._parameters)
        return {name: given[name] for name in self._parameters} if fits else None

    def _fresh(self, name: str) -> str:
        made = f"{name}_in_{self.helper.name}"
        while made in self._taken:
            made += "_"
        return made


def _bound(body: list[ast.stmt]) -> set[str]:
    """The names that statements assign, those of comprehensions included."""
    nodes = [node for one in body for node in ast.walk(one)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _changed(body: list[ast.stmt]) -> set[str]:
    """The names of lists, dicts and objects that statements may change."""
    found: set[str] = set()
    for node in (node for one in body for node in ast.walk(one)):
        is_written = isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
        is_method = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if is_written or is_method:
            root = node.value.func if is_method else node  # type: ignore[attr-defined]
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            found |= {root.id} if isinstance(root, ast.Name) else set()
    return found


def _without_returns(body: list[ast.stmt]) -> list[ast.stmt] | None:
    """Statements in which `if c: return` skips the rest by a branch; None: they return something, or elsewhere."""
    made: list[ast.stmt] = []
    for at, one in enumerate(body):
        if isinstance(one, ast.Return):
            return made if one.value is None or ast.unparse(one.value) == "None" else None
        if isinstance(one, ast.If) and not one.orelse and len(one.body) == 1 and isinstance(one.body[0], ast.Return):
            rest = _without_returns(body[at + 1 :])
            if rest is None or _without_returns(one.body) is None:
                return None
            opposite = ast.copy_location(ast.UnaryOp(ast.Not(), one.test), one.test)
            return [*made, ast.copy_location(ast.If(opposite, rest or [ast.Pass()], []), one)]
        if any(isinstance(node, ast.Return) for node in ast.walk(one)):
            return None
        if not isinstance(one, ast.Nonlocal):
            made.append(one)
    return made


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        node.id = self._names.get(node.id, node.id)
        return node


class _Reading(ast.NodeTransformer):
    def __init__(self, procedure: _Procedure):
        self._procedure = procedure

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt | None:
        if node is self._procedure.helper:
            return None
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return node
        if call.func.id != self._procedure.helper.name:
            return node
        return self._procedure.statements(call) or ast.copy_location(ast.Pass(), node)
