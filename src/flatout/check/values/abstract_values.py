"""What the checker knows of a value without running the program: a small abstract domain.

The distinctions are those that the rules need: numbers of the batch, on the device or already read on the host, with
a label for each axis; lengths of axes; counters of loops; constants. What is none of these is `Unknown`, and no rule
speaks of it.
"""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from .traces import Traces, combined, either

if TYPE_CHECKING:
    import ast

    from flatout.pysource.source_file import SourceFile
    from flatout.pysource.trees import FunctionNode

# The labels of the axes of y_true, y_pred and x. The last one is reached from behind (`shape[-1]`) too.
BATCH, LAST = "batch", "last"
AXES = (BATCH, "axis1", "axis2", "axis3", "axis4")
GROUPS, CLASSES, STATIC, NEW = "groups", "classes", "static", "new"


@dataclass(frozen=True)
class AbstractValue:
    """Anything; see the subclasses."""

    # What it owes to earlier iterations; copies that differ by that only are one object, by their identity.
    traces: Traces = dataclasses.field(default_factory=dict, kw_only=True, compare=False, repr=False)
    identity: object = dataclasses.field(default_factory=object, init=False, compare=False, repr=False)

    def but(self, **changes: Any) -> Self:
        """With other fields, and of nobody's past."""
        return dataclasses.replace(self, traces={}, **changes)


@dataclass(frozen=True)
class Unknown(AbstractValue):
    """Nothing is known."""


@dataclass(frozen=True)
class Data(AbstractValue):
    """Numbers of the batch, or computed from them, or a constant tensor (no origins)."""

    origins: frozenset[str] = frozenset()  # Which of "true", "pred", "x" it was computed from.
    axes: tuple[str, ...] = AXES  # Labels by position, as far as known.
    on_host: bool = False  # Read from the device already: NumPy, a Python number, a list.
    differentiable: bool = False  # A gradient can flow back to y_pred.
    role: str = ""  # "mask", "max", "unique", "selected", "all_but_one" where that matters.
    rank: int | None = None  # The number of axes relative to y_pred's, if known.
    thin: bool = False  # The last axis has length 1.
    squeezed: bool = False  # A last axis of length 1 was taken away.
    mapping: bool = False  # It may be a dict of arrays.
    loop: int | None = None  # The loop whose element it is.

    @property
    def label(self) -> str:
        """The axis that it is as long as."""
        return self.axes[0] if self.axes else STATIC

    def ranked(self, by: int, **changes: Any) -> Data:
        """With so many axes more."""
        return self.but(rank=None if self.rank is None else self.rank + by, **changes)


@dataclass(frozen=True)
class Shape(AbstractValue):
    """`x.shape`, or the part of it after `start` axes."""

    axes: tuple[str, ...]
    start: int = 0


@dataclass(frozen=True)
class Size(AbstractValue):
    """The length of an axis: known while tracing."""

    label: str


@dataclass(frozen=True)
class Counter(AbstractValue):
    """The Python integer that a loop counts with."""

    label: str
    loop: int | None = None
    shifted: bool = False


@dataclass(frozen=True)
class Static(AbstractValue):
    """A Python or NumPy value that does not come from the batch."""

    # "number", "text", "none", "list", "dict", "frame", "array", "rng", "file", "module" or "object".
    tag: str = "object"
    length: int | None = None  # Of a sequence, if known.
    number: float | None = None  # The value of an integer.
    text: str | None = None  # The value of a string.
    loop: int | None = None  # The loop whose element it is.


def number_in(value: AbstractValue | None) -> float | None:
    """The number that a value is known to be."""
    return value.number if isinstance(value, Static) else None


def whole_number(value: AbstractValue | None, otherwise: int) -> int:
    """The integer that a value is known to be."""
    number = number_in(value)
    return otherwise if number is None else int(number)


@dataclass(frozen=True)
class Sequence(AbstractValue):
    """A list or iterator whose length is that of an axis."""

    element: AbstractValue
    label: str
    selected: bool = False  # Its length depends on the data.
    length: int | None = None
    is_pairs: bool = False  # It holds a pair for every two steps of that axis.


@dataclass(frozen=True)
class Tuple(AbstractValue):
    """A tuple or list of known length."""

    items: tuple[AbstractValue, ...]
    is_list: bool = False


@dataclass(frozen=True)
class Together(AbstractValue):
    """Several values at a time: "zip", "enumerate", "product"; or a function: "vmap", "partial", "entries"."""

    items: tuple[AbstractValue, ...]
    how: str


@dataclass(frozen=True)
class Variable(AbstractValue):
    """A `keras.Variable` (or `tf.Variable`)."""


@dataclass(frozen=True)
class External(AbstractValue):
    """A name of an imported library, spelled as "keras.ops.mean"."""

    name: str


@dataclass(frozen=True, eq=False)
class Defined(AbstractValue):
    """A function or class of the user, with the names around it."""

    node: Any
    file: SourceFile
    names: Any
    others: tuple[Self, ...] = dataclasses.field(default=(), kw_only=True)  # What it may be instead, after a branch.

    @property
    def alternatives(self) -> tuple[Self, ...]:
        """Each definition of it."""
        return (dataclasses.replace(self, others=()), *self.others) if self.others else (self,)

    def or_else(self, other: Self) -> Self:
        """One or the other, each definition once."""
        known = {one.node for one in self.alternatives}
        new = tuple(one for one in other.alternatives if one.node not in known)
        return dataclasses.replace(self, others=(*self.others, *new)) if new else self


