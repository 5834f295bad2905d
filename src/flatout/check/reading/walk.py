"""The walk through a function: statement after statement, into the functions that it calls, across files.

Nothing is run. Both sides of a branch are walked, the body of a loop twice, and what is known of a name is merged.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from typing import Any

from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Sequence, Static, Tuple
from flatout.check.values.array_results import counted_to
from flatout.check.values.names import Names
from flatout.check.values.operation_results import elementwise
from flatout.pysource.source_file import SourceFile
from flatout.pysource.spellings import operations_name
from flatout.pysource.trees import defaults, dotted, parameters, walk

from .events import Decorated, Returned, Tested, WalkedLoop
from .expressions import Expressions
from .loop_domains import counted

_DEEPEST = 12
# Enough to see what a factory returns.
_DEEPEST_IN_SILENCE = 3
_MOST_CALLS = 3000
_LOGGING = ("print", "logging", "logger", "log")


class Walk(Expressions):
    """One examination of one function of the user. `walk_X` walks through a statement of the type X."""

    # -- functions, classes, modules

    def run(self, function: av.Function, arguments: av.Arguments, keywords: av.Keywords) -> AbstractValue:
        """Walk through a call of a function of the user."""
        if function.others:
            return av.merge_all([self.run(one, arguments, keywords) for one in function.alternatives])
        deepest = _DEEPEST if self.handlers else _DEEPEST_IN_SILENCE
        if function.node in self.running or len(self.running) > deepest or self.calls > _MOST_CALLS:
            return UNKNOWN
        if any("custom_" in decorator for decorator in function.decorators):
            # The user defined its gradient: what it gives is taken as a tensor, and its body is not ours to judge.
            for loop in self.loops:
                loop.has_own_gradient = True
            return elementwise(arguments)
        self.calls += 1
        names = Names(self._parameters(function, arguments, keywords), function.names)
        for iteration in self.iterations:
            iteration.scopes.add(names)
        under_way = {"running": [*self.running, function.node], "scopes": [*self.scopes, names]}
        with self.having(file=function.file, returns=[], **under_way):
            if isinstance(function.node, ast.Lambda):
                self.returns.append((function.node.body, self.value(function.node.body, names)))
            else:
                self.block(function.node.body, names)
            if not self.returns:
                return Static("none")
            values = [value for _, value in self.returns]
            found = av.merge_all(values)
            if len(self.running) == 1:
                is_known = [isinstance(one, av.Data) or getattr(one, "tag", "") == "number" for one in values]
                self.tell(Returned(self.returns[-1][0], found, all(is_known)))
            return found

    def _parameters(
        self, function: av.Function, arguments: av.Arguments, keywords: av.Keywords
    ) -> dict[str, AbstractValue]:
        given = [function.owner, *arguments] if function.owner is not None else list(arguments)
        positional = [one.arg for one in parameters(function.node)]
        inside = function.node.args
        with self.having(reporting=False):
            found = {name: self.value(node, function.names) for name, node in defaults(function.node).items()}
        named = (*positional, *(one.arg for one in inside.kwonlyargs))
        found = dict.fromkeys(named, UNKNOWN) | found | {name: keywords[name] for name in named if name in keywords}
        found |= dict(zip(positional, given, strict=False))
        if inside.vararg:
            found[inside.vararg.arg] = Tuple(tuple(given[len(positional) :]))
        if inside.kwarg:
            found[inside.kwarg.arg] = Static("dict")
        return found

    def create(self, of: av.Class, arguments: av.Arguments, keywords: av.Keywords) -> av.Instance:
        """An object of a class of the user, with the attributes that its `__init__` sets."""
        is_fresh = self.making[-1].is_fresh if self.making else bool(self.running)
        instance = av.Instance(of, is_fresh=is_fresh)
        if method := of.method("__init__"):
            with self.having(making=[*self.making, instance], reporting=False):
                self.run(method.bound(instance), arguments, keywords)
        return instance

    def load(self, file: SourceFile) -> Names:
        """The names of a module, found by walking through it once without reporting."""
        if "names" not in file.names:
            names = file.names["names"] = Names({"__file__": Static("text"), "__name__": Static("text")})
            with self.having(file=file, running=[], making=[], iterations=[], reporting=False):
                self.block(file.tree.body, names)
        found: Names = file.names["names"]
        return found

    # -- statements

    def block(self, body: Iterable[ast.stmt], names: Names) -> None:
        """Walk through statements, one after the other."""
        for statement in body:
            if found := getattr(self, f"walk_{type(statement).__name__}", None):
                found(statement, names)

    def walk_Import(self, node: ast.Import, names: Names) -> None:
        for alias in node.names:
            if file := self.project.imported(self.file, alias.name, 0):
                names[alias.asname or alias.name] = Static("module", text=str(file.path))
            else:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = av.External(operations_name(alias.name if alias.asname else top))

    def walk_ImportFrom(self, node: ast.ImportFrom, names: Names) -> None:
        module = node.module or ""
        file = self.project.imported(self.file, module, node.level)
        for alias in node.names:
            name, bound = alias.name, alias.asname or alias.name
            inner = self.project.imported(self.file, f"{module}.{name}" if module else name, node.level)
            if file is not None and self.load(file).scope_of(name) is not None:
                names[bound] = self.load(file).get(name)
            elif inner is not None:
                names[bound] = Static("module", text=str(inner.path))
            elif name != "*":
                names[bound] = UNKNOWN if file is not None else av.External(operations_name(f"{module}.{name}"))

    def walk_ClassDef(self, node: ast.ClassDef, names: Names) -> None:
        bases = tuple(self.value(base, names) for base in node.bases)
        inside = Names({}, names, "class")
        self.block(node.body, inside)
        found = names[node.name] = av.Class(node, self.file, names, bases, inside.values)
        if names.parent is not None and not self.reporting:
            self.classes.append(found)

    def walk_FunctionDef(self, node: ast.FunctionDef, names: Names) -> None:
        decorators = tuple(dotted(one) or dotted(getattr(one, "func", None)) for one in node.decorator_list)
        function = names[node.name] = av.Function(node, self.file, names, None, node.name, decorators)
        if self._is_compiled_for_host(node, names):
            names[node.name] = av.External(f"numba.{node.name}")
            return
        if names.parent is not None and not names.is_class and not self.reporting:
            self.made.append(function)
        for one in node.decorator_list if self.running else ():
            value = self.value(one, names)
            if isinstance(value, av.External):
                self.tell(Decorated(one, value.name))

    def _is_compiled_for_host(self, node: ast.FunctionDef, names: Names) -> bool:
        """Whether numba makes machine code of it: its loops cost nothing, and what it is given comes to the host."""
        with self.having(reporting=False):
            made_by = [self.value(getattr(one, "func", one), names) for one in node.decorator_list]
        return any(isinstance(one, av.External) and one.name.startswith("numba.") for one in made_by)

    def walk_Expr(self, node: ast.Expr, names: Names) -> None:
        if isinstance(node.value, ast.YieldFrom):
            self.returns.append((node.value, self.value(node.value.value, names)))
        elif isinstance(node.value, ast.Yield):
            # What a generator gives: as many as its loop has steps.
            given = self.value(node.value.value, names) if node.value.value else Static("none")
            self.shown(given)
            label = self.loops[-1].labels[0] if self.loops else av.STATIC
            self.returns.append((node.value, Sequence(given, label)))
        elif dotted(getattr(node.value, "func", None)).split(".")[0] in _LOGGING:
            self.value(node.value, names)
        else:
            self.shown(self.value(node.value, names))

    def walk_Assign(self, node: ast.Assign, names: Names) -> None:
        value = self.value(node.value, names)
        self.updating = {one.attr for one in walk(node.value) if isinstance(one, ast.Attribute)}
        for target in node.targets:
            if isinstance(value, av.Function) and isinstance(node.value, ast.Lambda) and isinstance(target, ast.Name):
                value = dataclasses.replace(value, name=target.id)
            self.assign(target, value, names)

    def walk_AnnAssign(self, node: ast.AnnAssign, names: Names) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, names), names)

    def walk_Return(self, node: ast.Return, names: Names) -> None:
        self.returns.append((node, self.value(node.value, names) if node.value else Static("none")))

    def walk_Assert(self, node: ast.Assert, names: Names) -> None:
        self.tell(Tested(node, self.test(node.test, names)))

    def walk_Global(self, node: ast.Global | ast.Nonlocal, names: Names) -> None:
        names.outside |= set(node.names)

    walk_Nonlocal = walk_Global

    def walk_With(self, node: ast.With, names: Names) -> None:
        for item in node.items:
            value = self.value(item.context_expr, names)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, names)
        self.block(node.body, names)

    def walk_Try(self, node: ast.Try | ast.TryStar, names: Names) -> None:
        self.block(node.body, names)
        self._either([*(handler.body for handler in node.handlers), node.orelse], names)
        self.block(node.finalbody, names)

    walk_TryStar = walk_Try

    def walk_Match(self, node: ast.Match, names: Names) -> None:
        self.tell(Tested(node, self.value(node.subject, names)))
        self._either([*(case.body for case in node.cases), []], names)

    def walk_If(self, node: ast.If, names: Names) -> None:
        self.tell(Tested(node, self.test(node.test, names)))
        with self.having(in_branch=True):
            self._either([node.body, node.orelse], names)

    def _either(self, bodies: list[list[ast.stmt]], names: Names) -> None:
        """Walk through branches, each from here, and go on with what is true after all of them."""
        before, settled = dict(names.values), set(self.settled)
        ends: list[dict[str, AbstractValue]] = []
        surely: list[set[Any]] = []
        for body in bodies:
            names.values, self.settled = dict(before), set(settled)
            self.block(body, names)
            ends.append(names.values)
            surely.append(self.settled)
        for end in ends[-2::-1]:
            names.join(end)
        self.settled = set.intersection(*surely)

    # -- loops

    def walk_For(self, node: ast.For, names: Names) -> None:
        iterated = self.value(node.iter, names)
        with self.looping(node, "for", node.iter, iterated, node.target) as loop:
            self._repeat(node, loop, names, node.target, iterated)
        self.block(node.orelse, names)

    def walk_While(self, node: ast.While, names: Names) -> None:
        counter, bound = counted(node)
        limit = self.value(bound, names) if bound is not None else UNKNOWN
        if counter is None or not isinstance(limit, (av.Size, Static, av.Counter)):
            self.tell(Tested(node, self.test(node.test, names)))
        iterated: AbstractValue = counted_to(limit, self.code(bound)) if bound is not None else UNKNOWN
        with self.looping(node, "while", bound if bound is not None else node.test, iterated) as loop:
            if counter:
                loop.variables = (counter,)
                names.values[counter] = av.Counter(loop.labels[0], id(loop))
            self._repeat(node, loop, names)
        if counter is None or isinstance(node.test, ast.BoolOp):
            # By now it is known what the body makes of the names in it.
            self.tell(Tested(node, self.test(node.test, names)))

    def _repeat(self, node: ast.For | ast.While, loop: WalkedLoop, names: Names, *bound: Any) -> None:
        for _ in range(2):
            before = dict(names.values)
            with self.iteration(loop, names, *bound):
                self.block(node.body, names)
            names.join(before)
