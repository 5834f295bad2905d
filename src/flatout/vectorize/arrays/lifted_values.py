"""What an expression of a loss can be while its loops are lifted: tensors with loop axes, lists, sums in the making.

A loop over `range(n)` is not run. Its variable stands for all of its values at once, as an axis; a tensor that depends
on it has that axis among its dimensions. `dims` says for every dimension of the array what it is: an axis of a loop,
or one of the `inner` dimensions that the user's code sees in one iteration.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from .expression_graph import Node

_serial = itertools.count()


class Refused(Exception):
    """The code cannot be lifted, or is not equal to its array form; carries what the user is told.

    Attributes:
        reason: One sentence.
        code: The rule of docs/losses.md that it falls under.
        line: Of the source, or None.
        hints: What was learned about the values of the parameters until then.
    """

    def __init__(self, reason: str, code: str = "FO101", line: int | None = None):
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.line = line
        self.hints: list[tuple[Any, ...]] = []


class WrongRank(Refused):
    """The code does not fit arrays of the ranks that were assumed; other ranks may do."""


@dataclass(eq=False)
class Axis:
    """A dimension: of a loop, whose values are `start`, `start + 1`, ..., or of an array.

    `size` is None while a loop's bound is known from the data alone; the first array that it indexes bounds it.
    """

    name: str
    size: Node | None
    start: Node | None = None
    # Whether the loop runs from the last value to the first: sums do not mind, lists do.
    is_reversed: bool = False
    serial: int = field(default_factory=lambda: next(_serial))


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array expression.

    Attributes:
        node: The expression.
        dims: What each dimension of the array is, in the order of the array.
        inner: Those of `dims` that the user's code sees, in the order in which it sees them.
        kind: `"float"`, `"int"`, `"bool"` or `"any"`.
        is_host: Whether the user's code holds it as a Python or NumPy value: no gradient, free promotion of types.
        valid: Which elements exist, where the user's code has a selection of them; None: all.
        position: The loop axis and the offset, if this is the variable of a loop plus a constant.
        is_loose: Whether the inner dimensions are not the user's own: whole reductions alone may see them.
        is_distinct: Whether the entries along the last dimension are known to differ.
        domain: The parameter whose entries these are, to learn which values it may take.
        is_series: Whether the user's code holds a Series of pandas, whose sums and means leave out NaN.
        is_wide: Whether the user's code holds it as a float of Python, which is compared in 64 bits.
        is_blurred: Whether the user's code computed it from such floats: its last digits differ in 32 bits.
    """

    node: Node
    dims: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    kind: str = "any"
    is_host: bool = False
    valid: Tensor | None = None
    position: tuple[Axis, int] | None = None
    is_loose: bool = False
    is_distinct: bool = False
    domain: str | None = None
    is_series: bool = False
    is_wide: bool = False
    is_blurred: bool = False

    @property
    def rank(self) -> int:
        return len(self.inner)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The loop axes it depends on."""
        return tuple(axis for axis in self.dims if axis not in self.inner)


@dataclass(frozen=True, eq=False)
class Host:
    """A Python number that is known when the loss is traced, not before: a size, or what was computed from sizes."""

    node: Node


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is known now: a constant, module, function or table; `path` is its dotted name, if any."""

    value: Any
    node: Node
    path: str | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """A Python list or tuple of a known number of values."""

    values: tuple[Any, ...]
    is_list: bool = False


@dataclass(frozen=True, eq=False)
class Range:
    """`range(start, stop)`, as values."""

    start: Any
    stop: Any
    step: Any = None


@dataclass(frozen=True, eq=False)
class Several:
    """`zip`, `enumerate`, `product` or `reversed` of values."""

    how: str
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Listing:
    """A list that a loop filled: one element for each step of `axes`, where `keep` holds."""

    element: Any
    axes: tuple[Axis, ...]
    keep: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Stream:
    """An iteration that becomes axes: what the loop's variable is, and for which steps it runs."""

    axes: tuple[Axis, ...]
    element: Any
    keep: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Splice:
    """Elements that are appended one by one, not as a list of their own."""

    listing: Listing


