"""What Python's own functions give: `range`, `zip`, `len`, `float`, `set`, and those of itertools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .abstract_values import (
    GROUPS,
    STATIC,
    UNKNOWN,
    AbstractValue,
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
    Variable,
    data_in,
    merge_all,
    whole_number,
)
from .given import Given
from .operation_results import elementwise, first_element, read_on_host

_Handler = Callable[[Given], AbstractValue]
_NUMBER = Static("number")
_EMPTY = Static("list", length=0)


def _number(given: Given) -> AbstractValue:
    first = given.values[0] if given.values else _NUMBER
    if isinstance(first, Data):
        return dataclasses.replace(read_on_host(first), axes=(), loop=None)
    if isinstance(first, Variable):
        return Data(axes=(), on_host=True)
    is_text = isinstance(first, Static) and first.tag == "text"
    return first if isinstance(first, (Size, Counter, Static, Unknown)) and not is_text else _NUMBER


def _range(given: Given) -> AbstractValue:
    if not given.values:
        return UNKNOWN
    bound = given.values[0] if len(given.values) == 1 else given.values[1]
    return _counted(bound, given.values[0] if len(given.values) > 1 else Static("number", number=0))


def _counted(bound: AbstractValue, start: AbstractValue) -> Bound:
    if isinstance(bound, Static) and not isinstance(start, Static):
        bound = start
    length = None
    if isinstance(bound, Static) and bound.number is not None and isinstance(start, Static):
        length = max(0, int(bound.number - (start.number or 0)))
    return Bound(bound, length)


def _length(given: Given) -> AbstractValue:
    first = given.values[0] if given.values else UNKNOWN
    if isinstance(first, Data):
        return Size(first.axes[0] if first.axes else STATIC)
    if isinstance(first, Sequence) and first.label != STATIC:
        return Size(first.label)
    if isinstance(first, Tuple):
        return Static("number", number=len(first.items))
    if isinstance(first, (Static, Sequence)):
        return Static("number", number=first.length)
    return _NUMBER if isinstance(first, Shape) else UNKNOWN


def _listed(otherwise: AbstractValue) -> _Handler:
    """`list`, `sorted`: of data, its entries along the first axis."""

    def listed(given: Given) -> AbstractValue:
        first = given.values[0] if given.values else otherwise
        if isinstance(first, Data):
            return Sequence(first_element(first), first.axes[0] if first.axes else STATIC)
        return first

    return listed


def _set(given: Given) -> AbstractValue:
    first = given.values[0] if given.values else _EMPTY
    found = data_in([first])
    if found:
        axes = found[0].axes[1:] if isinstance(first, Data) else found[0].axes
        return Sequence(dataclasses.replace(found[0], axes=axes), GROUPS, True)
    return first


def _sum(given: Given) -> AbstractValue:
    found = data_in(given.values)
    return elementwise(found) if found else _number_or_unknown(given)


def _extreme(given: Given) -> AbstractValue:
    found = data_in(given.values)
    if found:
        return dataclasses.replace(elementwise(found), role="max", axes=())
    size = next((one for one in given.values if isinstance(one, Size)), None)
    return size or _number_or_unknown(given)


def _number_or_unknown(given: Given) -> AbstractValue:
    """A number, unless something in the values, or in the lists among them, is not known."""
    inside = [item for one in given.values for item in (one.items if isinstance(one, Tuple) else (one,))]
    is_unknown = any(isinstance(one.element if isinstance(one, Sequence) else one, Unknown) for one in inside)
    return UNKNOWN if is_unknown else _NUMBER


def _boolean(given: Given) -> AbstractValue:
    found = data_in(given.values)
    if found and all(one.on_host for one in found):
        return Data(found[0].origins, axes=(), on_host=True, role="mask")
    return _NUMBER


def _product(given: Given) -> AbstractValue:
    return Together(given.values * (whole_number(given.keywords.get("repeat"), 1) or 1), "product")


def _pairs(given: Given) -> AbstractValue:
    times = whole_number(given.values[1], 2) or 2 if len(given.values) > 1 else 2
    return Together((given.values[0] if given.values else UNKNOWN,) * times, "product")


def _indices(given: Given) -> AbstractValue:
    """`numpy.ndindex(a, b)`, `numpy.ndindex(x.shape)`."""
    first = given.values[0] if given.values else UNKNOWN
    if isinstance(first, Shape):
        return Together(tuple(Bound(Size(axis)) for axis in first.axes), "product")
    sizes = first.items if isinstance(first, Tuple) else given.values
    return Together(tuple(_counted(size, Static("number", number=0)) for size in sizes), "product")


def _same(given: Given) -> AbstractValue:
    return given.values[0] if given.values else UNKNOWN


def _always(value: AbstractValue) -> _Handler:
    return lambda given: value


ITERTOOLS: dict[str, _Handler] = {
    "itertools.product": _product,
    "itertools.combinations": _pairs,
    "itertools.permutations": _pairs,
    "itertools.combinations_with_replacement": _pairs,
    "itertools.pairwise": lambda given: Together(given.values[:1] * 2, "zip"),
    "itertools.chain": lambda given: merge_all(given.values),
    "itertools.islice": _same,
    "itertools.zip_longest": lambda given: Together(given.values, "zip"),
    "numpy.ndindex": _indices,
}
BUILTINS: dict[str, _Handler] = {
    **ITERTOOLS,
    **dict.fromkeys(("float", "int", "bool", "complex"), _number),
    **dict.fromkeys(("round", "abs", "reversed", "iter"), _same),
    "range": _range,
    "len": _length,
    **dict.fromkeys(("list", "tuple"), _listed(_EMPTY)),
    "sorted": _listed(UNKNOWN),
    **dict.fromkeys(("set", "frozenset"), _set),
    "sum": _sum,
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("any", "all"), _boolean),
    "zip": lambda given: Together(given.values, "zip"),
    "enumerate": lambda given: Together(given.values[:1], "enumerate"),
    "next": lambda given: Static("object") if given.values else UNKNOWN,
    **dict.fromkeys(("isinstance", "hasattr", "callable"), _always(_NUMBER)),
    "str": _always(Static("text")),
    "open": _always(Static("file")),
    **dict.fromkeys(("print", "setattr"), _always(Static("none"))),
    "dict": _always(Static("dict")),
}
