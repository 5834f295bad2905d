"""Whole numbers of Python, which have no bound, on a backend whose integers have one.

They are computed in its widest integers or, where these are too narrow and last digits do not count, as floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .lifted_values import Refused, Tensor
from .lifting import Lifting

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
# Up to here every whole number is a float of 32 bits.
_EXACT = 2**24
# Functions that make whole numbers of such.
_WHOLE = ("where", "maximum", "minimum", "add", "subtract", "multiply", "abs")


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
    constants = [abs(lift.numbers[tensor.node]) for tensor in tensors if tensor.node in lift.numbers]
    is_small = all(number <= _EXACT or np.isinf(number) for number in constants)
    if symbol in COMPARISONS:
        is_told = bool(constants) and is_small and all(tensor.node in lift.rounded for tensor in rounded)
        for tensor in () if is_told else rounded:
            lift.exact(tensor)
    if symbol in ("+", "-") and rounded and (not is_small or (symbol == "-" and len(rounded) > 1)):
        lift.exact(rounded[0])


def whole_constant(lift: Lifting, tensor: Tensor) -> Tensor:
    """A whole number of Python that meets those of the data; Keras would take it for one of 32 bits."""
    graph, number = lift.graph, lift.numbers.get(tensor.node)
    if tensor.kind != "number" or not isinstance(number, int) or isinstance(number, bool):
        return tensor
    if tensor.node.kind != "const":  # Another may outgrow what was verified.
        lift.guards.append((graph.binary("==", tensor.node, graph.const(number)), True))
    dtype = integers_for(lift, number)
    if dtype == "int32":
        return tensor
    return replace(tensor, node=graph.call("ops.convert_to_tensor", tensor.node, dtype=graph.const(dtype)), kind="int")
