"""Whether 32 bits hold what Python's floats hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from .lifted_values import Known, Refused, Tensor
from .lifting import Lifting

BLURRED = (
    "Python computes in 64 bits what is rounded or compared here; a value that is within rounding (1e-7 of itself) of "
    "a bound may fall on its other side."
)


def fits(number: float) -> bool:
    """Whether a number has a float of 32 bits that equals it."""
    with np.errstate(over="ignore"):
        return bool(np.isnan(number)) or float(np.float32(number)) == number


def refuse_remainder(value: Tensor, by: Any) -> None:
    """`float(x) // 0.3`: every multiple of 0.3 in the data would be counted by how it is rounded."""
    is_python = value.is_wide or value.is_blurred
    if is_python and isinstance(by, Known) and isinstance(by.value, float) and not fits(by.value):
        raise Refused(f"A remainder by {by.value!r}, which Python takes in 64 bits and a tensor in 32.", "FO201")


def note_blurred(lift: Lifting, value: Any) -> None:
    """Say that a value near a bound may fall on its other side."""
    if isinstance(value, Tensor) and value.is_blurred:
        lift.note(BLURRED)
