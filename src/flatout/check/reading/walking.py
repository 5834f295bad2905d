"""What a walk through a function remembers, and what its parts may ask of each other."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flatout.check.values import abstract_values as av
from flatout.check.values.abstract_values import UNKNOWN, AbstractValue, Data, Sequence
from flatout.check.values.names import Names
from flatout.check.values.traces import ELEMENT, MIXED, NO_TRACES, SAME, Iteration, Slot, Traces, either, used
from flatout.pysource.source_file import Project, SourceFile
from flatout.pysource.trees import leaves

from .events import Event, Handlers, WalkedLoop
from .loop_domains import GROWING, domain, element

_LONGEST = 70


@dataclass(eq=False)
class Walking:
    """The state of a walk, which the rules ask. Its parts (calls, expressions, statements) add to it."""

    if TYPE_CHECKING:

        def report(self, *args: Any, **more: Any) -> None: ...
        def value(self, node: ast.expr, names: Names) -> AbstractValue: ...
        def attribute(self, base: AbstractValue, name: str, node: ast.expr) -> AbstractValue: ...
        def assign(self, target: ast.AST, value: AbstractValue, names: Names) -> None: ...
        def load(self, file: SourceFile) -> Names: ...
        def run(self, function: av.Function, arguments: av.Arguments, keywords: av.Keywords) -> AbstractValue: ...
        def create(self, of: av.Class, arguments: av.Arguments, keywords: av.Keywords) -> av.Instance: ...

    project: Project
    file: SourceFile
    handlers: list[Handlers] = field(default_factory=list)
    root: Any = None  # The loss, metric, step or callback that is examined.
    reporting: bool = True
    in_callback: bool = False
    in_branch: bool = False
    testing: bool = False
    calls: int = 0
    loops: list[WalkedLoop] = field(default_factory=list)
    iterations: list[Iteration] = field(default_factory=list)
    settled: set[tuple[Iteration, Slot]] = field(default_factory=set)  # The places that they have set for sure.
    running: list[ast.AST] = field(default_factory=list)
    scopes: list[Names] = field(default_factory=list)
    making: list[av.Instance] = field(default_factory=list)  # The objects whose `__init__` is under way.
    updating: set[str] = field(default_factory=set)  # The attributes that what is being assigned was computed from.
    made: list[av.Function] = field(default_factory=list)  # Functions inside functions, as they are met;
    classes: list[av.Class] = field(default_factory=list)  # and classes.
    returns: list[tuple[ast.AST, AbstractValue]] = field(default_factory=list)

    @contextlib.contextmanager
    def having(self, **state: Any) -> Iterator[None]:
        """Some of the state otherwise for a while."""
        before = {name: getattr(self, name) for name in state}
        self.__dict__.update(state)
        try:
            yield
        finally:
            self.__dict__.update(before)

    def tell(self, event: Event) -> None:
        """Hand an event to the rules."""
        if not self.reporting:
            return
        for family in self.handlers:
            if handler := family.get(type(event)):
                handler(event, self)

    def code(self, node: ast.AST) -> str:
        """The source text of a node."""
        return self.file.code(node)

    def excerpt(self, node: ast.AST) -> str:
        """The source text of a node, as much of it as a sentence can hold."""
        text = self.code(node)
        return text if len(text) <= _LONGEST and "\n" not in text else text.splitlines()[0][: _LONGEST - 3] + "..."

    def is_outside(self, names: Names | None) -> bool:
        """Whether a scope lives on when the functions that are walked through return."""
        return names is None or (names.is_function and names not in self.scopes)

    def mutated(self, before: AbstractValue, after: AbstractValue, names: Names) -> None:
        """An object was changed in place: every name of the functions under way that holds it sees that."""
        for scope in (*self.scopes, *names.inside_out()):
            if scope.parent is not None:
                held = [name for name, value in scope.values.items() if value.identity is before.identity]
                scope.values.update(dict.fromkeys(held, after))

    # -- loops, and what earlier iterations left

    @contextlib.contextmanager
    def looping(
        self, node: Any, how: str, over: ast.expr, iterated: AbstractValue, target: ast.expr | None = None
    ) -> Iterator[WalkedLoop]:
        """A loop: find its axis, and tell the rules of it in the end."""
        text = self.code(over) if self.reporting else ""
        bound = leaves(target) if target is not None else ()
        variables = tuple(one.id for one in bound if isinstance(one, ast.Name))
        about = {"node": node, "file": self.file, "variables": variables, "how": how, "text": text}
        loop = WalkedLoop(**vars(domain(iterated)), **about)
        growing = [label for label in loop.labels if label in GROWING]
        loop.pairs = len(growing) > len(set(growing))
        for outer in self.loops:
            if set(growing) & set(outer.labels):
                outer.paired = loop.pairs = loop.is_inner = True
        with self.having(loops=[*self.loops, loop]):
            yield loop
        self.tell(loop)

    @contextlib.contextmanager
    def iteration(
        self, loop: WalkedLoop, names: Names, target: ast.expr | None = None, iterated: AbstractValue = UNKNOWN
    ) -> Iterator[Iteration]:
        """One walk through the body of a loop, which then knows what it carries."""
        found = Iteration()
        with self.having(iterations=[*self.iterations, found]):
            if target is not None:
                traces = {**used(av.traces_of(iterated)), (found, ELEMENT): MIXED}
                self.assign(target, av.traced(element(iterated, loop), traces), names)
            yield found
        loop.carries = tuple(dict.fromkeys(spelled(slot, names) for slot in found.carried()))

    def recalled(self, slot: Slot, value: AbstractValue) -> AbstractValue:
        """A value as it is read: what an iteration has not set itself, an earlier one left."""
        live = {key: kind for key, kind in value.traces.items() if key[0] in self.iterations}
        left = {(one, slot): SAME for one in self.iterations if self._is_left(one, slot)}
        return av.traced(value, either(live, left))

    def _is_left(self, iteration: Iteration, slot: Slot) -> bool:
        return (iteration, slot) not in self.settled and slot.owner not in iteration.scopes

    def entry(self, base: AbstractValue, text: str, value: AbstractValue, key: Traces | None = None) -> AbstractValue:
        """A value as it is read from an entry of another one; `key` are the traces of a key that is no constant."""
        found = either(value.traces, used(key or NO_TRACES))
        for iteration, slot in _entries(base, text, key):
            left = {(iteration, slot): SAME} if self._is_left(iteration, slot) else NO_TRACES
            found = either(either(found, iteration.written.get(slot, NO_TRACES)), left)
        passed_on = {place: MIXED for place, kind in base.traces.items() if kind != SAME}
        return av.traced(value, {**found, **passed_on})

    def write(self, slot: Slot, value: AbstractValue) -> None:
        """Note what a place holds from now on."""
        for iteration in self.iterations:
            self.settled.add((iteration, slot))
            iteration.write(slot, av.traces_of(value))

    def write_entry(self, base: AbstractValue, text: str, value: AbstractValue, key: Traces | None = None) -> None:
        """Note what an entry of a value holds from now on."""
        for iteration, slot in _entries(base, text, key):
            self.settled.add((iteration, slot))
            iteration.write(slot, av.traces_of(value))

    def shown(self, value: AbstractValue) -> None:
        """Note that a value goes where it is not followed."""
        for iteration, slot in av.traces_of(value):
            iteration.read.add(slot)

    def touch(self, *values: AbstractValue, indexed: bool = False, compared: bool = False) -> None:
        """Note in the loops around what the values say of them."""
        data = av.data_in(values)
        has_data, has_origins = any(isinstance(one, (Data, Sequence)) for one in values), any(d.origins for d in data)
        for value in values if has_data else ():
            loop = next((one for one in self.loops if id(one) == getattr(value, "loop", None)), None)
            # A constant array is as good as a list.
            if loop is not None and (not isinstance(value, Data) or (has_origins and not value.origins)):
                loop.neighbours |= indexed and isinstance(value, av.Counter) and value.shifted
                loop.indexed |= indexed
                loop.compared |= compared
                loop.scaled |= not (indexed or compared)
        for loop in self.loops if data else ():
            loop.touched = True


def _entries(base: AbstractValue, text: str, key: Traces | None) -> Iterator[tuple[Iteration, Slot]]:
    """The places of an entry of a value that earlier iterations left."""
    for (iteration, slot), kind in base.traces.items():
        if kind == SAME:
            inner = slot._replace(entry=slot.entry + text)
            if key is not None:
                iteration.keys[inner] = key
            yield iteration, inner


def spelled(slot: Slot, names: Names) -> str:
    """How a place is written where these names are known."""
    if not isinstance(slot.owner, av.Instance):
        return slot.name + slot.entry
    held = (name for scope in names.inside_out() for name, value in scope.values.items() if value is slot.owner)
    return f"{next(held, 'self')}.{slot.name}{slot.entry}"
