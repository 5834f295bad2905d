"""Reads a loss statement by statement, with arrays in place of loops, and builds the array program."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flatout.pysource.trees import defaults
from flatout.vectorize.arrays.algebra import detached
from flatout.vectorize.arrays.expression_graph import Node
from flatout.vectorize.arrays.lifted_values import Host, Items, Known, Listing, Local, Refused, Tensor
from flatout.vectorize.arrays.lifting import Lifting
from flatout.vectorize.calls import calls, host_calls, python_calls
from flatout.vectorize.calls.reader import Handler
from flatout.vectorize.reading.function_source import check_decorators

from . import evaluation as expressions
from . import heap, heap_access
from .heap import Heap, read
from .library_loops import HANDLERS as LOOPS
from .loop_statements import for_statement, while_statement
from .scopes import Scope, as_local
from .state_changes import Changing

_DEEPEST = 12
# The list of what a generator has yielded, as a variable of it.
_YIELDED = "<yielded>"
_NO_GRADIENT = ("torch.no_grad", "torch.autograd.grad_mode.no_grad", "torch.utils._contextlib.no_grad")
_NAMING = ("tensorflow.name_scope", "keras.name_scope", "keras.ops.name_scope", "keras.backend.name_scope")


class _Returned(Exception):
    def __init__(self, value: Any):
        super().__init__()
        self.value = value


class Interpreter(Changing):
    """Runs the statements of a function on lifted values."""

    # Functions that are no plain function of arrays, by their dotted names.
    handlers: Mapping[str, Handler] = {**python_calls.HANDLERS, **host_calls.HANDLERS, **LOOPS}
    # The value of an expression, with the identity of what may be changed.
    reference = expressions.evaluate
    compared = expressions.compared
    truth = expressions.truth
    heap_method = heap_access.method

    def __init__(self, lift: Lifting, module_globals: Any = None) -> None:
        self.lift = lift
        self.globals = module_globals
        # Objects that the rewritten source needs beside the user's globals, and which of them are made once, and how.
        self.injected: dict[str, Any] = {}
        self.hoisted: dict[str, Any] = {}
        self.heap = Heap()
        self._depth = 0
        self.loops = 0
        # How many of the loops are around the call of the function that is read now.
        self._outer_loops = 0

    def function(self, local: Local, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The value of a user's function, read in place."""
        if self._depth > _DEEPEST:
            raise Refused(f"{local.label!r} calls itself, or functions are nested too deeply.")
        scope = Scope(parent=local.scope)
        self.heap.add(scope)
        self._bind(local, scope, args, kwargs)
        self._depth += 1
        outer, self._outer_loops = self._outer_loops, self.loops
        try:
            if isinstance(local.tree, ast.Lambda):
                return self.reference(local.tree.body, scope)
            kinds = {type(part) for one in local.tree.body for part in ast.walk(one)}
            if not kinds & {ast.Yield, ast.YieldFrom} or kinds & {ast.Return, ast.FunctionDef, ast.Lambda}:
                return self.block_value(local.tree.body, scope)
            scope.variables[_YIELDED] = self.heap.make("list", Items((), True))  # A generator, as what it yields.
            self.block_value(local.tree.body, scope)
            return scope.variables[_YIELDED]
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
        by_default = defaults(local.tree)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        for name in (*names, *(arg.arg for arg in spec.kwonlyargs)):
            if name in given:
                scope.variables[name] = given[name]
            elif name in by_default:
                scope.variables[name] = self.expression(by_default[name], local.scope)
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
        condition = expressions.condition(self, statement.test, scope)
        if isinstance(condition, bool):
            return self.block_value([*(statement.body if condition else statement.orelse), *rest], scope)
        if self.loops > self._outer_loops:
            raise Refused("The function returns from inside a loop: early exit.", "FO101", statement.lineno)
        bodies = ([*statement.body, *rest], [*statement.orelse, *rest])
        results = self.sides(condition, [partial(self.block_value, body, scope) for body in bodies], but=scope)
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
                value = self.reference(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign(value=ast.expr()):
                assert node.value is not None
                self.assign(node.target, self.reference(node.value, scope), scope)
            case ast.AugAssign():
                self.augmented(node, scope)
            case ast.Return():
                if self.loops > self._outer_loops:
                    raise Refused("The function returns from inside a loop: early exit.", "FO101")
                none = Known(None, self.lift.graph.const(None))
                raise _Returned(self.reference(node.value, scope) if node.value else none)
            case ast.For():
                for_statement(self, node, scope)
            case ast.While():
                while_statement(self, node, scope)
            case ast.If():
                self._if(node, scope)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.AnnAssign():
                pass
            case ast.Expr(value=ast.Yield(value=ast.expr() as given)) if _YIELDED in scope.variables:
                heap_access.extend(self, scope.variables[_YIELDED], Items((self.reference(given, scope),)))
            case ast.Expr(value=ast.YieldFrom(value=given)) if _YIELDED in scope.variables:
                heap_access.extend(self, scope.variables[_YIELDED], self.expression(given, scope))
            case ast.Expr() if calls.is_log(self.expression, node.value, scope):
                self._left_out(node, "printed or logged", ", because it needs a value on the host at every step")
            case ast.Expr():
                before = self.heap.snapshot()
                value = self.reference(node.value, scope)
                is_nothing = isinstance(value, Known) and value.value is None
                if not is_nothing and not self.heap.changed(before):
                    raise Refused(f"A call is made for its effect: {ast.unparse(node.value)}", "FO303")
            case ast.FunctionDef():
                check_decorators(node)
                scope.variables[node.name] = Local(node, scope, node.name)
            case ast.With():
                self._with(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._bring_in(node, scope)
            case ast.Assert():
                self._left_out(node, "asserted")
            case ast.Break():
                raise Refused("A loop ends early (break): how many steps it takes depends on the data.", "FO101")
            case ast.Nonlocal():
                scope.nonlocals |= {name: self._owner(scope, name) for name in node.names}
            case ast.Global():
                raise Refused(f"A variable outside the function is changed: {', '.join(node.names)}.", "FO303")
            case _:
                raise Refused(f"A statement that cannot be lifted: {type(node).__name__.lower()}.")

    def _bring_in(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module is None):
            raise Refused("A relative import inside the function.")
        brought: dict[str, Any] = {}
        exec(compile(ast.Module([node], []), "<import>", "exec"), brought)
        for alias in node.names:
            name = alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)
            value, path = brought[name], None
            if isinstance(node, ast.ImportFrom):
                path = value.__name__ if isinstance(value, types.ModuleType) else f"{node.module}.{alias.name}"
            self.injected.setdefault(name, value)
            scope.variables[name] = Known(value, self.lift.graph.name(name), path)

    def _owner(self, scope: Scope, name: str) -> Scope:
        """The scope around a function whose variable it changes."""
        around = scope.parent
        while around is not None:
            if name in around.variables:
                return around.nonlocals.get(name, around)
            around = around.parent
        raise Refused(f"A variable outside the function is changed: {name}.", "FO303")

    def _with(self, node: ast.With, scope: Scope) -> None:
        """`with torch.no_grad():`, whose variables have no gradient, and `with tf.name_scope(...):`."""
        paths = [
            calls.path_to(self.expression(item.context_expr.func, scope))
            for item in node.items
            if isinstance(item.context_expr, ast.Call) and item.optional_vars is None
        ]
        if len(paths) < len(node.items) or not set(paths) <= {*_NO_GRADIENT, *_NAMING} or _returns(node):
            raise Refused("A statement that cannot be lifted: with.")
        before = self.heap.snapshot()
        for statement in node.body:
            self.statement(statement, scope)
        for (space, cell), value in self.heap.changed(before).items() if set(paths) & set(_NO_GRADIENT) else ():
            if isinstance(value, Tensor):
                space.variables[cell] = detached(self.lift, value)
            elif not isinstance(value, (Host, Known)):
                raise Refused(f"{self.heap.label(space, cell)!r} is filled where no gradient is kept.", "FO101")

    def _left_out(self, node: ast.stmt, what: str, why: str = "") -> None:
        if self.loops:
            raise Refused(f"Something is {what} at every step of a loop.", "FO203")
        self.lift.changes.add("FO203")
        self.lift.note(f"Left out{why}: {ast.unparse(node)}")

    def expression(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression, for code that only looks at it."""
        return read(self, expressions.evaluate(self, node, scope))

    def users_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a function of the user's gives, which is read in place of being called."""
        return self.function(as_local(function, function.__globals__ is self.globals), args, kwargs)

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """What any lifted value gives that can be called."""
        return read(self, calls.apply(self, function, calls.path_to(function), args, kwargs or {}))

    def each_step(self, flow: Listing, body: Callable[[], Any]) -> Any:
        """What `body` gives for all steps of a loop at once."""
        self.loops += 1
        try:
            with self.lift.masked(flow.keep):
                return body()
        finally:
            self.loops -= 1

    def made_object(self, function: Known, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The list, dict or object that a call makes; None: it makes none that may be changed."""
        if isinstance(function.value, type) and (made := heap.instance(self, function.value, args, kwargs)):
            return made
        return heap.made_by(self, path, args, kwargs)

    def made_once(self, wish: str, value: Any, node: Node) -> Known:
        """A value that the rewrite makes once, and not at every call."""
        name = f"_{wish}_{len(self.injected)}"
        self.injected[name] = value
        self.hoisted[name] = node
        return Known(value, self.lift.graph.name(name))


def _returns(statement: ast.If | ast.With) -> bool:
    return any(isinstance(node, ast.Return) for node in ast.walk(statement))
