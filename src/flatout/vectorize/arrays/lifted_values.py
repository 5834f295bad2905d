"""What an expression of a loss can be while its loops are lifted: tensors with loop axes, lists, sums in the making.

A loop over `range(n)` is not run. Its variable stands for all of its values at once, as an axis; a tensor that depends
on it has that axis among its dimensions. `dims` says for every dimension of the array what it is: an axis of a loop,
or one of the `inner` dimensions that the user's code sees in one iteration.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, dataclass_transform

from .expression_graph import Node

_serial = itertools.count()


class Refused(Exception):
    """The code cannot be lifted, or is not equal to its array form; carries what the user is told.

    As the value of a variable: it must not be read, and why.
    """

    def __init__(self, reason: str, code: str = "FO101", line: int | None = None):
        super().__init__(reason)
        self.reason = reason
        self.code = code  # The rule of docs/losses.md that it falls under.
        self.line = line
        self.hints: list[tuple[Any, ...]] = []  # What was learned about the values of the parameters until then.


class WrongRank(Refused):
    """The code does not fit arrays of the ranks that were assumed; other ranks may do."""


@dataclass_transform(frozen_default=True, eq_default=False)
class _Value:
    """What has fields that do not change, and is known by its identity."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)


@dataclass(eq=False)
class Axis:
    """A dimension: of a loop, whose values are `start`, `start + 1`, ..., or of an array."""

    name: str
    size: Node | None  # None while a loop's bound is known from the data alone: the first array it indexes bounds it.
    start: Node | None = None
    is_reversed: bool = False  # Whether the loop runs from the last value to the first: lists mind.
    serial: int = field(default_factory=lambda: next(_serial))


class Tensor(_Value):
    """An array expression."""

    node: Node
    dims: tuple[Axis, ...]  # What each dimension of the array is, in the order of the array.
    inner: tuple[Axis, ...]  # Those of `dims` that the user's code sees, in the order in which it sees them.
    kind: str = "any"  # Or "float", "int", "bool", and "number" for one of Python's.
    is_host: bool = False  # Whether the user's code holds it as a Python or NumPy value: no gradient, free promotion.
    valid: Tensor | None = None  # Which elements exist, where the user's code has a selection of them; None: all.
    position: tuple[Axis, int] | None = None  # The loop axis and the offset, of a loop's variable plus a constant.
    is_loose: bool = False  # Whether the inner dimensions are not the user's own: only whole reductions may see them.
    is_distinct: bool = False  # Whether the entries along the last dimension are known to differ.
    domain: str | None = None  # The parameter whose entries these are, to learn which values it may take.
    is_series: bool = False  # Whether the user's code holds a Series of pandas, whose sums and means leave out NaN.
    is_wide: bool = False  # Whether the user's code holds it as a float of Python, which is compared in 64 bits.
    is_blurred: bool = False  # Whether it was computed from such floats: its last digits differ in 32 bits.

    @property
    def rank(self) -> int:
        return len(self.inner)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The loop axes it depends on."""
        return tuple(axis for axis in self.dims if axis not in self.inner)


# How the functions that handle calls declare what they take beside lifted values, see `calls.reader`: an array
# whatever it was given as; one that is no selection; one as the user's code reads it on the host, and a vector so read;
# a number that is known when the loss is traced; and a constant, as its value.
Whole: TypeAlias = Tensor
Read: TypeAlias = Tensor
Vector: TypeAlias = Tensor
Size: TypeAlias = "Host | Known"
Plain: TypeAlias = Any


class Host(_Value):
    """A Python number that is known when the loss is traced, not before: a size, or what was computed from sizes."""

    node: Node


class Known(_Value):
    """A value that is known now: a constant, module, function or table; `path` is its dotted name, if any."""

    value: Any
    node: Node
    path: str | None = None


class Items(_Value):
    """A Python list or tuple of a known number of values."""

    values: tuple[Any, ...]
    is_list: bool = False


class Range(_Value):
    """`range(start, stop)`, as values."""

    start: Any
    stop: Any
    step: Any = None


class Several(_Value):
    """`zip`, `enumerate`, `product` or `reversed` of values."""

    how: str
    values: tuple[Any, ...]


class Listing(_Value):
    """A list that a loop filled, or what a loop runs over: one element for each step of `axes`, where `keep` holds."""

    element: Any
    axes: tuple[Axis, ...]
    keep: Tensor | None = None


class Splice(_Value):
    """Elements that are appended one by one, not as a list of their own."""

    listing: Listing
    # For `out[i, :, j] = value`: the axes of i and j, and None for a dimension that is written as a whole.
    slot: tuple[Axis | None, ...] = ()


class Sum(_Value):
    """A variable that a loop carries, as the loop's body sees it: what it was, joined with `terms` by `how`."""

    name: str
    # None before the first term, then "sum", "prod", "max", "min", "list", "entries", or one of the kinds of `Terms`,
    # whose terms are `Items` of keys and a value.
    how: str | None = None
    terms: tuple[Any, ...] = ()
    # For an entry of a dict or list under a key of the data: the object, its cell, and the keys.
    entry: tuple[Any, Any, tuple[Any, ...]] | None = None
    # What it was before the loop.
    begin: Any = None


