"""The heap: lists, dicts and objects that the user's code makes and changes, and what all of its variables hold.

A mutable object is a value with an identity, so that all names for it see the same. What it holds is kept in cells, as
variables are: a branch runs both of its sides on the same state and joins what they made of every cell, and a loop
finds out which cells its body changes, and carries these from step to step.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from flatout.vectorize.arrays.algebra import number
from flatout.vectorize.arrays.indexing import listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    EACH,
    Bag,
    Items,
    Known,
    Listing,
    Member,
    Mutable,
    Record,
    Refused,
    Sum,
    Terms,
)
from flatout.vectorize.calls import calls
from flatout.vectorize.calls.reader import Reader
from flatout.vectorize.loops import keyed_terms
from flatout.vectorize.loops.iterated_axes import stream, variable

from .scopes import Scope

Space = Scope | Mutable
# How a value is named that was not made in the function.
HELD = ("name", "attribute", "index")
Snapshot = dict[Space, dict[Any, Any]]


class Heap:
    """All scopes and mutable objects of one reading."""

    def __init__(self) -> None:
        self._spaces: list[Space] = []
        self._labels: dict[str, int] = {}

    def add(self, space: Space) -> None:
        self._spaces.append(space)

    def make(self, kind: str, content: Any = None, **more: Any) -> Mutable:
        """A new object; a list with what it holds."""
        made = Mutable(kind, f"a {kind}", **more)
        if kind == "list":
            made.variables[CONTENT] = content
        self.add(made)
        return made

    def named(self, made: Mutable, name: str) -> None:
        """Let messages call an object by the first variable that holds it; no two have the same label."""
        if made.label == f"a {made.kind}":
            count = self._labels[name] = self._labels.get(name, 0) + 1
            made.label = name if count == 1 else f"{name} ({count})"

    def label(self, space: Space, cell: Any) -> str:
        if isinstance(space, Scope):
            return str(cell)
        if space.label == f"a {space.kind}":
            self.named(space, space.label.removeprefix("a "))
        return space.label if cell in (CONTENT, EACH) else f"{space.label}.{cell}"

    def snapshot(self) -> Snapshot:
        return {space: dict(space.variables) for space in self._spaces}

    def restore(self, held: Snapshot) -> None:
        """Go back to an earlier state; objects that were made since are left as they are."""
        for space, variables in held.items():
            space.variables.clear()
            space.variables.update(variables)

    def changed(self, since: Snapshot) -> dict[tuple[Space, Any], Any]:
        """The cells of older objects that hold something else by now, and what they hold."""
        return {
            (space, cell): space.variables.get(cell)
            for space, before in since.items()
            for cell in {**before, **space.variables}
            if space.variables.get(cell) is not before.get(cell)
        }


class Interpreting(Reader, Protocol):
    """The interpreter, as the files of this folder see it."""

    heap: Heap
    injected: dict[str, Any]
    loops: int  # How many are around the statement that is read.

    def statement(self, node: ast.stmt, scope: Scope) -> None: ...
    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None: ...
    def sides(self, test: Any, sides: Sequence[Callable[[], Any]], but: Scope | None = None) -> list[Any]: ...
    def inverse(self, condition: Any) -> Any: ...
    def choose(self, condition: Any, left: Any, right: Any) -> Any: ...
    def when(self, test: Any, how: str, term: Any) -> Any: ...


def _holds_objects(value: Any) -> bool:
    if isinstance(value, Items):
        return any(map(_holds_objects, value.values))
    return is_object(value) or (isinstance(value, Listing) and _holds_objects(value.element))


def split(value: Any) -> tuple[Mutable, tuple[Any, ...]] | None:
    """A mutable object, and the keys that say which one of many it is; None: the value is none."""
    if isinstance(value, Mutable):
        return value, ()
    return (value.of, value.keys) if isinstance(value, Member) else None


def read(run: Interpreting, value: Any) -> Any:
    """What a value is now, for code that only looks at it: lists and dicts as what they hold."""
    if isinstance(value, Items):
        is_plain = not _holds_objects(value)
        return value if is_plain else Items(tuple(read(run, item) for item in value.values), value.is_list)
    if isinstance(value, Listing) and _holds_objects(value.element):
        many = value.element
        if isinstance(many, Mutable) and many.is_many and len(value.axes) == 1:
            # Objects that a comprehension made, one for every place.
            is_filled = any(isinstance(cell, (Terms, Sum)) for cell in many.variables.values())
            many = Member(many, (variable(run.lift, value.axes[0]),)) if is_filled else many
        return replace(value, element=read(run, many))
    parts = split(value)
    if parts is None:
        return value
    held, keys = parts
    if held.kind == "list":
        return read(run, load(run, held, CONTENT, keys))
    return _dictionary(run, held, keys) if held.kind == "dict" else value


def is_blank(value: Any) -> bool:
    """Whether a value holds constants alone, so that it is the same at every step of a loop."""
    if isinstance(value, Mutable):
        return all(is_blank(one) for one in value.variables.values())
    if isinstance(value, Items):
        return all(is_blank(one) for one in value.values)
    return isinstance(value, Known) or (isinstance(value, Listing) and value.keep is None and is_blank(value.element))


def load(run: Interpreting, held: Mutable, cell: Any, keys: tuple[Any, ...]) -> Any:
    """What a cell holds, for the one of many objects that has these keys."""
    value = held.variables.get(cell)
    if isinstance(value, Refused):
        raise Refused(value.reason, value.code)
    if isinstance(value, Sum) and value.entry is None and keys:
        return Sum(value.name, entry=(held, cell, keys))
    if isinstance(value, Terms):
        return keyed_terms.value_at(run.lift, value, keys)
    return value


def is_carried(held: Mutable) -> bool:
    """Whether a loop that is being read changes a dict: what it holds differs from step to step."""
    each = held.variables.get(EACH)
    if isinstance(each, Mutable):
        return any(isinstance(value, Sum) for value in each.variables.values()) or is_carried(each)
    return isinstance(each, Sum)


def _dictionary(run: Interpreting, held: Mutable, keys: tuple[Any, ...]) -> Any:
    if is_carried(held):
        return Sum(run.heap.label(held, EACH))
    if all_terms(held):
        return keys_of(run, held, keys)
    constant = {key: value for key, value in held.variables.items() if key != EACH}
    if held.made is not None:
        whole, written = held.made
        if constant.keys() == written.keys() and all(constant[key] is value for key, value in written.items()):
            return whole
    return Record({key: read(run, load(run, held, key, keys)) for key in constant})


def all_terms(held: Mutable) -> list[tuple[Any, Terms]]:
    """The terms under which a dict has entries, with the cell that holds them."""
    each = held.variables.get(EACH)
    if isinstance(each, Terms):
        return [(EACH, each)]
    if isinstance(each, Mutable):
        return [(cell, value) for cell, value in each.variables.items() if isinstance(value, Terms)]
    return []


def keys_of(run: Interpreting, held: Mutable, keys: tuple[Any, ...]) -> Bag:
    """The keys that a dict has entries for."""
    found = all_terms(held)
    if keys or any(key != EACH for key in held.variables) or not found:
        raise Refused("The keys of a dict depend on the data in a way that has no array form.", "FO107")
    # Where every entry has several parts, each has all of the keys.
    listing = keyed_terms.keys_in(run.lift, found[0][1])
    run.lift.changes.add("FO107")
    entries = listing_to_tensor(run.lift, listing)
    if entries.rank != 1:
        raise Refused("The keys of a dict that nested loops filled.", "FO107")
    return Bag(replace(entries, is_host=True))


def is_object(value: Any) -> bool:
    return isinstance(value, (Mutable, Member))


def constant_key(key: Any) -> Any:
    """A key that is known now, to be hashed; None: it depends on the data."""
    if isinstance(key, Known):
        return (key.value,)
    if isinstance(key, Items) and all(isinstance(item, Known) for item in key.values):
        return (tuple(item.value for item in key.values),)
    return None


def write(run: Interpreting, held: Any, cell: Any, kind: str, keys: tuple[Any, ...], value: Any) -> None:
    """Leave a term; `held` is a mutable object, or the scope of an array."""
    if run.lift.masks and not run.loops:
        raise Refused("An entry is changed on one side of a branch.", "FO202")
    before = held.variables.get(cell)
    term = Items((*keys, value))
    if isinstance(before, Sum):
        if before.how not in (None, kind):
            raise Refused(
                f"The entries of {before.name!r} are carried from step to step in more than one way.", "FO106"
            )
        terms = before.terms
        if kind == "sums" and terms and is_nothing(terms[-1]):
            # The zero that an entry of these keys begins with.
            terms = terms[:-1] if keyed_terms.are_same(Items(terms[-1].values[:-1]), Items(keys)) else terms
        held.variables[cell] = Sum(before.name, kind, (*terms, term))
        return
    parts = before.parts if isinstance(before, Terms) else ()
    base = before.base if isinstance(before, Terms) else before
    if isinstance(before, Terms) and before.kind != kind:
        raise Refused("The entries of a dict are changed in more than one way.", "FO106")
    base = None if isinstance(base, Items) and not base.values else base
    held.variables[cell] = Terms(kind, (*parts, Listing(term, ())), base)


def is_nothing(term: Any) -> bool:
    """Whether a term is a zero under its keys."""
    last = term.values[-1] if isinstance(term, Items) and term.values else None
    return isinstance(last, Known) and bool(last.value == 0)


def made_by(run: Interpreting, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A list or dict that a function of Python's makes; None: it makes none, or a constant."""
    make = run.heap.make
    if path in ("builtins.list", "builtins.dict", "collections.OrderedDict") and not args:
        if path == "builtins.list":
            return make("list", Items((), True))
        made = make("dict")
        made.variables.update(kwargs)
        return made
    if path == "collections.Counter" and not kwargs and len(args) < 2:
        made = make("dict", default="number")
        if args:
            flow = stream(run.lift, read(run, args[0]))
            if isinstance(flow, Items):
                raise Refused("A Counter of constants.", "FO106")
            run.lift.changes.add("FO101")
            term = Listing(Items((flow.element, number(run.lift, 1))), flow.axes, flow.keep)
            made.variables[EACH] = Terms("sums", (term,))
        return made
    if path == "collections.defaultdict" and len(args) == 1 and not kwargs:
        return make("dict", default=_factory(run, args[0]))
    return None


