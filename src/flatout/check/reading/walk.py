"""The walk through a function: statement after statement, into the functions that it calls, across files.

Nothing is run. Both sides of a branch are walked, the body of a loop twice, and what is known of a name is merged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import libcst as cst

from flatout.pysource.carried import carried_names
from flatout.pysource.source_file import Project, SourceFile, dotted, walk

from .abstract_values import (
    STATIC,
    UNKNOWN,
    Bound,
    Class,
    Counter,
    External,
    Function,
    Instance,
    Sequence,
    Size,
    Static,
    Tuple,
    Value,
    merge,
)
from .assignments import Assignments
from .declarations import declare_class, declare_imports
from .events import Asserted, Decorated, Event, Handlers, Loop, Looped, Tested
from .loop_domains import GROWING, domain, element
from .names import Names
from .operation_results import elementwise
from .targets import counted, names_in

_DEEPEST = 12
# Enough to see what a factory returns.
_DEEPEST_IN_SILENCE = 3
_MOST_CALLS = 3000


class Walk(Assignments):
    """One examination of one function of the user."""

    def __init__(
        self, project: Project, file: SourceFile, handlers: list[Handlers], scene: Any, reporting: bool = True
    ):
        self.project = project
        self.file = file
        self.handlers = handlers
        self.scene = scene
        self.reporting = reporting
        self.loops: list[Loop] = []
        self.callback_depth = 0
        self.testing = False
        self._branches = 0
        self.returns: list[tuple[cst.CSTNode, Value]] = []
        # Functions and classes inside functions, as they are met; and the returns of the outermost function.
        self.made: list[Function] = []
        self.classes: list[Class] = []
        self.on_return: list[tuple[cst.CSTNode, Value]] | None = None
        # The attributes that the value being assigned was computed from.
        self._updating: set[str] = set()
        self._running: list[cst.CSTNode] = []
        self._scopes: list[Names] = []
        # The objects whose `__init__` is under way.
        self._making: list[Instance] = []
        self._calls = 0

    def tell(self, event: Event) -> None:
        """Hand an event to the rules."""
        if not self.reporting:
            return
        self.scene.file, self.scene.loops, self.scene.in_callback = self.file, self.loops, self.callback_depth > 0
        self.scene.in_branch = self._branches > 0
        for family in self.handlers:
            if handler := family.get(type(event)):
                handler(event, self.scene)

    # -- functions, classes, modules

    def run(self, function: Function, arguments: list[Value], keywords: Mapping[str, Value]) -> Value:
        """Walk through a call of a function of the user."""
        deepest = _DEEPEST if self.handlers else _DEEPEST_IN_SILENCE
        if function.node in self._running or len(self._running) > deepest or self._calls > _MOST_CALLS:
            return UNKNOWN
        if any("custom_" in decorator for decorator in function.decorators):
            # The user defined its gradient: what it gives is taken as a tensor, and its body is not ours to judge.
            for loop in self.loops:
                loop.has_own_gradient = True
            return elementwise(arguments)
        self._calls += 1
        names = Names({}, function.names)
        self._bind_parameters(function, arguments, keywords, names)
        before, self.file = self.file, function.file
        returns, self.returns = self.returns, []
        self._running.append(function.node)
        self._scopes.append(names)
        try:
            if isinstance(function.node, cst.Lambda):
                self.returns.append((function.node.body, self.value(function.node.body, names)))
            else:
                self.block(function.node.body, names)
            found = [value for _, value in self.returns]
            if self.on_return is not None and len(self._running) == 1:
                self.on_return += self.returns
        finally:
            self._running.pop()
            self._scopes.pop()
            self.file, self.returns = before, returns
        result = found[0] if found else Static("none")
        for value in found[1:]:
            result = merge(result, value)
        return result

    def is_own(self, names: Names) -> bool:
        """Whether a scope is that of a function that is being walked through: it ends with the call."""
        return any(names is scope for scope in self._scopes)

    def _bind_parameters(
        self, function: Function, arguments: list[Value], keywords: Mapping[str, Value], names: Names
    ) -> None:
        parameters = function.node.params
        given = [function.owner, *arguments] if function.owner is not None else list(arguments)
        positional = [*parameters.posonly_params, *parameters.params]
        for at, parameter in enumerate(positional):
            name = parameter.name.value
            if at < len(given):
                names.values[name] = given[at]
            elif name in keywords:
                names.values[name] = keywords[name]
            else:
                names.values[name] = self.default(parameter, function)
        for parameter in parameters.kwonly_params:
            name = parameter.name.value
            names.values[name] = keywords.get(name) or self.default(parameter, function)
        if isinstance(parameters.star_arg, cst.Param):
            names.values[parameters.star_arg.name.value] = Tuple(tuple(given[len(positional) :]))
        if parameters.star_kwarg:
            names.values[parameters.star_kwarg.name.value] = Static("dict")

    def default(self, parameter: cst.Param, function: Function) -> Value:
        """The value of a parameter that was not given."""
        if parameter.default is None:
            return UNKNOWN
        reporting, self.reporting = self.reporting, False
        try:
            return self.value(parameter.default, function.names)
        finally:
            self.reporting = reporting

    def create(self, of: Class, arguments: list[Value], keywords: Mapping[str, Value]) -> Instance:
        """An object of a class of the user, with the attributes that its `__init__` sets."""
        is_fresh = self._making[-1].is_fresh if self._making else bool(self._running)
        instance = Instance(of, is_fresh=is_fresh)
        if method := self.method_of(of, "__init__"):
            reporting, self.reporting = self.reporting, False
            self._making.append(instance)
            try:
                self.run(method.bound(instance), arguments, keywords)
            finally:
                self.reporting = reporting
                self._making.pop()
        return instance

    def method_of(self, of: Class, name: str) -> Function | None:
        """A method of a class or of a base class of the user."""
        if name in of.methods:
            found = of.methods[name]
            return found if isinstance(found, Function) else None
        for base in of.bases:
            if isinstance(base, Class) and (found := self.method_of(base, name)):
                return found
        return None

    def load(self, file: SourceFile) -> Names:
        """The names of a module, found by walking through it once without reporting."""
        if "names" not in file.names:
            names = Names({"__file__": Static("text"), "__name__": Static("text")})
            file.names["names"] = names
            before, self.file, reporting, self.reporting = self.file, file, self.reporting, False
            running, self._running, making, self._making = self._running, [], self._making, []
            try:
                for statement in file.tree.body:
                    self.statement(statement, names)
            finally:
                self.file, self.reporting = before, reporting
                self._running, self._making = running, making
        found: Names = file.names["names"]
        return found

    def module_name(self, module: str, name: str) -> Value:
        """A name of another module of the user."""
        return self.load(self.project.file(Path(module))).get(name)

    # -- statements

    def block(self, body: cst.BaseSuite, names: Names) -> None:
        """Walk through an indented block."""
        for statement in body.body:
            self.statement(statement, names)

    def statement(self, node: cst.CSTNode, names: Names) -> None:
        """Walk through one statement."""
        if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            for small in node.body:
                self.statement(small, names)
        elif isinstance(node, cst.FunctionDef):
            decorators = tuple(
                dotted(d.decorator) or dotted(getattr(d.decorator, "func", None)) for d in node.decorators
            )
            function = Function(node, self.file, names, None, node.name.value, decorators)
            names[node.name.value] = function
            if names.parent is not None and not self.reporting:
                self.made.append(function)
            if self._running:
                self._decorators(node, names)
        elif isinstance(node, cst.ClassDef):
            declare_class(self, node, names)
        elif isinstance(node, (cst.Import, cst.ImportFrom)):
            declare_imports(self, node, names)
        elif isinstance(node, cst.Expr) and isinstance(node.value, cst.Yield):
            self._yield(node.value, names)
        elif isinstance(node, cst.Expr):
            self.value(node.value, names)
        elif isinstance(node, cst.Assign):
            value = self.value(node.value, names)
            self._updating = {one.attr.value for one in walk(node.value) if isinstance(one, cst.Attribute)}
            for target in node.targets:
                if (
                    isinstance(value, Function)
                    and isinstance(node.value, cst.Lambda)
                    and isinstance(target.target, cst.Name)
                ):
                    value = dataclasses.replace(value, name=target.target.value)
                self.assign(target.target, value, names)
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value, names), names)
        elif isinstance(node, cst.AugAssign):
            self.augmented(node, names)
        elif isinstance(node, cst.Return):
            self.returns.append((node, self.value(node.value, names) if node.value else Static("none")))
        elif isinstance(node, cst.Assert):
            self.tell(Asserted(node, self.test(node.test, names)))
        elif isinstance(node, (cst.Global, cst.Nonlocal)):
            names.outside |= {item.name.value for item in node.names}
        elif isinstance(node, cst.If):
            self._if(node, names)
        elif isinstance(node, cst.For):
            self._for(node, names)
        elif isinstance(node, cst.While):
            self._while(node, names)
        elif isinstance(node, cst.With):
            for item in node.items:
                value = self.value(item.item, names)
                if item.asname and isinstance(item.asname.name, cst.BaseExpression):
                    self.assign(item.asname.name, value, names)
            self.block(node.body, names)
        elif isinstance(node, (cst.Try, cst.TryStar)):
            self.block(node.body, names)
            for part in (*node.handlers, node.orelse, node.finalbody):
                if part is not None:
                    self.block(part.body, names)
        elif isinstance(node, cst.Match):
            self.tell(Tested(node, self.value(node.subject, names)))
            for case in node.cases:
                self.block(case.body, names)

    def _decorators(self, node: cst.FunctionDef, names: Names) -> None:
        for one in node.decorators:
            value = self.value(one.decorator, names)
            if isinstance(value, External):
                self.tell(Decorated(one, value.name))

    def _yield(self, node: cst.Yield, names: Names) -> None:
        """What a generator gives: as many as its loop has steps."""
        given = node.value.item if isinstance(node.value, cst.From) else node.value
        value = self.value(given, names) if given is not None else Static("none")
        if not isinstance(node.value, cst.From):
            value = Sequence(value, self.loops[-1].labels[0] if self.loops else STATIC)
        self.returns.append((node, value))

    def _if(self, node: cst.If, names: Names) -> None:
        self.tell(Tested(node, self.test(node.test, names), node.body))
        before = names.snapshot()
        self._branches += 1
        self.block(node.body, names)
        after = names.snapshot()
        names.values.clear()
        names.values.update(before)
        if isinstance(node.orelse, cst.If):
            self._if(node.orelse, names)
        elif node.orelse is not None:
            self.block(node.orelse.body, names)
        self._branches -= 1
        names.join(after)

    # -- loops

    def _for(self, node: cst.For, names: Names) -> None:
        iterated = self.value(node.iter, names)
        loop = self.open_loop(node, "for", node.iter, iterated, node.target, names)
        try:
            self._repeat(node, loop, names)
        finally:
            self.close_loop(loop)
        if node.orelse is not None:
            self.block(node.orelse.body, names)

    def _repeat(self, node: cst.For | cst.While, loop: Loop, names: Names) -> None:
        loop.carries = self.carried(node, names)
        for _ in range(2):
            before = names.snapshot()
            self.block(node.body, names)
            names.join(before)

    def carried(self, node: cst.For | cst.While | cst.BaseComp, names: Names) -> tuple[str, ...]:
        """What a loop carries from one iteration to the next, the functions that it calls included."""
        return carried_names(node, lambda called: self._helper(called, names))

    def _helper(self, called: cst.BaseExpression, names: Names) -> Function | None:
        """The function of the user that is called, if its body is known and its gradient is its own."""
        reporting, self.reporting = self.reporting, False
        try:
            found = self.value(called, names)
        finally:
            self.reporting = reporting
        return found if isinstance(found, Function) and not found.decorators else None

    def _while(self, node: cst.While, names: Names) -> None:
        counter, bound = counted(_test_on_top(node))
        limit = self.value(bound, names) if bound is not None else UNKNOWN
        if counter is None or not isinstance(limit, (Size, Static, Counter)):
            self.tell(Tested(node, self.test(node.test, names), node.body))
        iterated: Value = Bound(limit) if counter is not None else UNKNOWN
        loop = self.open_loop(node, "while", bound if bound is not None else node.test, iterated, None, names)
        loop.variables = (counter,) if counter else ()
        if counter:
            names.values[counter] = Counter(loop.labels[0], id(loop))
        try:
            self._repeat(node, loop, names)
        finally:
            self.close_loop(loop)
        if counter is None or isinstance(node.test, cst.BooleanOperation):
            # By now it is known what the body makes of the names in it.
            self.tell(Tested(node, self.test(node.test, names), node.body))

    def open_loop(self, node: Any, how: str, iter_: Any, iterated: Value, target: Any, names: Names) -> Loop:
        """Enter a loop: find its axis, bind its variables."""
        text = self.file.code(iter_) if self.reporting and iter_ is not None else ""
        found = domain(iterated, text)
        variables = tuple(names_in(target)) if target is not None else ()
        loop = Loop(
            node,
            self.file,
            found.labels,
            variables,
            how,
            text,
            found.length,
            found.direct,
            found.by_data,
            whole=found.whole,
        )
        loop.outer = self.loops[-1] if self.loops else None
        growing = [label for label in found.labels if label in GROWING]
        if len(growing) > len(set(growing)):
            loop.pairs = True
        for outer in self.loops:
            if set(growing) & set(outer.labels):
                outer.paired = loop.pairs = loop.is_inner = True
        self.loops.append(loop)
        if target is not None:
            self.assign(target, element(iterated, loop), names)
        return loop

    def element_of(self, iterated: Value, loop: Loop) -> Value:
        """One element of what a loop runs over."""
        return element(iterated, loop)

    def close_loop(self, loop: Loop) -> None:
        """Leave a loop, and tell the rules of it."""
        self.loops.remove(loop)
        self.tell(Looped(loop))


def _test_on_top(node: cst.While) -> cst.BaseExpression:
    """The test of a `while`; of `while True` with `if i >= n: break` on top, what must hold to go on."""
    is_endless = isinstance(node.test, cst.Name) and node.test.value == "True"
    first = node.body.body[0] if node.body.body else None
    if not is_endless or not isinstance(first, cst.If) or not isinstance(first.test, cst.Comparison):
        return node.test
    breaks = isinstance(first.body.body[0], cst.SimpleStatementLine) and isinstance(
        first.body.body[0].body[0], cst.Break
    )
    if not breaks or len(first.test.comparisons) != 1:
        return node.test
    target = first.test.comparisons[0]
    opposite: dict[type, cst.BaseCompOp] = {
        cst.GreaterThanEqual: cst.LessThan(),
        cst.GreaterThan: cst.LessThanEqual(),
        cst.Equal: cst.NotEqual(),
        cst.LessThan: cst.GreaterThanEqual(),
        cst.LessThanEqual: cst.GreaterThan(),
    }
    made = opposite.get(type(target.operator))
    if made is None:
        return node.test
    return first.test.with_changes(comparisons=[target.with_changes(operator=made)])
