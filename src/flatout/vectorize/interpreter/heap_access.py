"""What the user's code does with mutable lists, dicts and objects: entries, attributes, methods."""

from __future__ import annotations

import types
from functools import partial
from typing import Any

from flatout.vectorize.arrays.algebra import number, opened, operated
from flatout.vectorize.arrays.lifted_values import (
    CONTENT,
    EACH,
    Host,
    Items,
    Known,
    Listing,
    Member,
    Method,
    Mutable,
    Question,
    Refused,
    Splice,
    Sum,
    Tensor,
    Terms,
    WrongRank,
)
from flatout.vectorize.calls import methods, value_parts
from flatout.vectorize.loops import keyed_terms
from flatout.vectorize.loops.iterated_axes import stream
from flatout.vectorize.loops.loop_totals import join, recurrence

from .heap import Interpreting, all_terms, constant_key, is_carried, keys_of, load, read, split, write


def entry(run: Interpreting, of: Any, key: Any) -> Any:
    """`of[key]`, as the object that is there where it is one."""
    held, keys = split(of)  # type: ignore[misc]
    if held.kind == "list":
        return _place(run, held, keys, key)
    if held.kind != "dict":
        raise Refused("An object is indexed.")
    return _of(run, held, constant_key(key)[0], keys) if _has(held, key) else _keyed(run, held, keys, key)


def _has(held: Mutable, key: Any) -> bool:
    """Whether a dict has an entry under a key that is known now."""
    known = constant_key(key)
    return known is not None and known[0] in held.variables


def _of(run: Interpreting, held: Mutable, cell: Any, keys: tuple[Any, ...]) -> Any:
    """What a cell holds; an object that stands for many, as the one with these keys."""
    value = load(run, held, cell, keys)
    return Member(value, keys) if keys and isinstance(value, Mutable) else value


def _keyed(run: Interpreting, held: Mutable, keys: tuple[Any, ...], key: Any) -> Any:
    if EACH not in held.variables and isinstance(held.default, Mutable):
        held.variables[EACH] = held.default  # It stands for all entries of a `defaultdict`.
    each = held.variables.get(EACH)
    if isinstance(each, Mutable):
        return Member(each, (*keys, key))
    if each is not None:
        return load(run, held, EACH, (*keys, key))
    if held.default == "number":
        return number(run.lift, 0)
    if held.variables:
        return value_parts.pick(run.lift, read(run, Member(held, keys)), [key], False)
    if constant_key(key) is not None:
        raise Refused(f"{held.label!r} has no such key.", "FO401")
    raise Refused(f"An entry of {held.label!r} is read before it is there.", "FO106")


def _place(run: Interpreting, held: Mutable, keys: tuple[Any, ...], at: Any) -> Any:
    content = held.variables.get(CONTENT)
    many = content.element if isinstance(content, Listing) else None
    if isinstance(content, Listing) and isinstance(many, Mutable) and many.is_many and not isinstance(at, slice):
        if not isinstance(at, (Known, Host, Tensor)):
            raise Refused("A list is read at a place that is not known.")
        return Member(many, (*keys, _from_the_start(run, at, content)))
    if isinstance(content, Sum) and isinstance(at, (Known, Host, Tensor)):
        return Sum(content.name, entry=(held, CONTENT, (*keys, at)))
    if isinstance(content, Items) and isinstance(at, Known) and isinstance(at.value, int):
        if not -len(content.values) <= at.value < len(content.values):
            raise WrongRank(f"Place {at.value} of {len(content.values)}.")
        found = content.values[at.value]
        return Member(found, keys) if keys and isinstance(found, Mutable) else found
    return value_parts.pick(run.lift, read(run, Member(held, keys)), [at], False)


