"""What the walk through a function tells the rules: calls, loops, branches, subscripts, and their values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flatout.check.values.abstract_values import AbstractValue, Class, Instance
from flatout.check.values.array_results import Given
from flatout.pysource.source_file import SourceFile
from flatout.pysource.trees import FunctionNode


@dataclass(eq=False)
class Domain:
    """What a loop runs along."""

    labels: tuple[str, ...]  # The axes; two of them for `itertools.product` and `combinations`.
    length: int | None = None  # The number of iterations, where the source says it.
    direct: bool = False  # It iterates over the data themselves, not over a range.
    bounded_by_data: bool = False
    whole: bool = False  # It iterates over a whole static sequence together with data, such as a list of outputs.


@dataclass(eq=False, kw_only=True)
class WalkedLoop(Domain):
    """A loop or comprehension, and what was seen in its body; the rules hear of it when it has been walked through."""

    node: ast.AST
    file: SourceFile
    variables: tuple[str, ...]
    how: str  # "for", "while", "comprehension" or "map".
    text: str  # What it iterates over, as written.
    indexed: bool = False  # Its counter selects from data.
    compared: bool = False  # Its counter or element is compared with data.
    scaled: bool = False  # Its element takes part in arithmetic with data.
    touched: bool = False  # Its body computes with data at all.
    pairs: bool = False  # It makes pairs, by itself or with a loop around it.
    paired: bool = False  # A loop inside it runs along the same axis.
    is_inner: bool = False  # A loop around it runs along the same axis.
    draws: bool = False  # Random numbers are drawn in its body.
    has_own_gradient: bool = False  # Its body calls a function whose gradient the user defined.
    neighbours: bool = False  # It reads the element before or after the counter's, too.
    carries: tuple[str, ...] = ()  # What an iteration leaves to the next one.
    filters: list[tuple[ast.AST, AbstractValue]] = field(default_factory=list)


@dataclass(frozen=True)
class Called(Given):
    """A call. `name` is that of a library function, `method` that of a method of `receiver`."""

    name: str
    operation: str
    method: str
    receiver: AbstractValue | None


@dataclass(frozen=True)
class Subscripted:
    """`base[index]`, read; `written` when it is assigned to."""

    node: ast.Subscript
    base: AbstractValue
    index: tuple[AbstractValue, ...]
    slices: tuple[tuple[AbstractValue | None, AbstractValue | None], ...]
    written: bool = False


class Tested(NamedTuple):
    """A Python decision: `if`, `while`, the conditional expression, `and`, `or`, `not`, `assert`."""

    node: ast.AST
    value: AbstractValue


class Operated(NamedTuple):
    """A binary operator between two values."""

    node: ast.expr
    operator: str
    left: AbstractValue
    right: AbstractValue


class Read(NamedTuple):
    """A name from outside the function, or an attribute of an object or class of the user, is read."""

    node: ast.expr
    name: str
    value: AbstractValue
    attribute_of: Instance | Class | None = None


class Wrote(NamedTuple):
    """Something outside the function is assigned: a global, an attribute of self, an entry of a container."""

    node: ast.AST
    name: str  # The global, attribute or container.
    how: str  # "global", "nonlocal", "attribute", "entry" or "grown" (appended to).
    value: AbstractValue
    before: AbstractValue
    keys: tuple[AbstractValue, ...] = ()  # Of an entry.
    counts: bool = False  # The new value is computed from the old one.


class Returned(NamedTuple):
    """The function under examination gives this value."""

    node: ast.AST
    value: AbstractValue
    complete: bool


class Entered(NamedTuple):
    """The function under examination, before its body is walked through."""

    node: FunctionNode


class Decorated(NamedTuple):
    """A function is made while another one runs, by a decorator of a library."""

    node: ast.expr
    name: str


class Stepped(NamedTuple):
    """A scan, fold or counted loop of a library whose function only adds to what it carries (or multiplies...)."""

    node: ast.Call


Event = Called | Subscripted | Tested | Operated | Read | Wrote | WalkedLoop | Returned | Entered | Decorated | Stepped
Handlers = Mapping[type, Callable[[Any, Any], None]]