def _factory(run: Interpreting, function: Any) -> Any:
    """What a `defaultdict` makes of a missing key."""
    if isinstance(function, Known) and function.value in (int, float):
        return "number"
    made = calls.apply(run, function, calls.path_to(function), [], {})
    if isinstance(made, Known) and made.value == 0:
        return "number"
    if isinstance(made, Mutable):
        return made
    raise Refused("A defaultdict of other than numbers, lists and dicts.", "FO106")


def instance(run: Interpreting, kind: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`Class(...)` of a small class of the user's; None: it is none."""
    if type(kind) is not type or kind.__mro__ != (kind, object) or not _holds_only_methods(kind):
        return None
    made = run.heap.make("object", of=kind)
    run.heap.named(made, kind.__name__.lower())
    if "__init__" in vars(kind):
        run.users_function(vars(kind)["__init__"], [made, *args], kwargs)
    elif args or kwargs:
        return None
    return made


def _holds_only_methods(kind: type) -> bool:
    for name, held in vars(kind).items():
        function = held.fget if isinstance(held, property) else held
        is_method = isinstance(function, types.FunctionType) and function.__code__.co_name == name
        if name in _OWN_WAYS or not (is_method or name in vars(_Plain)):
            return False
    return True


_OWN_WAYS = ("__getattr__", "__setattr__", "__getattribute__", "__slots__")


class _Plain:
    """What a class has that defines nothing."""
