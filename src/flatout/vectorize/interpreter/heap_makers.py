"""Where mutable lists, dicts and objects come from: Python's own makers, and small classes of the user's."""

from __future__ import annotations

import types
from typing import Any

from flatout.vectorize.arrays.algebra import number
from flatout.vectorize.arrays.lifted_values import EACH, Items, Known, Listing, Mutable, Refused, Terms
from flatout.vectorize.calls import calls
from flatout.vectorize.loops.iterated_axes import stream

from .heap import read


def made_by(run: Any, path: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
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


def _factory(run: Any, function: Any) -> Any:
    """What a `defaultdict` makes of a missing key."""
    if isinstance(function, Known) and function.value in (int, float):
        return "number"
    made = calls.apply(run, function, calls.path_to(function), [], {})
    if isinstance(made, Known) and made.value == 0:
        return "number"
    if isinstance(made, Mutable):
        return made
    raise Refused("A defaultdict of other than numbers, lists and dicts.", "FO106")


def instance(run: Any, kind: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
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
