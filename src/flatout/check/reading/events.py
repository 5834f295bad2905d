"""What the walk through a function tells the rules: calls, loops, branches, subscripts, and their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import libcst as cst

from flatout.pysource.source_file import SourceFile

from .abstract_values import Value


@dataclass(eq=False)
class Loop:
    """A loop or comprehension that is being walked through, and what was seen in its body.

    Attributes:
        labels: The axes that it runs along; two of them for `itertools.product` and `combinations`.
        length: The number of iterations, where the source says it.
        direct: It iterates over the data themselves, not over a range.
        how: "for", "while", "comprehension" or "map".
        indexed: Its counter selects from data.
        compared: Its counter or element is compared with data.
        scaled: Its element takes part in arithmetic with data.
        touched: Its body computes with data at all.
        origins: Where those data come from.
        pairs: It makes pairs, by itself or with a loop around it.
        paired: A loop inside it runs along the same axis.
        is_inner: A loop around it runs along the same axis.
        draws: Random numbers are drawn in its body.
        has_own_gradient: Its body calls a function whose gradient the user defined.
        neighbours: It reads the element before or after the counter's, too.
        outer: The loop around it.
        whole: It iterates over a whole static sequence together with data, such as a list of outputs.
        text: What it iterates over, as written.
    """

    node: cst.CSTNode
    file: SourceFile
    labels: tuple[str, ...]
    variables: tuple[str, ...]
    how: str
    text: str
    length: int | None = None
    direct: bool = False
    bounded_by_data: bool = False
    indexed: bool = False
    compared: bool = False
    scaled: bool = False
    touched: bool = False
    origins: frozenset[str] = frozenset()
    pairs: bool = False
    paired: bool = False
    is_inner: bool = False
    draws: bool = False
    has_own_gradient: bool = False
    neighbours: bool = False
    whole: bool = False
    carries: tuple[str, ...] = ()
    outer: Loop | None = None
    filters: list[tuple[cst.CSTNode, Value]] = field(default_factory=list)


@dataclass(frozen=True)
class Called:
    """A call. `name` is that of a library function, `method` that of a method of `receiver`."""

    node: cst.Call
    name: str
    operation: str
    method: str
    receiver: Value | None
    arguments: tuple[Value, ...]
    keywords: Mapping[str, Value]
    result: Value


@dataclass(frozen=True)
class Subscripted:
    """`base[index]`, read; `written` when it is assigned to."""

    node: cst.Subscript
    base: Value
    index: tuple[Value, ...]
    slices: tuple[tuple[Value | None, Value | None], ...]
    written: bool = False


@dataclass(frozen=True)
class Tested:
    """A Python branch: `if`, `while`, the conditional expression, `and`, `or`, `not`."""

    node: cst.CSTNode
    value: Value
    body: cst.CSTNode | None = None


@dataclass(frozen=True)
class Asserted:
    """An `assert`."""

    node: cst.Assert
    value: Value


@dataclass(frozen=True)
class Operated:
    """A binary operator between two values."""

    node: cst.BaseExpression
    operator: str
    left: Value
    right: Value


@dataclass(frozen=True)
class Read:
    """A name from outside the function, or an attribute of an object of the user, is read."""

    node: cst.BaseExpression
    name: str
    value: Value
    file: SourceFile
    attribute_of: Value | None = None


@dataclass(frozen=True)
class Wrote:
    """Something outside the function is assigned: a global, an attribute of self, an entry of a container.

    Attributes:
        name: The global, attribute or container.
        how: "global", "nonlocal", "attribute", "entry" or "grown" (appended to).
        keys: Of an entry.
        counts: The new value is computed from the old one.
    """

    node: cst.CSTNode
    name: str
    how: str
    value: Value
    before: Value
    keys: tuple[Value, ...] = ()
    counts: bool = False


@dataclass(frozen=True)
class Looped:
    """A loop has been walked through."""

    loop: Loop


@dataclass(frozen=True)
class Returned:
    """The function under examination gives this value."""

    node: cst.CSTNode
    value: Value
    complete: bool


@dataclass(frozen=True)
class Entered:
    """The function under examination, before its body is walked through."""

    node: cst.FunctionDef | cst.Lambda


@dataclass(frozen=True)
class Decorated:
    """A function is made while another one runs, by a decorator of a library."""

    node: cst.Decorator
    name: str


class Scene(Protocol):
    """What a rule may ask, and where it reports."""

    root: Any
    loops: list[Loop]
    file: SourceFile
    in_callback: bool
    in_branch: bool

    def report(self, code: str, node: cst.CSTNode, message: str, advice: str = "", **more: Any) -> None:
        """Add a finding."""


Event = Called | Subscripted | Tested | Asserted | Operated | Read | Wrote | Looped | Returned | Entered | Decorated
Handlers = Mapping[type, Callable[[Any, Scene], None]]
