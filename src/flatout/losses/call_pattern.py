"""How the sizes of a call's arrays relate: a rewrite is used only for calls that relate as those it was proven on do.

`(B, 1)` against `(B, C)` is broadcast where `(B, C)` against `(B, C)` is not, so a proof on the one says nothing of the
other. How many columns there are does not matter, nor how many samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Pattern = tuple[tuple[str, ...], ...]


def pattern(sizes: Mapping[str, Sequence[int | None]]) -> Pattern:
    """For every dimension behind the first: whether its size is 1, that of the first array, or another.

    Args:
        sizes: Of each array's dimensions behind the first; None where they are not known while tracing.
    """
    first: Sequence[int | None] = next(iter(sizes.values()), ())
    return tuple(tuple(_relation(size, place, first) for place, size in enumerate(own)) for own in sizes.values())


def _relation(size: int | None, place: int, first: Sequence[int | None]) -> str:
    if size == 1:
        return "one"
    other = first[place] if place < len(first) else size
    return "same" if size is None or other is None or size == other else "other"
