"""Reads a loss statement by statement, with arrays in place of loops, and builds the array program."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from . import calls, expressions
from .algebra import Lifting, both, elementwise, named, number, operand, where
from .loops import MOST_UNROLLED, Splice, Stream, assigned_names, finished, join, stream, variable
from .scopes import Scope, check_decorators
from .shelter import sheltered
from .values import (  # fmt: skip
    Axis,
    Host,
    Items,
    Listing,
    Local,
    Method,
    Range,
    Refused,
    Row,
    Static,
    Sum,
    Tensor,
    Unknown,
    WrongRank,
)

_DEEPEST = 12


class _Returned(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class Interpreter:
    """Runs the statements of a function on lifted values."""

    def __init__(self, lift: Lifting, module_globals: Any = None) -> None:
        self.lift = lift
        self.globals = module_globals
        # Objects that the rewritten source needs beside the user's globals, and which of them are made once, and how.
        self.injected: dict[str, Any] = {}
        self.hoisted: dict[str, Any] = {}
        self._depth = 0
        self._loops = 0
        # How many of the loops are around the call of the function that is read now.
        self._outer_loops = 0

    def function(self, local: Local, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The value of a user's function, read in place."""
        if self._depth > _DEEPEST:
            raise Refused(f"{local.label!r} calls itself, or functions are nested too deeply.")
        scope = Scope(parent=local.scope)
        self._bind(local, scope, args, kwargs)
        self._depth += 1
        outer, self._outer_loops = self._outer_loops, self._loops
        try:
            if isinstance(local.tree, ast.Lambda):
                return self.expression(local.tree.body, scope)
            return self.block_value(local.tree.body, scope)
        finally:
            self._depth -= 1
            self._outer_loops = outer

    def _bind(self, local: Local, scope: Scope, args: list[Any], kwargs: dict[str, Any]) -> None:
        spec = local.tree.args
        if spec.vararg or spec.kwarg or spec.posonlyargs:
            raise Refused(f"{local.label!r} takes a varying number of arguments.")
        names = [arg.arg for arg in spec.args]
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in (*names, *(arg.arg for arg in spec.kwonlyargs)):
            if name in given:
                scope.variables[name] = given[name]
            elif name in defaults:
                scope.variables[name] = self.expression(defaults[name], local.scope)
            else:
                raise Refused(f"{local.label!r} is called without its argument {name!r}.")

    def block_value(self, body: list[ast.stmt], scope: Scope) -> Any:
        """What a function's body returns."""
        for at, statement in enumerate(body):
            if isinstance(statement, ast.If) and _returns(statement):
                return self._branching_return(statement, body[at + 1 :], scope)
            try:
                self.statement(statement, scope)
            except _Returned as returned:
                return returned.value
        return Static(None, self.lift.graph.const(None))

    def _branching_return(self, statement: ast.If, rest: list[ast.stmt], scope: Scope) -> Any:
        """`if c: return a` and what follows: both values, and the condition decides."""
        condition = self.truth(self.expression(statement.test, scope))
        if isinstance(condition, bool):
            return self.block_value([*(statement.body if condition else statement.orelse), *rest], scope)
        if self._loops > self._outer_loops:
            raise Refused("The function returns from inside a loop: early exit.", "FO101", statement.lineno)
        results: list[Any] = []
        for body in ([*statement.body, *rest], [*statement.orelse, *rest]):
            inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
            opposite = len(results) == 1
            with _Masked(self.lift, self.inverse(condition) if opposite else condition):
                results.append(self.block_value(body, inside))
        return self.choose(condition, *results)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        try:
            self._statement(node, scope)
        except Refused as refused:
            if refused.line is None:
                refused.line = getattr(node, "lineno", None)
            raise

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign():
                value = self.expression(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign(value=ast.expr()):
                assert node.value is not None
                self.assign(node.target, self.expression(node.value, scope), scope)
            case ast.AugAssign():
                load = ast.parse(ast.unparse(node.target), mode="eval").body
                old = self.expression(load, scope)
                value = self.expression(node.value, scope)
                if (
                    isinstance(old, (Items, Sum))
                    and isinstance(value, (Items, Listing))
                    and isinstance(node.op, ast.Add)
                ):
                    self.assign(node.target, self._appended(old, value, node.target), scope)
                else:
                    self.assign(node.target, expressions.operate(self, node.op, old, value), scope)
            case ast.Return():
                if self._loops > self._outer_loops:
                    raise Refused("The function returns from inside a loop: early exit.", "FO101")
                none = Static(None, self.lift.graph.const(None))
                raise _Returned(self.expression(node.value, scope) if node.value else none)
            case ast.For():
                self._for(node, scope)
            case ast.While():
                self._while(node, scope)
            case ast.If():
                self._if(node, scope)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.AnnAssign():
                pass
            case ast.Expr():
                self._expression_statement(node.value, scope)
            case ast.FunctionDef():
                check_decorators(node)
                scope.variables[node.name] = Local(node, scope, node.name)
            case ast.Import() | ast.ImportFrom():
                expressions.bring_in(self, node, scope)
            case ast.Assert():
                self._assert(node, scope)
            case ast.Break():
                raise Refused("A loop ends early (break): how many steps it takes depends on the data.", "FO101")
            case ast.Global() | ast.Nonlocal():
                raise Refused(f"A variable outside the function is changed: {', '.join(node.names)}.", "FO303")
            case _:
                raise Refused(f"A statement that cannot be lifted: {type(node).__name__.lower()}.")

    def _assert(self, node: ast.Assert, scope: Scope) -> None:
        if self._loops:
            raise Refused("Something is asserted at every step of a loop.", "FO203")
        self.lift.changes.add("FO203")
        self.lift.note(f"Left out: {ast.unparse(node)}")

    def _expression_statement(self, node: ast.expr, scope: Scope) -> None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            target = node.func.value
            if name in ("append", "extend", "write") and isinstance(target, ast.Name):
                held = scope.find(target.id, self.lift.graph, self.injected)
                if isinstance(held, (Items, Sum, Listing)) and name != "write":
                    value = self.expression(node.args[0], scope)
                    added = Items((value,)) if name == "append" else value
                    self.assign(target, self._appended(held, added, target), scope)
                    return
        if calls.is_log(self, node, scope):
            if self._loops:
                raise Refused("Something is printed or logged at every step of a loop.", "FO203")
            self.lift.changes.add("FO203")
            self.lift.note(f"Left out, because it needs a value on the host at every step: {ast.unparse(node)}")
            return
        value = self.expression(node, scope)
        if not (isinstance(value, Static) and value.value is None):
            raise Refused(f"A call is made for its effect: {ast.unparse(node)}", "FO303")

    def _appended(self, held: Any, added: Any, target: ast.expr) -> Any:
        if isinstance(held, Items) and isinstance(added, Items):
            return Items((*held.values, *added.values), True)
        if isinstance(held, Items) and isinstance(added, Listing) and not held.values:
            return added
        if isinstance(held, Sum) and held.how in (None, "list") and not held.terms:
            if isinstance(added, Items) and len(added.values) == 1:
                return Sum(held.name, "list", (added.values[0],))
            if isinstance(added, Listing):
                return Sum(held.name, "list", (Splice(added),))
        raise Refused(f"The list {ast.unparse(target)!r} is filled in a way that has no array form.", "FO106")

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope.variables[target.id] = value
                node = getattr(value, "node", None)
                if (
                    isinstance(value, (Tensor, Host))
                    and node is not None
                    and node.kind not in ("name", "const", "size")
                ):
                    self.lift.graph.names.setdefault(node, target.id)
            case ast.Tuple() | ast.List():
                for one, part in expressions.paired(self, target.elts, value):
                    self.assign(one, part, scope)
            case ast.Subscript(value=ast.Name()):
                self._assign_entry(target, value, scope)
            case _:
                names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
                is_own = isinstance(target, ast.Subscript) and any(name in scope.variables for name in names)
                code = "FO106" if is_own else "FO303"
                raise Refused(f"An attribute or entry is changed: {ast.unparse(target)}", code)

    def _assign_entry(self, target: ast.Subscript, value: Any, scope: Scope) -> None:
        assert isinstance(target.value, ast.Name)
        name = target.value.id
        held = scope.variables.get(name)
        at = self.expression(target.slice, scope)
        if (
            isinstance(held, Sum)
            and held.how is None
            and isinstance(at, Tensor)
            and at.position
            and at.position[1] == 0
        ):
            scope.variables[name] = Sum(held.name, "list", (value,), slot=at.position[0])
            return
        raise Refused(f"An entry is changed: {ast.unparse(target)}", "FO106" if held is not None else "FO303")

    def _for(self, node: ast.For, scope: Scope) -> None:
        if node.orelse:
            raise Refused("A loop has an else branch: early exit.")
        over = self.expression(node.iter, scope)
        self.loop(over, node.target, node.body, scope)

    def _while(self, node: ast.While, scope: Scope) -> None:
        """`while i < n: ...; i += 1` is `for i in range(i, n)`."""
        name, stop, body = expressions.counted(self, node, scope)
        start = scope.variables[name]
        self.loop(Range(start, stop), ast.Name(name, ast.Store()), body, scope)
        scope.variables[name] = Unknown(f"The counter {name!r} is read behind its loop.")

    def loop(self, over: Any, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        body = _without_continue(body)
        before = dict(scope.variables)
        try:
            flow = stream(self.lift, over)
            if isinstance(flow, Stream):
                self._lifted(flow, over, target, body, scope)
                return
        except WrongRank:
            raise
        except Refused as refused:
            steps = expressions.few_steps(self, over, MOST_UNROLLED)
            if steps is None:
                raise refused
            scope.variables.clear()
            scope.variables.update(before)
            flow = Items(tuple(steps))
        if len(flow.values) > MOST_UNROLLED:
            raise Refused(f"A loop over {len(flow.values)} values of different kinds.", "FO104")
        for item in flow.values:
            self.assign(target, item, scope)
            for statement in body:
                self.statement(statement, scope)

    def _lifted(self, flow: Stream, over: Any, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        if is_pending(flow):
            trial = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
            flow = self.bounded(flow, over, lambda: self._pass(flow, target, body, trial))
        self.lift.changes.add("FO101")
        before = dict(scope.variables)
        self._pass(flow, target, body, scope)
        for name in assigned_names(body):
            if name in before:
                scope.variables[name] = finished(self.lift, before[name], scope.variables[name], name, flow)
            elif name in scope.variables:
                scope.variables[name] = _outlived(scope.variables[name], name, flow)
        for part in ast.walk(target):
            if isinstance(part, ast.Name):
                scope.variables[part.id] = Unknown(f"{part.id!r} is read behind its loop.")

    def bounded(self, flow: Stream, over: Any, trial: Any) -> Stream:
        """The steps of a range with a bound from the data: a trial shows which array its variable indexes."""
        (axis,) = flow.axes
        trial()
        if is_pending(flow) or not isinstance(over, Range):
            raise Refused("The number of steps depends on the data, and no array bounds it.", "FO104")
        size = axis.size
        if axis.start is not None:
            size = self.lift.graph.binary("-", size, axis.start)  # type: ignore[arg-type]
        return _bounded(self.lift, axis.start, size, over)

    def _pass(self, flow: Stream, target: ast.expr, body: list[ast.stmt], scope: Scope) -> None:
        """The body, once, for all steps."""
        for name in assigned_names(body):
            if name in scope.variables and not isinstance(scope.variables[name], (Local, Unknown)):
                scope.variables[name] = Sum(name)
        self.assign(target, flow.element, scope)
        self._loops += 1
        try:
            with _Masked(self.lift, flow.keep):
                for statement in body:
                    self.statement(statement, scope)
        finally:
            self._loops -= 1

    def _if(self, node: ast.If, scope: Scope) -> None:
        condition = self.truth(self.expression(node.test, scope))
        if isinstance(condition, bool):
            for statement in node.body if condition else node.orelse:
                self.statement(statement, scope)
            return
        if isinstance(condition, Tensor):
            self.lift.changes.add("FO202")
        sides = []
        for body, test in ((node.body, condition), (node.orelse, self.inverse(condition))):
            inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
            with _Masked(self.lift, test):
                for statement in body:
                    self.statement(statement, inside)
            sides.append(inside.variables)
        then, otherwise = sides
        for name in {*then, *otherwise}:
            left, right = then.get(name), otherwise.get(name)
            if left is right:
                scope.variables[name] = left
            elif left is None or right is None:
                scope.variables[name] = Unknown(f"{name!r} has a value on one side of a branch only.", "FO202")
            else:
                scope.variables[name] = self.choose(condition, left, right)

    def inverse(self, condition: Any) -> Any:
        if isinstance(condition, Tensor):
            return elementwise(self.lift, "logical_not", (condition,), "bool")
        return Host(self.lift.graph.make("invert", condition.node))

    def choose(self, condition: Any, left: Any, right: Any) -> Any:
        """What a variable is behind a branch."""
        lift = self.lift
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return left if isinstance(left, Unknown) else right
        if isinstance(left, Sum) or isinstance(right, Sum):
            return self._choose_terms(condition, left, right)
        if isinstance(left, Items) and isinstance(right, Items) and len(left.values) == len(right.values):
            pairs = zip(left.values, right.values, strict=True)
            return Items(tuple(self.choose(condition, a, b) for a, b in pairs), left.is_list)
        if isinstance(condition, Host):
            if all(isinstance(side, (Host, Static)) for side in (left, right)):
                return Host(lift.graph.make("ifexp", condition.node, left.node, right.node))
            left, right = operand(lift, left), operand(lift, right)
            node = lift.graph.make("ifexp", condition.node, left.node, right.node)
            if left.dims and right.dims and left.dims != right.dims:
                raise Refused("A branch on the shape gives arrays of different dimensions.", "FO202")
            return replace(left if left.dims else right, node=node, position=None)
        if isinstance(left, Static) and isinstance(right, Static) and left.value is right.value:
            return left
        for side in (left, right):
            if isinstance(side, (Listing, Row, Method)):
                raise Refused("A list is chosen by a tensor's value.", "FO202")
        a = sheltered(lift, condition, operand(lift, left))
        b = sheltered(lift, self.inverse(condition), operand(lift, right))
        if a.rank == b.rank:
            return where(lift, named(condition) if not condition.rank else condition, a, b)
        return where(lift, condition, a, b)

    def _choose_terms(self, condition: Any, left: Any, right: Any) -> Any:
        if not (isinstance(left, Sum) and isinstance(right, Sum)) or left.name != right.name:
            raise Refused("A variable that a loop carries is replaced on one side of a branch.", "FO106")
        common = 0
        while common < min(len(left.terms), len(right.terms)) and left.terms[common] is right.terms[common]:
            common += 1
        how = left.how or right.how
        if how is None or (left.how and right.how and left.how != right.how):
            raise Refused(f"{left.name!r} is carried from step to step in more than one way.", "FO106")
        terms = list(left.terms[:common])
        for side, test in ((left, condition), (right, self.inverse(condition))):
            terms += [self._when(test, how, term) for term in side.terms[common:]]
        return Sum(left.name, how, tuple(terms))

    def _when(self, test: Any, how: str, term: Any) -> Any:
        """A term that counts where a condition holds."""
        if how == "list":
            if not isinstance(test, Tensor):
                raise Refused("Whether a list gets an element depends on the shape.", "FO202")
            if isinstance(term, Splice):
                inside = term.listing
                return Splice(Listing(inside.element, inside.axes, both(self.lift, inside.keep, test)))
            return Splice(Listing(term, (), test))
        neutral = number(self.lift, {"sum": 0.0, "prod": 1.0, "max": -1e30, "min": 1e30}[how])
        if isinstance(test, Host):
            return self.choose(test, term, neutral)
        part = sheltered(self.lift, test, operand(self.lift, term))
        return replace(where(self.lift, named(test), named(part), neutral), inner=part.inner, is_host=part.is_host)

    def truth(self, value: Any) -> Any:
        """A condition: True or False if known now, else a Host or a Tensor of booleans."""
        return expressions.truth(self, value)

    def expression(self, node: ast.expr, scope: Scope) -> Any:
        return expressions.evaluate(self, node, scope)

    def join(self, how: str, left: Any, right: Any) -> Any:
        return join(self.lift, how, left, right)


class _Masked:
    """Statements that run where a condition holds."""

    def __init__(self, lift: Lifting, condition: Any):
        self._lift = lift
        self._condition = condition if isinstance(condition, Tensor) else None

    def __enter__(self) -> None:
        if self._condition is not None:
            self._lift.masks.append(self._condition)

    def __exit__(self, *_: Any) -> None:
        if self._condition is not None:
            self._lift.masks.pop()


def is_pending(flow: Stream) -> bool:
    return any(axis.size is not None and axis.size.kind == "pending" for axis in flow.axes)


def _bounded(lift: Lifting, start: Any, size: Any, over: Range) -> Stream:
    """The steps of a range with a bound from the data, as all steps that an array allows and a mask."""
    axis = Axis("i", size, start)
    at = variable(lift, axis)
    keep = elementwise(lift, "less", (at, over.stop), "bool", "<")
    if isinstance(over.start, Tensor):
        later = elementwise(lift, "greater_equal", (at, over.start), "bool", ">=")
        keep = elementwise(lift, "logical_and", (keep, later), "bool")
    return Stream((axis,), at, keep)


def _outlived(value: Any, name: str, flow: Stream) -> Any:
    if isinstance(value, Local) or (isinstance(value, Tensor) and not set(value.dims) & set(flow.axes)):
        return value
    if isinstance(value, (Host, Static)):
        return value
    return Unknown(f"{name!r} is read behind a loop: the value of the last step.")


def _returns(statement: ast.If) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def _without_continue(body: list[ast.stmt]) -> list[ast.stmt]:
    """`if c: ...; continue` and what follows, as `if c: ... else: what follows`."""
    for at, statement in enumerate(body):
        if isinstance(statement, ast.Continue):
            return body[:at]
        if isinstance(statement, ast.If) and statement.body and isinstance(statement.body[-1], ast.Continue):
            then = statement.body[:-1] or [ast.Pass()]
            rest = _without_continue([*statement.orelse, *body[at + 1 :]])
            made = ast.If(statement.test, then, rest)
            return [*body[:at], ast.copy_location(made, statement)]
    if any(isinstance(node, ast.Continue) for statement in body for node in _own(statement)):
        raise Refused("A step of a loop is skipped from inside nested branches.")
    return body


def _own(statement: ast.stmt) -> list[ast.AST]:
    """The nodes of a statement, without those of loops inside it."""
    if isinstance(statement, (ast.For, ast.While)):
        return []
    found: list[ast.AST] = [statement]
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.For, ast.While)):
            found += _own(child)  # type: ignore[arg-type]
    return found
