"""What Python's own functions give: `range`, `zip`, `len`, `float`, `set`, and those of itertools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from . import operation_results as operations
from .abstract_values import (
    GROUPS,
    STATIC,
    UNKNOWN,
    Bound,
    Counter,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Unknown,
    Value,
    Variable,
    data_in,
    merge,
    on_host,
)

_Arguments = list[Value]
_Keywords = Mapping[str, Value]


def _number(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else Static("number")
    if isinstance(first, Data):
        return dataclasses.replace(first, axes=(), on_host=True, differentiable=False, loop=None)
    if isinstance(first, Variable):
        return Data(axes=(), on_host=True)
    if isinstance(first, (Size, Counter, Static)):
        return Static("number") if isinstance(first, Static) and first.tag == "text" else first
    return first if isinstance(first, Unknown) else Static("number")


def _range(arguments: _Arguments, keywords: _Keywords) -> Value:
    if not arguments:
        return UNKNOWN
    bound = arguments[0] if len(arguments) == 1 else arguments[1]
    start = arguments[0] if len(arguments) > 1 else Static("number", number=0)
    if isinstance(bound, Static) and not isinstance(start, Static):
        bound = start
    length = None
    if isinstance(bound, Static) and bound.number is not None and isinstance(start, Static):
        length = max(0, int(bound.number - (start.number or 0)))
    return Bound(bound, length)


def _length(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else UNKNOWN
    if isinstance(first, Data):
        return Size(first.axes[0] if first.axes else STATIC)
    if isinstance(first, Sequence):
        return Size(first.label) if first.label != STATIC else Static("number", number=first.length)
    if isinstance(first, Tuple):
        return Static("number", number=len(first.items))
    if isinstance(first, Static):
        return Static("number", number=first.length)
    return Static("number") if isinstance(first, Shape) else UNKNOWN


def _listed(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else Static("list", length=0)
    if isinstance(first, Data):
        return Sequence(operations.first_element(first), first.axes[0] if first.axes else STATIC)
    if isinstance(first, Together) and first.how == "zip":
        return first
    return first


def _set(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else Static("list", length=0)
    found = data_in([first])
    if found:
        element = dataclasses.replace(found[0], axes=found[0].axes[1:] if isinstance(first, Data) else found[0].axes)
        return Sequence(element, GROUPS, True)
    return first


def _sorted(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else UNKNOWN
    return _listed([first], keywords) if isinstance(first, Data) else first


def _sum(arguments: _Arguments, keywords: _Keywords) -> Value:
    found = data_in(arguments)
    if found:
        return operations.elementwise(list(found))
    return UNKNOWN if _holds_unknown(arguments) else Static("number")


def _holds_unknown(values: _Arguments) -> bool:
    """Whether anything in values, or in the lists among them, is not known."""
    inside = [item for one in values for item in (one.items if isinstance(one, Tuple) else (one,))]
    return any(isinstance(one.element if isinstance(one, Sequence) else one, Unknown) for one in inside)


def _extreme(arguments: _Arguments, keywords: _Keywords) -> Value:
    found = data_in(arguments)
    if found:
        return dataclasses.replace(operations.elementwise(list(found)), role="max", axes=())
    sizes = [one for one in arguments if isinstance(one, Size)]
    if sizes:
        return sizes[0]
    return UNKNOWN if _holds_unknown(arguments) else Static("number")


def _same(arguments: _Arguments, keywords: _Keywords) -> Value:
    return arguments[0] if arguments else UNKNOWN


def _boolean(arguments: _Arguments, keywords: _Keywords) -> Value:
    found = data_in(arguments)
    if found and all(on_host(one) for one in found):
        return Data(found[0].origins, axes=(), on_host=True, role="mask")
    return Static("number")


def _zip(arguments: _Arguments, keywords: _Keywords) -> Value:
    return Together(tuple(arguments), "zip")


def _enumerate(arguments: _Arguments, keywords: _Keywords) -> Value:
    return Together(tuple(arguments[:1]), "enumerate")


def _product(arguments: _Arguments, keywords: _Keywords) -> Value:
    repeat = keywords.get("repeat")
    times = int(repeat.number) if isinstance(repeat, Static) and repeat.number else 1
    return Together(tuple(arguments) * times, "product")


def _pairs(arguments: _Arguments, keywords: _Keywords) -> Value:
    first = arguments[0] if arguments else UNKNOWN
    count = arguments[1] if len(arguments) > 1 else None
    times = int(count.number) if isinstance(count, Static) and count.number else 2
    return Together((first,) * times, "product")


def _indices(arguments: _Arguments, keywords: _Keywords) -> Value:
    """`numpy.ndindex(a, b)`, `numpy.ndindex(x.shape)`."""
    first = arguments[0] if arguments else UNKNOWN
    if isinstance(first, Shape):
        return Together(tuple(Bound(Size(axis)) for axis in first.axes), "product")
    sizes = first.items if isinstance(first, Tuple) else tuple(arguments)
    return Together(tuple(_range([size], {}) for size in sizes), "product")


def _chained(arguments: _Arguments, keywords: _Keywords) -> Value:
    result = arguments[0] if arguments else UNKNOWN
    for one in arguments[1:]:
        result = merge(result, one)
    return result


_Handler = Callable[[_Arguments, _Keywords], Value]
ITERTOOLS: dict[str, _Handler] = {
    "itertools.product": _product,
    "itertools.combinations": _pairs,
    "itertools.permutations": _pairs,
    "itertools.combinations_with_replacement": _pairs,
    "itertools.pairwise": lambda arguments, keywords: Together((*arguments[:1], *arguments[:1]), "zip"),
    "itertools.chain": _chained,
    "itertools.islice": _same,
    "itertools.zip_longest": _zip,
    "numpy.ndindex": _indices,
}
BUILTINS: dict[str, _Handler] = {
    **ITERTOOLS,
    "float": _number,
    "int": _number,
    "bool": _number,
    "complex": _number,
    "round": _same,
    "abs": _same,
    "range": _range,
    "len": _length,
    "list": _listed,
    "tuple": _listed,
    "set": _set,
    "frozenset": _set,
    "sorted": _sorted,
    "reversed": _same,
    "iter": _same,
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "any": _boolean,
    "all": _boolean,
    "zip": _zip,
    "enumerate": _enumerate,
    "isinstance": lambda arguments, keywords: Static("number"),
    "hasattr": lambda arguments, keywords: Static("number"),
    "callable": lambda arguments, keywords: Static("number"),
    "str": lambda arguments, keywords: Static("text"),
    "open": lambda arguments, keywords: Static("file"),
    "print": lambda arguments, keywords: Static("none"),
    "dict": lambda arguments, keywords: Static("dict"),
}