# The cells of a mutable object that are no attribute or constant key: what a list holds, and the entries of a dict (or
# the object that stands for all of them) under keys of the data.
CONTENT = "<content>"
EACH = "<each>"


@dataclass(eq=False)
class Mutable:
    """A list, dict or object that the user's code makes and may change, known by its identity."""

    kind: str  # "list", "dict" or "object".
    label: str  # What messages call it.
    # What it holds now, by attribute, constant key, or `CONTENT` and `EACH`.
    variables: dict[Any, Any] = field(default_factory=dict)
    default: Any = None  # What a dict makes of a missing key: "number", the object that stands for all, or None.
    made: tuple[Known, dict[Any, Any]] | None = None  # The constant that a dict was written as, and what it held then.
    of: type | None = None  # The class of an object.
    is_many: bool = False  # Whether it stands for all objects that a comprehension made, alike before they are changed.


class Member(_Value):
    """One of many objects that a mutable one stands for: that under these keys."""

    of: Mutable
    keys: tuple[Any, ...]


class Terms(_Value):
    """What loops have written under keys of the data: lists of `Items` of keys and a value."""

    kind: str  # "sums": the terms with a key are added up; "lists": they are its list; "sets": the last one counts.
    parts: tuple[Listing, ...]  # One list for every statement that wrote.
    base: Any = None  # What a list held before, by place; None for a dict.


class Question(_Value):
    """A condition on what a loop carries, as the step finds it."""

    carried: Sum  # What it asks about.
    # `"<"`, `">"` and their like: how `value` compares with it; `"is"`, `"is not"`: whether there is nothing yet;
    # `"in"` and `"not in"`: whether it holds a key.
    symbol: str
    value: Any = None  # That of the step.
    keep: Tensor | None = None  # What must be true, too.
    is_open: bool = False  # Whether it is true as well where there is nothing yet.


class TableRow(_Value):
    """The row of a table that a tensor of keys selects."""

    table: Known
    keys: tuple[Any, ...]
    by_position: bool


class Match(_Value):
    """The rows of a table where a column equals a tensor's value: `table[table.key == value]`."""

    on: Known
    key: Tensor
    table: Known | None = None
    column: Known | None = None
    is_row: bool = False  # Whether it is the first of these rows: `.iloc[0]`.
    also: tuple[tuple[Known, Tensor], ...] = ()  # Further columns, and what they must equal.


class Record(_Value):
    """A dict, or DataFrame, of vectors of the batch, by name."""

    columns: dict[str, Any]


class Groups(_Value):
    """`frame.groupby(key)`, and the column that is asked of it."""

    keys: Tensor
    columns: dict[str, Any]
    column: Tensor | None = None


class Choice(_Value):
    """One of some constants that are no numbers, by its place among them."""

    options: Known
    code: Tensor


class Bag(_Value):
    """A Python set of the entries of a tensor along its only inner dimension."""

    entries: Tensor
    others: tuple[Tensor, ...] = ()


class Places(_Value):
    """Where a mask holds: the indices along one of its dimensions, or a column for each of them (`tf.where(mask)`)."""

    mask: Tensor
    dimension: int | None = None


class Method(_Value):
    """A method, or indexer such as `.loc`, of a value."""

    of: Any
    name: str


class Partial(_Value):
    """A function some of whose arguments are given already."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Local(_Value):
    """A function of the user's, with the variables that it closes over."""

    tree: Any
    scope: Any
    label: str