def _from_the_start(run: Interpreting, at: Any, content: Listing) -> Any:
    """A place of a list, of which Python counts a negative one from the end."""
    if isinstance(at, Tensor) and at.position is not None:
        return at
    if isinstance(at, Known) and at.value >= 0:
        return at
    assert content.axes[0].size is not None
    return operated(run.lift, "%", at, Host(content.axes[0].size))


def set_entry(run: Interpreting, of: Any, key: Any, value: Any) -> None:
    """`of[key] = value`."""
    held, keys = split(of)  # type: ignore[misc]
    if held.kind == "list":
        _set_place(run, held, keys, key, value)
        return
    if held.kind != "dict":
        raise Refused("An entry of an object is set.", "FO303")
    known = constant_key(key)
    is_own = isinstance(value, Sum) and value.entry is not None and value.entry[0] is held
    if known is not None and not keys and (known[0] in held.variables or not is_own):
        if EACH in held.variables and all_terms(held) and known[0] not in held.variables:
            raise Refused("A dict is filled by constants and by values of the data.", "FO106")
        held.variables[known[0]] = value
        return
    if known is not None and known[0] in held.variables:
        change(run, held, known[0], keys, value)
        return
    if any(cell != EACH for cell in held.variables):
        raise Refused(f"An entry is changed: {held.label}[...]", "FO106")
    is_object = isinstance(held.variables.get(EACH), Mutable) or split(value) is not None
    if is_object:
        _set_object(run, held, (*keys, key), value)
    else:
        change(run, held, EACH, (*keys, key), value)


def _set_object(run: Interpreting, held: Mutable, keys: tuple[Any, ...], value: Any) -> None:
    """`parts[g] = [x]`, `stats[g] = {"n": 0}`: the first of an entry that loops fill."""
    each = held.variables.get(EACH)
    if isinstance(value, Member) and value.of is each and keyed_terms.are_same(Items(value.keys), Items(keys)):
        return
    refused = Refused(f"The entries of {held.label!r} are set to different things.", "FO106")
    fresh, inner = split(value) or (None, ())
    if fresh is None or inner or fresh.kind == "object" or (each is not None and not isinstance(each, Mutable)):
        raise refused
    if each is None:
        each = held.variables[EACH] = run.heap.make(fresh.kind, Items((), True), default=fresh.default)
        if fresh.kind == "dict":
            each.variables.update(fresh.variables)
    if fresh.kind != each.kind or fresh is each:
        raise refused
    if fresh.kind == "list":
        content = opened(run.lift, read(run, fresh))
        if not isinstance(content, Items):
            raise Refused(f"The entries of {held.label!r} are set to lists that a loop filled.", "FO106")
        for item in content.values:
            write(run, each, CONTENT, "lists", keys, item)
        return
    for cell, first in fresh.variables.items():
        if isinstance(first, Mutable) and isinstance(each.variables.get(cell), Mutable):
            continue
        if cell not in each.variables or isinstance(first, (Mutable, Member)):
            raise refused
        is_zero = isinstance(first, Known) and first.value == 0
        write(run, each, cell, "sums" if is_zero else "sets", keys, first)


def change(run: Interpreting, held: Any, cell: Any, keys: tuple[Any, ...], value: Any) -> None:
    """Set the cell of one of many: it grows by a term, or gets a value."""
    if isinstance(value, Sum):
        is_own = value.entry is not None and value.entry[0] is held and value.entry[1] == cell
        is_same = is_own and keyed_terms.are_same(Items(value.entry[2]), Items(keys))  # type: ignore[index]
        kind = {"sum": "sums", "list": "lists", None: ""}.get(value.how)
        if not is_same or kind is None:
            raise recurrence(value)
        for term in value.terms:
            write(run, held, cell, kind, keys, term)
        return
    is_first = isinstance(value, Known) and value.value == 0 and isinstance(value.value, (int, float))
    write(run, held, cell, "sums" if is_first else "sets", keys, read(run, value))


