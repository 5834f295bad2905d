"""Comparisons that Python makes in 64 bits, made in 32 with the same outcome.

`float(x) > 0.3` is true for the number of 32 bits next above 0.3, which is what 0.3 becomes on the device: there
`x > 0.3` is false. The bound is rounded away from the side that counts, or the operator changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .expression_graph import Node
from .lifted_values import Known, Refused, Tensor
from .lifting import Lifting

BLURRED = (
    "Python computes in 64 bits what is rounded or compared here; a value that is within rounding (1e-7 of itself) of "
    "a bound may fall on its other side."
)
_ROUNDED_UP = {">": ">=", "<=": "<"}
_ROUNDED_DOWN = {">=": ">", "<": "<="}
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "==", "!=": "!="}
_MOST_WRITTEN_OUT = 64


# Up to here a float of 32 bits holds halves: between it and a whole number a comparison is right.
_HALVES = 2**23


def fits(number: float) -> bool:
    """Whether a number has a float of 32 bits that equals it."""
    with np.errstate(over="ignore"):
        return bool(np.isnan(number)) or float(np.float32(number)) == number


def _all_fit(numbers: np.ndarray) -> bool:
    return numbers.dtype != np.float64 or all(map(fits, numbers.ravel()))


def refuse_remainder(value: Tensor, by: Any) -> None:
    """`float(x) // 0.3`: every multiple of 0.3 in the data would be counted by how it is rounded."""
    is_python = value.is_wide or value.is_blurred
    if is_python and isinstance(by, Known) and isinstance(by.value, float) and not fits(by.value):
        raise Refused(f"A remainder by {by.value!r}, which Python takes in 64 bits and a tensor in 32.", "FO201")


def note_blurred(lift: Lifting, value: Any) -> None:
    """Say that a value near a bound may fall on its other side."""
    if isinstance(value, Tensor) and value.is_blurred:
        lift.note(BLURRED)


def compared(lift: Lifting, symbol: str, left: Any, right: Any) -> tuple[str, Any, Any]:
    """The operator and the values that give in 32 bits what `left symbol right` gives in the user's code."""
    if symbol not in _MIRRORED:
        return symbol, left, right
    for value in (left, right):
        note_blurred(lift, value)
    if found := _against(lift, symbol, left, right):
        return found[0], left, found[1]
    if found := _against(lift, _MIRRORED[symbol], right, left):
        return _MIRRORED[found[0]], found[1], right
    return symbol, left, right


def _against(lift: Lifting, symbol: str, value: Any, bound: Any) -> tuple[str, Any] | None:
    if not isinstance(value, Tensor) or not value.is_host:
        return None
    if value.kind == "int" and symbol not in ("==", "!=") and isinstance(bound, Known):
        is_large = isinstance(bound.value, float) and _HALVES <= abs(bound.value) < np.inf
        return (symbol, _whole_bound(lift, symbol, bound)) if is_large else None
    if value.kind not in ("float", "any"):
        return None
    if isinstance(bound, Known):
        is_wide = isinstance(bound.value, np.float64) or (value.is_wide and isinstance(bound.value, float))
        return _constant(lift, symbol, bound) if is_wide and not fits(bound.value) else None
    again = lift.entries.get(bound.node) if isinstance(bound, Tensor) else None
    return (symbol, again(symbol)) if again is not None and value.is_wide else None


def _constant(lift: Lifting, symbol: str, bound: Known) -> tuple[str, Known]:
    graph = lift.graph
    if bound.node.kind != "const":
        lift.guards.append((graph.binary("==", bound.node, graph.const(float(bound.value))), True))
    if symbol in ("==", "!="):  # No number of 32 bits equals it.
        return symbol, Known(float("nan"), graph.make("const", 'float("nan")'))
    with np.errstate(over="ignore"):
        is_up = float(np.float32(bound.value)) > bound.value
    return (_ROUNDED_UP if is_up else _ROUNDED_DOWN).get(symbol, symbol), bound


def _whole_bound(lift: Lifting, symbol: str, bound: Known) -> Known:
    """The whole number that says of others what a float does."""
    graph, known = lift.graph, _next_whole(bound.value, symbol)
    if bound.node.kind != "const":
        lift.guards.append((graph.binary("==", bound.node, graph.const(bound.value)), True))
    return Known(known, graph.const(known))


def _next_whole(number: float, symbol: str) -> int:
    return math.floor(number) if symbol in (">", "<=") else math.ceil(number)


def whole_bounds(lift: Lifting, values: Known, symbol: str) -> Known:
    """Numbers that whole ones are compared with by an operator, as whole ones."""
    if np.asarray(values.value).dtype.kind in "iu":
        return values
    made = [_next_whole(number, symbol) for number in np.asarray(values.value).tolist()]
    return Known(made, _watched(lift, values, made))


def remember(
    lift: Lifting, made: Tensor, content: np.ndarray, values: Known, look_up: Callable[[Known], Tensor]
) -> Tensor:
    """Keep how an entry of a table was looked up, for comparisons with it; `look_up` does it in another column."""
    if not _all_fit(content):
        lift.entries[made.node] = lambda symbol: look_up(rounded(lift, values, symbol))
    return made


def rounded(lift: Lifting, values: Known, symbol: str) -> Known:
    """Numbers of 64 bits that are compared by an operator, in 32; the rewrite holds while they stay as they are."""
    content = np.asarray(values.value)
    if _all_fit(content):
        return values
    if content.ndim != 1 or content.size > _MOST_WRITTEN_OUT:
        raise Refused("A value is compared in 64 bits with the numbers of a large table.", "FO401")
    made = [_rounded(number, symbol) for number in content.tolist()]
    return Known(np.asarray(made, "float32"), _watched(lift, values, made))


def _watched(lift: Lifting, values: Known, instead: Sequence[Any]) -> Node:
    """Other numbers for those of a constant, which hold while it stays as it is."""
    graph = lift.graph
    known = graph.make("raw", _written(np.asarray(values.value).tolist()))
    is_listed = isinstance(values.value, (list, tuple))
    listed = graph.call("list", values.node) if is_listed else graph.method(values.node, "tolist")
    if values.node.kind != "const":
        lift.guards.append((graph.binary("==", listed, known), True))
    return graph.make("raw", _written(instead))


def _rounded(number: float, symbol: str) -> np.float32:
    """The bound of 32 bits that `x symbol number` asks for."""
    with np.errstate(over="ignore"):
        near = np.float32(number)
    if fits(number):
        return near
    if symbol in ("==", "!="):
        return np.float32("nan")
    is_below, goes_below = float(near) < number, symbol in (">", "<=")
    return near if is_below == goes_below else np.nextafter(near, np.float32("-inf" if goes_below else "inf"))


def _written(numbers: Sequence[Any]) -> str:
    texts = [str(number) if np.isfinite(number) else f'float("{number}")' for number in numbers]
    return f"[{', '.join(texts)}]"
