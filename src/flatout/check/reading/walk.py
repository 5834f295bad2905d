"""The walk through a function: statement after statement, into the functions that it calls, across files.

Nothing is run. Both sides of a branch are walked, the body of a loop twice, and what is known of a name is merged.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from flatout.check.values.abstract_values import (
    STATIC,
    UNKNOWN,
    AbstractValue,
    Bound,
    Class,
    Counter,
    External,
    Function,
    Instance,
    Size,
    Static,
    Tuple,
    merge_all,
    traced,
    traces_of,
)
from flatout.check.values.abstract_values import Sequence as ValueSequence
from flatout.check.values.names import Names
from flatout.check.values.operation_results import elementwise
from flatout.check.values.traces import ELEMENT, MIXED, Iteration, Slot, used
from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import LoopNode, defaults, dotted, parameters, target_names, walk

from .declarations import declare_class, declare_imports, declare_modules
from .events import Asserted, Decorated, Looped, Tested, WalkedLoop
from .expressions import Expressions
from .loop_domains import GROWING, counted, domain, element, test_on_top

_DEEPEST = 12
# Enough to see what a factory returns.
_DEEPEST_IN_SILENCE = 3
_MOST_CALLS = 3000
_LOGGING = ("print", "logging", "logger", "log")


class Walk(Expressions):
    """One examination of one function of the user."""

    # -- functions, classes, modules

    def run(
        self, function: Function, arguments: Sequence[AbstractValue], keywords: Mapping[str, AbstractValue]
    ) -> AbstractValue:
        """Walk through a call of a function of the user."""
        deepest = _DEEPEST if self.handlers else _DEEPEST_IN_SILENCE
        if function.node in self.running or len(self.running) > deepest or self.calls > _MOST_CALLS:
            return UNKNOWN
        if any("custom_" in decorator for decorator in function.decorators):
            # The user defined its gradient: what it gives is taken as a tensor, and its body is not ours to judge.
            for loop in self.loops:
                loop.has_own_gradient = True
            return elementwise(arguments)
        self.calls += 1
        names = Names({}, function.names)
        self._bind_parameters(function, arguments, keywords, names)
        for iteration in self.iterations:
            iteration.scopes.add(names)
        before, self.file = self.file, function.file
        returns, self.returns = self.returns, []
        self.running.append(function.node)
        self.scopes.append(names)
        try:
            if isinstance(function.node, ast.Lambda):
                self.returns.append((function.node.body, self.value(function.node.body, names)))
            else:
                self.block(function.node.body, names)
            found = [value for _, value in self.returns]
            if self.on_return is not None and len(self.running) == 1:
                self.on_return += self.returns
        finally:
            self.running.pop()
            self.scopes.pop()
            self.file, self.returns = before, returns
        return merge_all(found) if found else Static("none")

    def _bind_parameters(
        self,
        function: Function,
        arguments: Sequence[AbstractValue],
        keywords: Mapping[str, AbstractValue],
        names: Names,
    ) -> None:
        given = [function.owner, *arguments] if function.owner is not None else list(arguments)
        optional = defaults(function.node)
        positional = parameters(function.node)
        for at, name in enumerate(one.arg for one in (*positional, *function.node.args.kwonlyargs)):
            if at < min(len(given), len(positional)):
                names.values[name] = given[at]
            elif name in keywords:
                names.values[name] = keywords[name]
            elif name in optional:
                with self.silence():
                    names.values[name] = self.value(optional[name], function.names)
            else:
                names.values[name] = UNKNOWN
        if function.node.args.vararg:
            names.values[function.node.args.vararg.arg] = Tuple(tuple(given[len(positional) :]))
        if function.node.args.kwarg:
            names.values[function.node.args.kwarg.arg] = Static("dict")

    def create(self, of: Class, arguments: Sequence[AbstractValue], keywords: Mapping[str, AbstractValue]) -> Instance:
        """An object of a class of the user, with the attributes that its `__init__` sets."""
        is_fresh = self.making[-1].is_fresh if self.making else bool(self.running)
        instance = Instance(of, is_fresh=is_fresh)
        if method := self.method_of(of, "__init__"):
            self.making.append(instance)
            try:
                with self.silence():
                    self.run(method.bound(instance), arguments, keywords)
            finally:
                self.making.pop()
        return instance

    def method_of(self, of: Class, name: str) -> Function | None:
        """A method of a class or of a base class of the user."""
        if name in of.methods:
            found = of.methods[name]
            return found if isinstance(found, Function) else None
        bases = (self.method_of(base, name) for base in of.bases if isinstance(base, Class))
        return next(filter(None, bases), None)

    def load(self, file: SourceFile) -> Names:
        """The names of a module, found by walking through it once without reporting."""
        if "names" not in file.names:
            names = file.names["names"] = Names({"__file__": Static("text"), "__name__": Static("text")})
            before, self.file = self.file, file
            running, self.running, making, self.making = self.running, [], self.making, []
            try:
                with self.silence():
                    self.block(file.tree.body, names)
            finally:
                self.file, self.running, self.making = before, running, making
        found: Names = file.names["names"]
        return found

    def module_name(self, module: str, name: str) -> AbstractValue:
        """A name of another module of the user."""
        return self.load(self.project.file(Path(module))).get(name)

    # -- statements

    def block(self, body: Iterable[ast.stmt], names: Names) -> None:
        """Walk through statements, one after the other."""
        for statement in body:
            if found := self._BY_STATEMENT.get(type(statement)):
                found(self, statement, names)

    def _function(self, node: ast.FunctionDef, names: Names) -> None:
        decorators = tuple(dotted(one) or dotted(getattr(one, "func", None)) for one in node.decorator_list)
        function = names[node.name] = Function(node, self.file, names, None, node.name, decorators)
        if names.parent is not None and not self.reporting:
            self.made.append(function)
        for one in node.decorator_list if self.running else ():
            value = self.value(one, names)
            if isinstance(value, External):
                self.tell(Decorated(one, value.name))

    def _expression(self, node: ast.Expr, names: Names) -> None:
        if isinstance(node.value, ast.YieldFrom):
            self.returns.append((node.value, self.value(node.value.value, names)))
        elif isinstance(node.value, ast.Yield):
            # What a generator gives: as many as its loop has steps.
            given = self.value(node.value.value, names) if node.value.value else Static("none")
            self.shown(given)
            label = self.loops[-1].labels[0] if self.loops else STATIC
            self.returns.append((node.value, ValueSequence(given, label)))
        elif dotted(getattr(node.value, "func", None)).split(".")[0] in _LOGGING:
            self.value(node.value, names)
        else:
            self.shown(self.value(node.value, names))

    def _assign(self, node: ast.Assign, names: Names) -> None:
        value = self.value(node.value, names)
        self.updating = {one.attr for one in walk(node.value) if isinstance(one, ast.Attribute)}
        for target in node.targets:
            if isinstance(value, Function) and isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name):
                value = dataclasses.replace(value, name=target.id)
            self.assign(target, value, names)

    def _annotated(self, node: ast.AnnAssign, names: Names) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, names), names)

    def _return(self, node: ast.Return, names: Names) -> None:
        self.returns.append((node, self.value(node.value, names) if node.value else Static("none")))

    def _assert(self, node: ast.Assert, names: Names) -> None:
        self.tell(Asserted(node, self.test(node.test, names)))

    def _outside(self, node: ast.Global | ast.Nonlocal, names: Names) -> None:
        names.outside |= set(node.names)

    def _with(self, node: ast.With, names: Names) -> None:
        for item in node.items:
            value = self.value(item.context_expr, names)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, names)
        self.block(node.body, names)

    def _try(self, node: ast.Try | ast.TryStar, names: Names) -> None:
        handled = (statement for handler in node.handlers for statement in handler.body)
        self.block((*node.body, *handled, *node.orelse, *node.finalbody), names)

    def _match(self, node: ast.Match, names: Names) -> None:
        self.tell(Tested(node, self.value(node.subject, names)))
        for case in node.cases:
            self.block(case.body, names)

    def _if(self, node: ast.If, names: Names) -> None:
        self.tell(Tested(node, self.test(node.test, names), node.body))
        before = names.snapshot()
        settled = [set(one.settled) for one in self.iterations]
        self.branches += 1
        self.block(node.body, names)
        after = names.snapshot()
        names.values.clear()
        names.values.update(before)
        settled_there = [one.settled for one in self.iterations]
        for iteration, places in zip(self.iterations, settled, strict=True):
            iteration.settled = places
        self.block(node.orelse, names)
        self.branches -= 1
        names.join(after)
        for iteration, places in zip(self.iterations, settled_there, strict=True):
            iteration.settled &= places

    # -- loops

    def _for(self, node: ast.For, names: Names) -> None:
        iterated = self.value(node.iter, names)
        with self.looping(node, "for", node.iter, iterated, node.target) as loop:
            self._repeat(node, loop, names, node.target, iterated)
        self.block(node.orelse, names)

    def _while(self, node: ast.While, names: Names) -> None:
        counter, bound = counted(test_on_top(node))
        limit = self.value(bound, names) if bound is not None else UNKNOWN
        if counter is None or not isinstance(limit, (Size, Static, Counter)):
            self.tell(Tested(node, self.test(node.test, names), node.body))
        iterated: AbstractValue = Bound(limit) if counter is not None else UNKNOWN
        with self.looping(node, "while", bound if bound is not None else node.test, iterated) as loop:
            loop.variables = (counter,) if counter else ()
            if counter:
                names.values[counter] = Counter(loop.labels[0], id(loop))
            self._repeat(node, loop, names)
        if counter is None or isinstance(node.test, ast.BoolOp):
            # By now it is known what the body makes of the names in it.
            self.tell(Tested(node, self.test(node.test, names), node.body))

    def _repeat(self, node: LoopNode, loop: WalkedLoop, names: Names, *bound: Any) -> None:
        for _ in range(2):
            before = names.snapshot()
            with self.iteration(loop, names, *bound):
                self.block(node.body, names)
            names.join(before)

    @contextlib.contextmanager
    def looping(
        self, node: Any, how: str, over: ast.expr, iterated: AbstractValue, target: ast.expr | None = None
    ) -> Iterator[WalkedLoop]:
        """A loop: find its axis, and tell the rules of it in the end."""
        text = self.file.code(over) if self.reporting else ""
        found = domain(iterated, text)
        variables = tuple(target_names(target)) if target is not None else ()
        loop = WalkedLoop(
            node, self.file, found.labels, variables, how, text, found.length, found.direct, found.by_data
        )
        loop.whole = found.whole
        growing = [label for label in found.labels if label in GROWING]
        loop.pairs = len(growing) > len(set(growing))
        for outer in self.loops:
            if set(growing) & set(outer.labels):
                outer.paired = loop.pairs = loop.is_inner = True
        self.loops.append(loop)
        try:
            yield loop
        finally:
            self.loops.remove(loop)
        self.tell(Looped(loop))

    @contextlib.contextmanager
    def iteration(
        self, loop: WalkedLoop, names: Names, target: ast.expr | None = None, iterated: AbstractValue = UNKNOWN
    ) -> Iterator[Iteration]:
        """One walk through the body of a loop, which then knows what it carries."""
        found = Iteration()
        self.iterations.append(found)
        try:
            if target is not None:
                traces = {**used(traces_of(iterated)), (found, ELEMENT): MIXED}
                self.assign(target, traced(element(iterated, loop), traces), names)
            yield found
        finally:
            self.iterations.pop()
        loop.carries = tuple(dict.fromkeys(spelled(slot, names) for slot in found.carried()))

    _BY_STATEMENT: ClassVar[dict[type, Callable[[Any, Any, Names], None]]] = {
        ast.FunctionDef: _function,
        ast.ClassDef: declare_class,
        ast.Import: declare_modules,
        ast.ImportFrom: declare_imports,
        ast.Expr: _expression,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: Expressions.augmented,
        ast.Return: _return,
        ast.Assert: _assert,
        **dict.fromkeys((ast.Global, ast.Nonlocal), _outside),
        ast.If: _if,
        ast.For: _for,
        ast.While: _while,
        ast.With: _with,
        **dict.fromkeys((ast.Try, ast.TryStar), _try),
        ast.Match: _match,
    }


def spelled(slot: Slot, names: Names) -> str:
    """How a place is written where these names are known."""
    if not isinstance(slot.owner, Instance):
        return slot.name + slot.entry
    held = (name for scope in names.inside_out() for name, value in scope.values.items() if value is slot.owner)
    return f"{next(held, 'self')}.{slot.name}{slot.entry}"
