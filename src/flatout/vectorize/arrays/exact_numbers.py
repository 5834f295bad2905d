"""Numbers of Python, which have 64 bits or no bound, on a backend that has 32: with the same outcome, or refused.

`float(x) > 0.3` is true for the number of 32 bits next above 0.3, which is what 0.3 becomes on the device: there
`x > 0.3` is false. The bound is rounded away from the side that counts, or the operator changes. Whole numbers are
computed in the backend's widest integers or, where these are too narrow and last digits do not count, as floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .expression_graph import Node
from .lifted_values import Host, Known, Refused, Tensor
from .lifting import Lifting

BLURRED = (
    "Python computes in 64 bits what is rounded or compared here; a value that is within rounding (1e-7 of itself) of "
    "a bound may fall on its other side."
)
_ROUNDED_UP = {">": ">=", "<=": "<"}
_ROUNDED_DOWN = {">=": ">", "<": "<="}
# The comparisons, and how each is said from the other side.
COMPARISONS = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "==", "!=": "!="}
_MOST_WRITTEN_OUT = 64
# Up to here every whole number is a float of 32 bits; up to half of it they hold halves.
_EXACT = 2**24
# Functions that make whole numbers of such.
_WHOLE = ("where", "maximum", "minimum", "add", "subtract", "multiply", "abs")


def fits(number: float) -> bool:
    """Whether a number has a float of 32 bits that equals it."""
    with np.errstate(over="ignore"):
        return bool(np.isnan(number)) or float(np.float32(number)) == number


def _all_fit(numbers: np.ndarray) -> bool:
    return numbers.dtype != np.float64 or all(map(fits, numbers.ravel()))


def refuse_remainder(value: Tensor, by: Any) -> None:
    """`float(x) // 0.3`: every multiple of 0.3 in the data would be counted by how it is rounded."""
    if (value.is_wide or value.is_blurred) and isinstance(by, float) and not fits(by):
        raise Refused(f"A remainder by {by!r}, which Python takes in 64 bits and a tensor in 32.", "FO201")


def note_blurred(lift: Lifting, value: Any) -> None:
    """Say that a value near a bound may fall on its other side."""
    if isinstance(value, Tensor) and value.is_blurred:
        lift.note(BLURRED)


def as_known(lift: Lifting, value: Any) -> Any:
    """A number that a parameter has by default, as a constant; any other value as it is."""
    is_default = isinstance(value, Host) and value.node in lift.numbers
    return Known(lift.numbers[value.node], value.node) if is_default else value


def compared(lift: Lifting, symbol: str, left: Any, right: Any) -> tuple[str, Any, Any]:
    """The operator and the values that give in 32 bits what `left symbol right` gives in the user's code."""
    if symbol not in COMPARISONS:
        return symbol, left, right
    for value in (left, right):
        note_blurred(lift, value)
    if found := _against(lift, symbol, left, right):
        return found[0], left, found[1]
    if found := _against(lift, COMPARISONS[symbol], right, left):
        return COMPARISONS[found[0]], found[1], right
    return symbol, left, right


def _against(lift: Lifting, symbol: str, value: Any, bound: Any) -> tuple[str, Any] | None:
    if not isinstance(value, Tensor) or not value.is_host:
        return None
    if value.kind == "int" and symbol not in ("==", "!=") and isinstance(bound, Known):
        if not isinstance(bound.value, float) or not _EXACT / 2 <= abs(bound.value) < np.inf:
            return None
        lift.stays(bound.node, bound.value)
        known = _next_whole(bound.value, symbol)
        return symbol, Known(known, lift.graph.const(known))
    if value.kind not in ("float", "any"):
        return None
    if isinstance(bound, Known):
        is_wide = isinstance(bound.value, np.float64) or (value.is_wide and isinstance(bound.value, float))
        return _constant(lift, symbol, bound) if is_wide and not fits(bound.value) else None
    again = lift.entries.get(bound.node) if isinstance(bound, Tensor) else None
    return (symbol, again(symbol)) if again is not None and value.is_wide else None


def _constant(lift: Lifting, symbol: str, bound: Known) -> tuple[str, Known]:
    lift.stays(bound.node, float(bound.value))
    if symbol in ("==", "!="):  # No number of 32 bits equals it.
        return symbol, Known(float("nan"), lift.graph.make("const", 'float("nan")'))
    with np.errstate(over="ignore"):
        is_up = float(np.float32(bound.value)) > bound.value
    return (_ROUNDED_UP if is_up else _ROUNDED_DOWN).get(symbol, symbol), bound


