"""How the sizes of a call's arrays relate: a rewrite is used only for calls that relate as those it was verified on do.

`(B, 1)` against `(B, C)` is broadcast where `(B, C)` against `(B, C)` is not, so what was compared on the one says
nothing of the other. How many columns there are does not matter, nor how many samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def pattern(sizes: Mapping[str, Sequence[int | None]]) -> tuple[tuple[str, ...], ...]:
    """For every dimension behind the first: whether its size is 1, that of the first array, or another.

    Args:
        sizes: Of each array's dimensions behind the first; None where they are not known while tracing.
    """
    first: Sequence[int | None] = next(iter(sizes.values()), ())
    return tuple(
        tuple(_relation(size, other) for size, other in itertools.zip_longest(own, first[: len(own)]))
        for own in sizes.values()
    )


def _relation(size: int | None, other: int | None) -> str:
    if size == 1:
        return "one"
    return "same" if size is None or other is None or size == other else "other"


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and getattr(value.shape, "rank", 0) is not None


def are_sized(given: Mapping[str, Any], verdict: Any) -> bool:
    """Whether the array code can run: TensorFlow may not know all sizes, and that was verified for some or none."""
    if verdict is not None and verdict.unsized == "all":
        return True
    start = 1 if verdict is not None and verdict.unsized == "first" else 0
    return all(size is not None for value in given.values() if is_array(value) for size in list(value.shape)[start:])