@dataclass(frozen=True, eq=False)
class Function(Defined):
    """A function or lambda of the user."""

    node: FunctionNode
    owner: AbstractValue | None = None
    name: str = "lambda"
    decorators: tuple[str, ...] = ()

    def bound(self, owner: AbstractValue) -> Function:
        """As a method of an object; static methods have none."""
        others = tuple(one.bound(owner) for one in self.others)
        return dataclasses.replace(self, owner=None if "staticmethod" in self.decorators else owner, others=others)


@dataclass(frozen=True, eq=False)
class Class(Defined):
    """A class of the user."""

    node: ast.ClassDef
    bases: tuple[AbstractValue, ...]
    methods: Any

    def method(self, name: str) -> Function | None:
        """A method, its own or of a base class of the user."""
        if name in self.methods:
            return self.methods[name] if isinstance(self.methods[name], Function) else None
        return next(filter(None, (base.method(name) for base in self.bases if isinstance(base, Class))), None)


@dataclass(frozen=True, eq=False)
class Instance(AbstractValue):
    """An object of a class of the user; its attributes are found in `attributes` as methods assign them."""

    of: Class
    attributes: Any = dataclasses.field(default_factory=dict)
    # Whether a call of the function that is examined makes it, and so forgets it.
    is_fresh: bool = False


UNKNOWN = Unknown()
Arguments = collections.abc.Sequence[AbstractValue]
Keywords = collections.abc.Mapping[str, AbstractValue]


def traced(value: AbstractValue, traces: Traces) -> AbstractValue:
    """The same object, with other traces; objects of the user have them on what they hold."""
    if isinstance(value, (External, Function, Class, Instance)) or not (traces or value.traces):
        return value
    found = copy.copy(value)
    object.__setattr__(found, "traces", traces)
    return found


def traces_of(value: AbstractValue) -> Traces:
    """The traces of a value and of all that is in it."""
    found = value.traces
    inside = value.items if isinstance(value, (Tuple, Together)) else ()
    for one in (value.element,) if isinstance(value, Sequence) else inside:
        found = either(found, traces_of(one))
    return found


def made_of(value: AbstractValue, how: str, *operands: AbstractValue) -> AbstractValue:
    """A value that an operator or a function makes of others, with what is left of their traces."""
    return traced(value, combined(how, list(map(traces_of, operands))))


def flat(values: Iterable[AbstractValue]) -> Iterator[AbstractValue]:
    """The values, and those inside of tuples and lists in their place."""
    for value in values:
        if isinstance(value, (Tuple, Together)):
            yield from flat(value.items)
        elif isinstance(value, Sequence):
            yield from flat([value.element])
        else:
            yield value


def data_in(values: Iterable[AbstractValue]) -> list[Data]:
    """The data among the values, looking into tuples and lists."""
    return [value for value in flat(values) if isinstance(value, Data)]


def origins_of(values: Iterable[AbstractValue]) -> frozenset[str]:
    """The origins of all data among the values."""
    return frozenset().union(*(data.origins for data in data_in(values)))


def is_unclear(values: Iterable[AbstractValue]) -> bool:
    """Whether something among the values is not known, and may be a tensor with a gradient."""
    return any(
        isinstance(value, Unknown) or (isinstance(value, Static) and value.tag == "object") for value in flat(values)
    )


def merge(first: AbstractValue, second: AbstractValue) -> AbstractValue:
    """What is known of a value that is one or the other, after a branch."""
    return traced(_merged(first, second), either(first.traces, second.traces))


def _merged(first: AbstractValue, second: AbstractValue) -> AbstractValue:
    if isinstance(first, Defined) and type(first) is type(second):
        return first.or_else(second)
    if first == second:
        return first
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        known = second if isinstance(first, Unknown) else first
        return known if isinstance(known, (Data, Variable)) else UNKNOWN
    if isinstance(first, Data) and isinstance(second, Data):
        return first.but(
            origins=first.origins | second.origins,
            axes=first.axes if len(first.axes) >= len(second.axes) else second.axes,
            on_host=first.on_host and second.on_host,
            differentiable=first.differentiable or second.differentiable,
            role=first.role if first.role == second.role else "",
            rank=first.rank if first.rank == second.rank else None,
            thin=first.thin and second.thin,
            squeezed=first.squeezed and second.squeezed,
        )
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Data) and isinstance(other, (Static, Size, Counter)):
            return one
        if isinstance(one, Sequence) and isinstance(other, (Static, Tuple)):
            return one
        if isinstance(other, Static) and other.tag == "none":
            return one
    if isinstance(first, Tuple) and isinstance(second, Tuple) and len(first.items) == len(second.items):
        return Tuple(tuple(map(merge, first.items, second.items)), first.is_list)
    if isinstance(first, Static) and isinstance(second, Static):
        return Static(first.tag if first.tag == second.tag else "object")
    return UNKNOWN


def merge_all(values: Iterable[AbstractValue]) -> AbstractValue:
    """What is known of a value that is one of several; nothing of one that is none."""
    found = list(values)
    return functools.reduce(merge, found) if found else UNKNOWN