def _next_whole(number: float, symbol: str) -> int:
    """The whole number that says of others, by an operator, what a float does."""
    return math.floor(number) if symbol in (">", "<=") else math.ceil(number)


def whole_bounds(lift: Lifting, values: Known, symbol: str) -> Known:
    """Numbers that whole ones are compared with by an operator, as whole ones."""
    content = np.asarray(values.value)
    if content.dtype.kind in "iu":
        return values
    made = [_next_whole(number, symbol) for number in content.tolist()]
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
    is_listed = isinstance(values.value, (list, tuple))
    listed = graph.call("list", values.node) if is_listed else graph.method(values.node, "tolist")
    if values.node.kind != "const":
        lift.guard(graph.binary("==", listed, graph.make("raw", _written(np.asarray(values.value).tolist()))))
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


def integers_for(lift: Lifting, content: Any) -> str:
    """The type of whole numbers that holds all of these."""
    numbers = np.asarray(content)
    for dtype in ("int32", lift.integers):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        if not numbers.size or (least <= int(numbers.min()) and int(numbers.max()) <= most):
            return dtype
    raise Refused(f"A constant needs more than the {lift.integers[3:]} bits that whole numbers have here.", "FO401")


def as_given(lift: Lifting, tensors: list[Tensor]) -> list[Tensor]:
    """Whole numbers of the data that meet each other, in the type that these are of: that holds every one."""
    if not all(tensor.node in lift.wholes for tensor in tensors):
        return tensors
    return [replace(tensor, node=lift.wholes[tensor.node], kind="any") for tensor in tensors]


def rounded_again(lift: Lifting, function: Any, tensors: Sequence[Tensor]) -> bool:
    """Whether a function gives whole numbers as floats once more."""
    if function not in _WHOLE or not any(tensor.node in lift.rounded for tensor in tensors):
        return False
    others = [tensor for tensor in tensors if tensor.node not in lift.rounded and tensor.kind not in ("int", "bool")]
    return all(lift.numbers.get(tensor.node, 0.5) % 1 == 0 for tensor in others)


def refuse_rounded(lift: Lifting, symbol: str | None, tensors: Sequence[Tensor]) -> None:
    """Floats that stand for whole numbers have the order of these among small ones; differences lose all digits."""
    rounded = [tensor for tensor in tensors if tensor.is_host and lift.is_rounded(tensor.node)]
    constants = {tensor.node: lift.numbers[tensor.node] for tensor in tensors if tensor.node in lift.numbers}
    is_small = all(abs(number) <= _EXACT or np.isinf(number) for number in constants.values())
    if symbol in COMPARISONS:
        is_told = bool(constants) and is_small and all(tensor.node in lift.rounded for tensor in rounded)
        for tensor in () if is_told else rounded:
            lift.exact(tensor)
    if symbol in ("+", "-") and rounded and (not is_small or (symbol == "-" and len(rounded) > 1)):
        lift.exact(rounded[0])
    for node, number in constants.items() if rounded else ():
        lift.stays(node, number)


def whole_constant(lift: Lifting, tensor: Tensor) -> Tensor:
    """A whole number of Python that meets those of the data; Keras would take it for one of 32 bits."""
    graph, number = lift.graph, lift.numbers.get(tensor.node)
    if tensor.kind != "number" or not isinstance(number, int) or isinstance(number, bool):
        return tensor
    lift.stays(tensor.node, number)  # Another may outgrow what was verified.
    dtype = integers_for(lift, number)
    if dtype == "int32":
        return tensor
    return replace(tensor, node=graph.call("ops.convert_to_tensor", tensor.node, dtype=graph.const(dtype)), kind="int")


def may_outgrow(lift: Lifting, symbol: str, a: Tensor, b: Tensor) -> bool:
    """Whether whole numbers, which have no bound in Python, may soon need more bits than there are: `i**4`, `2**i`."""
    if not {a.kind, b.kind} <= {"int", "number"} or "int" not in (a.kind, b.kind):
        return False
    known = [lift.numbers.get(one.node) for one in (a, b)]
    # A position is no larger than the batch; what the data hold may be.
    is_free = all(t.is_host and t.position is None for t in (a, b) if t.kind == "int")
    if symbol == "**":
        return b.kind == "int" or known[1] not in ((0, 1) if is_free else (0, 1, 2))
    if symbol != "*":
        return False
    # A multiple of a position by this, or more, leaves 32 bits at a batch that is not unheard of.
    large = 2**15 if lift.integers == "int32" or not is_free else 2**31
    return (is_free and a.kind == b.kind) or any(isinstance(one, int) and abs(one) >= large for one in known)
