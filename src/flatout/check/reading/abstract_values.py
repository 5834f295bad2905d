"""What the checker knows of a value without running the program: a small abstract domain.

The distinctions are those that the rules need: numbers of the batch, on the device or already read on the host, with
a label for each axis; lengths of axes; counters of loops; constants. What is none of these is `Unknown`, and no rule
speaks of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst

    from flatout.pysource.source_file import SourceFile

# The labels of the axes of y_true, y_pred and x. The last one is reached from behind (`shape[-1]`) too.
BATCH, LAST = "batch", "last"
AXES = (BATCH, "axis1", "axis2", "axis3", "axis4")
GROUPS, CLASSES, STATIC, NEW = "groups", "classes", "static", "new"


@dataclass(frozen=True)
class Value:
    """Anything; see the subclasses."""


@dataclass(frozen=True)
class Unknown(Value):
    """Nothing is known."""


@dataclass(frozen=True)
class Data(Value):
    """Numbers of the batch, or computed from them, or a constant tensor (no origins).

    Attributes:
        origins: Which of "true", "pred", "x" it was computed from.
        axes: Labels by position, as far as known.
        on_host: Read from the device already: NumPy, a Python number, a list.
        differentiable: A gradient can flow back to y_pred.
        role: "mask", "max", "unique", "position", "distance" where that matters, else "".
        rank: The number of axes relative to y_pred's, if known.
        thin: The last axis has length 1.
        squeezed: A last axis of length 1 was taken away.
        mapping: It may be a dict of arrays.
        loop: The loop whose element it is.
    """

    origins: frozenset[str] = frozenset()
    axes: tuple[str, ...] = AXES
    on_host: bool = False
    differentiable: bool = False
    role: str = ""
    rank: int | None = None
    thin: bool = False
    squeezed: bool = False
    mapping: bool = False
    loop: int | None = None


@dataclass(frozen=True)
class Shape(Value):
    """`x.shape`, or the part of it after `start` axes."""

    axes: tuple[str, ...]
    start: int = 0


@dataclass(frozen=True)
class Size(Value):
    """The length of an axis: known while tracing."""

    label: str


@dataclass(frozen=True)
class Counter(Value):
    """The Python integer that a loop counts with."""

    label: str
    loop: int | None = None
    shifted: bool = False


@dataclass(frozen=True)
class Static(Value):
    """A Python or NumPy value that does not come from the batch.

    Attributes:
        tag: "number", "text", "none", "list", "dict", "frame", "array", "generator", "keys" or "object".
        length: Of a sequence, if known.
        number: The value of an integer.
        text: The value of a string.
        loop: The loop whose element it is.
    """

    tag: str = "object"
    length: int | None = None
    number: float | None = None
    text: str | None = None
    loop: int | None = None


@dataclass(frozen=True)
class Bound(Value):
    """`range(start, bound)`: counts along what the bound is the length of."""

    bound: Value
    length: int | None = None


@dataclass(frozen=True)
class Sequence(Value):
    """A list or iterator whose length is that of an axis.

    Attributes:
        element: One of its elements.
        label: The axis.
        selected: Its length depends on the data.
        length: If known.
        is_pairs: It holds a pair for every two steps of that axis.
    """

    element: Value
    label: str
    selected: bool = False
    length: int | None = None
    is_pairs: bool = False


@dataclass(frozen=True)
class Tuple(Value):
    """A tuple or list of known length."""

    items: tuple[Value, ...]
    is_list: bool = False


@dataclass(frozen=True)
class Together(Value):
    """`zip`, `enumerate`, `itertools.product` and `combinations`: several values at a time.

    Attributes:
        items: What is iterated.
        how: "zip", "enumerate", "product" or "pairs".
    """

    items: tuple[Value, ...]
    how: str


@dataclass(frozen=True)
class Variable(Value):
    """A `keras.Variable` (or `tf.Variable`).

    Attributes:
        tracked: It is a weight of a layer, model or metric.
    """

    tracked: bool = False


@dataclass(frozen=True)
class External(Value):
    """A name of an imported library, spelled as "keras.ops.mean"."""

    name: str


@dataclass(frozen=True, eq=False)
class Function(Value):
    """A function or lambda of the user, with the names around it."""

    node: cst.FunctionDef | cst.Lambda
    file: SourceFile
    names: Any
    owner: Value | None = None
    name: str = "lambda"
    decorators: tuple[str, ...] = ()

    def bound(self, owner: Value) -> Function:
        """As a method of an object; static methods have none."""
        return self if "staticmethod" in self.decorators else dataclasses.replace(self, owner=owner)


@dataclass(frozen=True, eq=False)
class Class(Value):
    """A class of the user."""

    node: cst.ClassDef
    file: SourceFile
    names: Any
    bases: tuple[Value, ...]
    methods: Any = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Instance(Value):
    """An object of a class of the user; its attributes are found in `attributes` as methods assign them."""

    of: Class
    attributes: Any = dataclasses.field(default_factory=dict)
    # Whether a call of the function that is examined makes it, and so forgets it.
    is_fresh: bool = False


UNKNOWN = Unknown()


def origins_of(values: Iterable[Value]) -> frozenset[str]:
    """The origins of all data among the values, looking into tuples and lists."""
    found: frozenset[str] = frozenset()
    for data in data_in(values):
        found |= data.origins
    return found


def data_in(values: Iterable[Value]) -> list[Data]:
    """The data among the values, looking into tuples and lists."""
    found: list[Data] = []
    for value in values:
        if isinstance(value, Data):
            found.append(value)
        elif isinstance(value, (Tuple, Together)):
            found += data_in(value.items)
        elif isinstance(value, Sequence):
            found += data_in([value.element])
    return found


def is_unclear(values: Iterable[Value]) -> bool:
    """Whether something among the values is not known, and may be a tensor with a gradient."""
    for value in values:
        if isinstance(value, Unknown) or (isinstance(value, Static) and value.tag == "object"):
            return True
        if isinstance(value, (Tuple, Together)) and is_unclear(value.items):
            return True
        if isinstance(value, Sequence) and is_unclear([value.element]):
            return True
    return False


def on_host(value: Value) -> bool:
    """Whether a value was read from the device: host data, or a Python list of such."""
    found = data_in([value])
    return bool(found) and all(data.on_host for data in found)


def merge(first: Value, second: Value) -> Value:
    """What is known of a value that is one or the other, after a branch."""
    if first == second:
        return first
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        known = second if isinstance(first, Unknown) else first
        return known if isinstance(known, (Data, Variable)) else UNKNOWN
    if isinstance(first, Data) and isinstance(second, Data):
        return dataclasses.replace(
            first,
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


def merge_all(values: list[Value]) -> Value:
    """What is known of a value that is one of several."""
    result = values[0]
    for value in values[1:]:
        result = merge(result, value)
    return result
