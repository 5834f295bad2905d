"""Reads a loss statement by statement, with arrays in place of loops, and builds the array program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import (
    Axis,
    Host,
    Items,
    Known,
    Listing,
    Local,
    Refused,
    Splice,
    Stream,
    Sum,
    Tensor,
)
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.calls import attributes, calls, host_calls, ordering, python_calls
from flatout.vectorize.calls.reader import Handler

from . import bindings
from . import evaluation as expressions
from .branches import Branching, Masked
from .entries import masked_entries
from .folds import HANDLERS as FOLDS
from .iterated_axes import stream
from .iterating import HANDLERS as ITERATING
from .loop_statements import Looping
from .loop_totals import assigned_names, join, over_axes
from .scopes import Scope, as_local, check_decorators

_DEEPEST = 12
# How a value is named that was not made in the function.
_HELD = ("name", "attribute", "index")
_NO_GRADIENT = ("torch.no_grad", "torch.autograd.grad_mode.no_grad", "torch.utils._contextlib.no_grad")
_NAMING = ("tensorflow.name_scope", "keras.name_scope", "keras.ops.name_scope", "keras.backend.name_scope")


class _Returned(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class Interpreter(Branching, Looping):
    """Runs the statements of a function on lifted values."""

    handlers: Mapping[str, Handler] = {**python_calls.HANDLERS, **host_calls.HANDLERS, **ITERATING, **FOLDS}

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
        if spec.kwarg or spec.posonlyargs:
            raise Refused(f"{local.label!r} takes a varying number of arguments.")
        names = [arg.arg for arg in spec.args]
        if spec.vararg:
            scope.variables[spec.vararg.arg] = Items(tuple(args[len(names) :]))
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
        return Known(None, self.lift.graph.const(None))

    def _branching_return(self, statement: ast.If, rest: list[ast.stmt], scope: Scope) -> Any:
        """`if c: return a` and what follows: both values, and the condition decides."""
        condition = self.condition(statement.test, scope)
        if isinstance(condition, bool):
            return self.block_value([*(statement.body if condition else statement.orelse), *rest], scope)
        if self._loops > self._outer_loops:
            raise Refused("The function returns from inside a loop: early exit.", "FO101", statement.lineno)
        if isinstance(condition, Tensor):
            self.lift.changes.add("FO202")
        results: list[Any] = []
        for body in ([*statement.body, *rest], [*statement.orelse, *rest]):
            inside = Scope(dict(scope.variables), scope.parent, scope.outside, scope.is_root)
            opposite = len(results) == 1
            with Masked(self.lift, self.inverse(condition) if opposite else condition):
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
                if isinstance(old, Known) and old.node.kind in _HELD and _changes_in_place(old.value):
                    raise Refused(f"Something outside the function is changed: {ast.unparse(node)}", "FO303")
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
                none = Known(None, self.lift.graph.const(None))
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
            case ast.With():
                self._with(node, scope)
            case ast.Import() | ast.ImportFrom():
                bindings.bring_in(self, node, scope)
            case ast.Assert():
                self._assert(node, scope)
            case ast.Break():
                raise Refused("A loop ends early (break): how many steps it takes depends on the data.", "FO101")
            case ast.Global() | ast.Nonlocal():
                raise Refused(f"A variable outside the function is changed: {', '.join(node.names)}.", "FO303")
            case _:
                raise Refused(f"A statement that cannot be lifted: {type(node).__name__.lower()}.")

    def _with(self, node: ast.With, scope: Scope) -> None:
        """`with torch.no_grad():`, whose variables have no gradient, and `with tf.name_scope(...):`."""
        paths = [self._entered(item, scope) for item in node.items]
        if not set(paths) <= {*_NO_GRADIENT, *_NAMING} or _returns(node):
            raise Refused("A statement that cannot be lifted: with.")
        for statement in node.body:
            self.statement(statement, scope)
        for name in assigned_names(node.body) if set(paths) & set(_NO_GRADIENT) else ():
            value = scope.variables.get(name)
            if isinstance(value, Tensor):
                scope.variables[name] = attributes.detached(self.lift, value)
            elif not isinstance(value, (Host, Known)):
                raise Refused(f"{name!r} is filled where no gradient is kept.", "FO101")

    def _entered(self, item: ast.withitem, scope: Scope) -> str | None:
        call = item.context_expr
        if not isinstance(call, ast.Call) or item.optional_vars is not None:
            return None
        return calls.path_to(self.expression(call.func, scope))

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
            if name == "sort" and isinstance(target, ast.Name) and not node.args:
                held = scope.find(target.id, self.lift.graph, self.injected)
                if isinstance(held, (Items, Listing)):
                    words = {word.arg: self.expression(word.value, scope) for word in node.keywords if word.arg}
                    self.assign(target, ordering.sorted_values(self, [held], words), scope)
                    return
        if calls.is_log(self.expression, node, scope):
            if self._loops:
                raise Refused("Something is printed or logged at every step of a loop.", "FO203")
            self.lift.changes.add("FO203")
            self.lift.note(f"Left out, because it needs a value on the host at every step: {ast.unparse(node)}")
            return
        value = self.expression(node, scope)
        if not (isinstance(value, Known) and value.value is None):
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
                for one, part in bindings.paired(self, target.elts, value):
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
        slot = self._slot(target.slice, scope)
        if isinstance(held, Sum) and held.how is None and slot:
            scope.variables[name] = Sum(held.name, "list", (value,), slot=slot)
            return
        if isinstance(held, Tensor) and held.node.kind not in _HELD and not _is_shared(held, scope):
            mask = None if isinstance(target.slice, (ast.Slice, ast.Tuple)) else self.expression(target.slice, scope)
            chosen = None if mask is None else masked_entries(self.lift, held, mask, value)
            if chosen is not None:
                scope.variables[name] = chosen
                return
        raise Refused(f"An entry is changed: {ast.unparse(target)}", "FO106" if held is not None else "FO303")

    def _slot(self, at: ast.expr, scope: Scope) -> tuple[Axis | None, ...]:
        """Which loops' variables say where an entry goes; None for `:`. Empty: it goes where the data say."""
        slot: list[Axis | None] = []
        for part in at.elts if isinstance(at, ast.Tuple) else [at]:
            if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                slot.append(None)
                continue
            place = None if isinstance(part, ast.Slice) else self.expression(part, scope)
            if not isinstance(place, Tensor) or not place.position or place.position[1]:
                return ()
            slot.append(place.position[0])
        axes = [axis for axis in slot if axis is not None]
        return tuple(slot) if axes and len(set(axes)) == len(axes) else ()

    def expression(self, node: ast.expr, scope: Scope) -> Any:
        return expressions.evaluate(self, node, scope)

    def users_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return self.function(as_local(function, function.__globals__ is self.globals), args, kwargs)

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Any:
        return calls.apply(self, function, calls.path_to(function), args, kwargs or {})

    def stream(self, value: Any) -> Stream | Items:
        return stream(self.lift, value)

    def each_step(self, flow: Stream, body: Callable[[], Any]) -> Any:
        self._loops += 1
        try:
            with Masked(self.lift, flow.keep):
                return body()
        finally:
            self._loops -= 1

    def over_steps(self, how: str, term: Tensor, flow: Stream) -> Tensor:
        return over_axes(self.lift, how, term, flow)

    def join(self, how: str, left: Any, right: Any) -> Any:
        return join(self.lift, how, left, right)

    def made_once(self, wish: str, value: Any, node: Node) -> Known:
        name = f"_{wish}_{len(self.injected)}"
        self.injected[name] = value
        self.hoisted[name] = node
        return Known(value, self.lift.graph.name(name))


def _returns(statement: ast.If | ast.With) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))


def _is_shared(held: Tensor, scope: Scope) -> bool:
    """Whether another variable holds the same array, or a part of it, and would change with it."""
    return sum(getattr(one, "node", None) is held.node for one in scope.variables.values()) > 1


def _changes_in_place(value: Any) -> bool:
    """Whether `value += x` or `value |= x` changes the value, as that of a list, dict, array of NumPy or torch does."""
    return any(hasattr(type(value), name) for name in ("__iadd__", "__ior__"))