@dataclass(frozen=True, eq=False)
class Sum:
    """A variable that a loop carries, as the loop's body sees it: what it was, joined with `terms` by `how`.

    `how` is None before the first term, then `"sum"`, `"prod"`, `"max"`, `"min"`, `"list"`, or one of the kinds of
    `Terms`, whose terms are `Items` of keys and a value.
    """

    name: str
    how: str | None = None
    terms: tuple[Any, ...] = ()
    # For `out[i, :, j] = value`: the axes of i and j, and None for a dimension that is written as a whole.
    slot: tuple[Axis | None, ...] = ()
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
    """A list, dict or object that the user's code makes and may change, known by its identity.

    Attributes:
        kind: `"list"`, `"dict"` or `"object"`.
        label: What messages call it.
        variables: What it holds now, by attribute, constant key, or `CONTENT` and `EACH`.
        default: What a dict makes of a missing key: `"number"`, a function that makes an object, or None.
        made: The constant that a dict was written as, and what it held then.
        of: The class of an object.
        is_many: Whether it stands for all objects that a comprehension made, alike before they are changed.
    """

    kind: str
    label: str
    variables: dict[Any, Any] = field(default_factory=dict)
    default: Any = None
    made: tuple[Known, dict[Any, Any]] | None = None
    of: type | None = None
    is_many: bool = False


@dataclass(frozen=True, eq=False)
class Member:
    """One of many objects that a mutable one stands for: that under these keys."""

    of: Mutable
    keys: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Terms:
    """What loops have written under keys of the data: lists of `Items` of keys and a value.

    Attributes:
        kind: `"sums"`: the terms with a key are added up; `"lists"`: they are its list; `"sets"`: the last one counts.
        parts: One list for every statement that wrote.
        base: What a list held before, by place; None for a dict.
    """

    kind: str
    parts: tuple[Listing, ...]
    base: Any = None


@dataclass(frozen=True, eq=False)
class Question:
    """A condition on what a loop carries, as the step finds it.

    Attributes:
        carried: What it asks about.
        symbol: `"<"`, `">"` and their like: how `value` compares with it; `"is"`, `"is not"`: whether there is nothing
            yet; `"in"` and `"not in"`: whether it holds a key.
        value: That of the step.
        keep: What must be true, too.
        is_open: Whether it is true as well where there is nothing yet.
    """

    carried: Sum
    symbol: str
    value: Any = None
    keep: Tensor | None = None
    is_open: bool = False


@dataclass(frozen=True, eq=False)
class TableRow:
    """The row of a table that a tensor of keys selects."""

    table: Known
    keys: tuple[Any, ...]
    by_position: bool


@dataclass(frozen=True, eq=False)
class Match:
    """The rows of a table where a column equals a tensor's value: `table[table.key == value]`."""

    on: Known
    key: Tensor
    table: Known | None = None
    column: Known | None = None
    # Whether it is the first of these rows: `.iloc[0]`.
    is_row: bool = False
    # Further columns, and what they must equal.
    also: tuple[tuple[Known, Tensor], ...] = ()


@dataclass(frozen=True, eq=False)
class Record:
    """A dict, or DataFrame, of vectors of the batch, by name."""

    columns: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Groups:
    """`frame.groupby(key)`, and the column that is asked of it."""

    keys: Tensor
    columns: dict[str, Any]
    column: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """One of some constants that are no numbers, by its place among them."""

    options: Known
    code: Tensor


@dataclass(frozen=True, eq=False)
class Bag:
    """A Python set of the entries of a tensor along its only inner dimension."""

    entries: Tensor
    others: tuple[Tensor, ...] = ()


@dataclass(frozen=True, eq=False)
class Places:
    """Where a mask holds: the indices along one of its dimensions, or a column for each of them (`tf.where(mask)`)."""

    mask: Tensor
    dimension: int | None = None


@dataclass(frozen=True, eq=False)
class Unreadable:
    """A variable that must not be read: why."""

    reason: str
    code: str = "FO106"


@dataclass(frozen=True, eq=False)
class Method:
    """A method, or indexer such as `.loc`, of a value."""

    of: Any
    name: str


@dataclass(frozen=True, eq=False)
class Partial:
    """A function some of whose arguments are given already."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Local:
    """A function of the user's, with the variables that it closes over."""

    tree: Any
    scope: Any
    label: str