def _set_place(run: Interpreting, held: Mutable, keys: tuple[Any, ...], at: Any, value: Any) -> None:
    """`out[i] = x` of a list."""
    content = held.variables.get(CONTENT)
    if isinstance(value, Sum) and value.entry is not None and value.entry[0] is held:
        change(run, held, CONTENT, (*keys, at), value)
        return
    if keys:
        raise Refused("Entries of a list of lists are set.", "FO106")
    axis, offset = at.position if isinstance(at, Tensor) and at.position else (None, 0)
    if isinstance(content, Sum) and axis is not None and not offset:
        held.variables[CONTENT] = join(run.lift, "entries", content, Splice(Listing(value, ()), (axis,)))
        return
    content = opened(run.lift, content)
    if isinstance(content, Items) and isinstance(at, Known) and isinstance(at.value, int):
        values = list(content.values)
        values[at.value] = value
        held.variables[CONTENT] = Items(tuple(values), True)
        return
    if not isinstance(content, Sum):
        # Whatever is there: that it changes is what the loop must find out.
        held.variables[CONTENT] = Items((value,), True)
        if run.loops:
            return
    raise Refused(f"An entry is changed: {held.label}[...]", "FO106")


def attribute(run: Interpreting, of: Any, name: str) -> Any:
    """`of.name`."""
    held, keys = split(of)  # type: ignore[misc]
    if held.kind != "object":
        return Method(of, name)
    if name in held.variables:
        return _of(run, held, name, keys)
    function = vars(held.of).get(name)
    if isinstance(function, property):
        return run.users_function(function.fget, [of], {})
    if isinstance(function, types.FunctionType):
        return Method(of, name)
    raise Refused(f"There is no attribute {name!r}.")


def set_attribute(run: Interpreting, of: Any, name: str, value: Any) -> None:
    """`of.name = value`."""
    held, keys = split(of)  # type: ignore[misc]
    if held.kind != "object":
        raise Refused(f"An attribute is changed: {name}", "FO303")
    if keys:
        change(run, held, name, keys, value)
    else:
        held.variables[name] = value


