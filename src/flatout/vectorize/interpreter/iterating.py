"""What Python iterates and counts by: range, zip, enumerate, map, reduce, slices, as values that loops run over."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from flatout.vectorize.arrays.algebra import number, operand
from flatout.vectorize.arrays.indexing import index, listing_to_tensor
from flatout.vectorize.arrays.lifted_values import (
    Items,
    Known,
    Listing,
    Partial,
    Range,
    Refused,
    Several,
    Tensor,
)
from flatout.vectorize.loops.iterated_axes import stream

from .comprehensions import few_steps
from .evaluation import apply_operator


def _range(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Range:
    if len(args) == 1:
        return Range(number(run.lift, 0), args[0])
    return Range(*args)


_MOST_WRITTEN = 24


def _written_out(run: Any, how: str, args: list[Any]) -> Items | None:
    """Other choices than pairs, of a few constants, one by one; None: they are pairs, or many, or of the data."""
    count = [one.value if isinstance(one, Known) else 2 for one in args[1:]]
    steps = few_steps(run, args[0], _MOST_WRITTEN) if count != [2] else None
    if steps is None:
        return None
    chosen = list(itertools.islice(getattr(itertools, how)(steps.values, *count), _MOST_WRITTEN + 1))
    return Items(tuple(Items(tuple(one)) for one in chosen)) if len(chosen) <= _MOST_WRITTEN else None


def _indices(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Several:
    """`numpy.ndindex(a, b)`, `numpy.ndindex(x.shape)`: all places of an array, row by row."""
    sizes = args[0].values if len(args) == 1 and isinstance(args[0], Items) else args
    return Several("product", tuple(Range(number(run.lift, 0), size) for size in sizes))


def _several(how: str) -> Callable[..., Several | Items]:
    def function(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Several | Items:
        if how == "enumerate":
            begin = kwargs.pop("start", args[1] if len(args) > 1 else number(run.lift, 0))
            if not isinstance(begin, Known) or not isinstance(begin.value, int):
                raise Refused("enumerate() with a start that depends on the data.")
            return Several(how, (args[0], begin))
        kwargs.pop("strict", None)
        if how == "product" and kwargs:
            (repeat,) = kwargs.values()
            args = args * int(repeat.value)
        if how in ("combinations", "permutations"):
            written = _written_out(run, how, args)
            if written is not None:
                return written
            if len(args) != 2 or not isinstance(args[1], Known) or args[1].value != 2:
                raise Refused(f"{how.capitalize()} of other than two.", "FO103")
            args = args[:1]
        return Several(how, tuple(args))

    return function


def _pairwise(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Several:
    """`itertools.pairwise(x)`: `zip(x, x[1:])`."""
    (value,) = args
    values = listing_to_tensor(run.lift, value) if isinstance(value, Listing) else value
    if isinstance(values, Known):
        values = operand(run.lift, values)
    if not isinstance(values, Tensor):
        raise Refused("pairwise() of something that is no array.")
    one = number(run.lift, 1)
    return Several("zip", (values, index(run.lift, values, [slice(one, None)])))


def _list(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not args:
        return Items((), True)
    value = args[0]
    if isinstance(value, (Range, Several)):
        flow = stream(run.lift, value)
        return flow if isinstance(flow, Items) else Listing(flow.element, flow.axes, flow.keep)
    if isinstance(value, Known):
        content = list(value.value)
        return Known(content, run.lift.graph.call("list", value.node))
    if isinstance(value, (Items, Listing, Tensor)):
        return value
    raise Refused("A list of something that is no list.")


def _reversed(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    (value,) = args
    if isinstance(value, Items):
        return Items(value.values[::-1], value.is_list)
    return Several("reversed", (value,))


def _divmod(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return Items(tuple(apply_operator(run, symbol, *args) for symbol in ("//", "%")))


def _slice(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`slice(a, b)`, as an index that is written `a:b`."""
    bounds = [None if isinstance(one, Known) and one.value is None else one for one in args]
    return slice(*bounds)


def _partial(run: Any, args: list[Any], kwargs: dict[str, Any]) -> Partial:
    return Partial(args[0], tuple(args[1:]), kwargs)


HANDLERS: dict[str, Callable[..., Any]] = {
    "builtins.divmod": _divmod, "builtins.slice": _slice,
    "functools.partial": _partial, "itertools.permutations": _several("permutations"),
    "builtins.range": _range, "builtins.zip": _several("zip"), "builtins.enumerate": _several("enumerate"),
    "itertools.product": _several("product"), "itertools.combinations": _several("combinations"),
    "itertools.pairwise": _pairwise, "numpy.ndindex": _indices,
    "builtins.list": _list, "builtins.tuple": _list, "builtins.reversed": _reversed,
    "tensorflow.range": _range,
}  # fmt: skip