def method(run: Interpreting, of: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`of.name(*args, **kwargs)`."""
    held, keys = split(of)  # type: ignore[misc]
    if held.kind == "object":
        return run.users_function(vars(held.of)[name], [of, *args], kwargs)
    none = Known(None, run.lift.graph.const(None))
    words = {word: read(run, value) for word, value in kwargs.items()}
    if held.kind == "list":
        if name in ("append", "extend") and len(args) == 1 and not kwargs:
            extend(run, of, Items((args[0],), True) if name == "append" else read(run, args[0]))
            return none
        if name == "sort" and not args:
            content = read(run, held)
            if keys or isinstance(content, Sum):
                raise Refused(f"The list {held.label!r} is sorted while it is filled.", "FO106")
            held.variables[CONTENT] = run.handlers["builtins.sorted"](run, [content], words)
            return none
        if name == "copy" and not args:
            return run.heap.make("list", read(run, of))
        if name in ("insert", "pop", "remove", "clear", "reverse"):
            raise Refused(f"The list {held.label!r} is changed by .{name}(), which has no array form.", "FO106")
    elif name in _OF_DICTS:
        return _OF_DICTS[name](run, of, args)
    return methods.method(run, read(run, of), name, [read(run, value) for value in args], words)


def extend(run: Interpreting, of: Any, added: Any) -> None:
    """`of.append(x)`, `of.extend(xs)`, `of += xs`."""
    held, keys = split(of)  # type: ignore[misc]
    content, added = opened(run.lift, held.variables.get(CONTENT)), opened(run.lift, added)
    if keys:
        if not isinstance(added, Items):
            raise Refused(f"The list {held.label!r} is filled in a way that has no array form.", "FO106")
        for item in added.values:
            write(run, held, CONTENT, "lists", keys, item)
        return
    if isinstance(content, Items) and isinstance(added, Items):
        held.variables[CONTENT] = Items((*content.values, *added.values), True)
    elif isinstance(content, (Items, Listing)) and isinstance(added, (Items, Listing)):
        held.variables[CONTENT] = keyed_terms.joined(run.lift, [content, added])
    elif isinstance(content, Sum) and content.how in (None, "list") and isinstance(added, (Items, Listing)):
        terms = added.values if isinstance(added, Items) else (Splice(added),)
        held.variables[CONTENT] = Sum(content.name, "list", (*content.terms, *terms))
    else:
        raise Refused(f"The list {held.label!r} is filled in a way that has no array form.", "FO106")


def _get(run: Interpreting, of: Any, args: list[Any]) -> Any:
    held, keys = split(of)  # type: ignore[misc]
    key, *rest = args
    if _has(held, key):
        return entry(run, of, key)
    constant = any(cell != EACH for cell in held.variables)
    if EACH in held.variables and not constant and rest:
        first = read(run, rest[0])
        if (isinstance(first, Known) and first.value == 0) or (isinstance(first, Items) and not first.values):
            return _keyed(run, held, keys, key)
        raise Refused("A dict is read with get() and a default that is not nothing.", "FO401")
    if constant_key(key) is not None or (not held.variables and run.loops):
        return rest[0] if rest else Known(None, run.lift.graph.const(None))
    return methods.method(run, read(run, of), "get", [key, *(read(run, one) for one in rest)], {})


def _setdefault(run: Interpreting, of: Any, args: list[Any]) -> Any:
    held, _ = split(of)  # type: ignore[misc]
    key, first = args
    if not _has(held, key) and not isinstance(held.variables.get(EACH), Mutable):
        set_entry(run, of, key, first)
    return entry(run, of, key)


def _update(run: Interpreting, of: Any, args: list[Any]) -> Any:
    (given,) = args
    other = split(given)
    if other is None or other[1] or EACH in other[0].variables:
        raise Refused("A dict is updated with what depends on the data.", "FO106")
    for key, value in other[0].variables.items():
        set_entry(run, of, number(run.lift, key), value)
    return Known(None, run.lift.graph.const(None))


def _entries(name: str, run: Interpreting, of: Any, args: list[Any]) -> Any:
    """`.values()`, `.items()`, `.keys()` of a dict, which a loop may have filled by keys of the data."""
    held, keys = split(of)  # type: ignore[misc]
    if is_carried(held):
        raise Refused(f"{held.label!r} is read while a loop carries it from step to step.", "FO106")
    if not all_terms(held):
        return methods.method(run, read(run, of), name, [], {})
    each = held.variables[EACH]
    if name != "keys" and isinstance(each, Terms) and each.kind == "sets" and not keys:
        flow: Any = keyed_terms.last_ones(run.lift, each)
        run.lift.changes.add("FO107")
        key, value = flow.element.values
    else:
        found = keys_of(run, held, keys)
        if name == "keys":
            return found
        flow = stream(run.lift, found)
        key, value = flow.element, read(run, _keyed(run, held, keys, flow.element))
    return Listing(Items((key, value)) if name == "items" else value, flow.axes, flow.keep)


_OF_DICTS: dict[str, Any] = {
    "get": _get, "setdefault": _setdefault, "update": _update,
    **{name: partial(_entries, name) for name in ("values", "items", "keys")},
}  # fmt: skip


def contains(run: Interpreting, key: Any, group: Any, negate: bool) -> Any:
    """`key in group` of a dict that may be filled by keys of the data; None: it is another kind of group."""
    parts = split(group)
    if parts is None or parts[0].kind != "dict":
        return None
    held, keys = parts
    if _has(held, key):
        return number(run.lift, not negate)
    if is_carried(held):
        return Question(Sum(held.label), "not in" if negate else "in")
    if not all_terms(held):
        return None if held.variables.keys() - {EACH} else number(run.lift, negate)
    return value_parts.contains(run.lift, key, keys_of(run, held, keys), negate)
