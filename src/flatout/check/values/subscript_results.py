"""What is left of a value after a subscript."""

from __future__ import annotations

import dataclasses
from typing import Any

from .abstract_values import (
    AXES,
    NEW,
    UNKNOWN,
    AbstractValue,
    Data,
    External,
    Sequence,
    Shape,
    Static,
    Tuple,
    Unknown,
    Variable,
    data_in,
    merge_all,
)
from .operation_results import size_of_axis


def selected(base: AbstractValue, pieces: list[Any]) -> AbstractValue:
    """The value of `base[pieces]`: each piece a value, the two ends of a slice, or `...`."""
    first = pieces[0] if pieces else None
    number = first.number if isinstance(first, Static) else None
    if isinstance(base, Data):
        is_name = isinstance(first, Static) and first.tag == "text"
        return dataclasses.replace(base, mapping=False) if is_name else _indexed(base, pieces)
    if isinstance(base, Shape):
        if number is not None:
            return size_of_axis(base, int(number))
        if isinstance(first, tuple):
            low = first[0]
            start = int(low.number) if isinstance(low, Static) and low.number and low.number > 0 else 0
            return Shape(base.axes, base.start + start)
        return Static("number")
    if isinstance(base, Tuple):
        if number is not None and -len(base.items) <= number < len(base.items):
            return base.items[int(number)]
        return _picked(first) if isinstance(first, Data) and not data_in([base]) else merge_all(base.items)
    if isinstance(base, Sequence):
        if not isinstance(first, tuple):
            return base.element
        by_data = any(isinstance(end, Data) for end in first)
        return dataclasses.replace(base, selected=base.selected or by_data)
    keys = [piece for piece in pieces if isinstance(piece, Data)]
    if isinstance(base, (Static, Unknown)) and keys:
        is_known = isinstance(base, Static) or all(key.on_host for key in keys)
        return _picked(keys[0]) if is_known else UNKNOWN
    if isinstance(base, (Static, External)):
        return base if isinstance(base, Static) and base.tag in ("array", "frame") else Static("object")
    return base if isinstance(base, Variable) else UNKNOWN


def _picked(key: Data) -> Data:
    """A constant picked by a number of the batch is a number of the batch."""
    return dataclasses.replace(key, differentiable=False, role="", loop=None)


def _indexed(data: Data, pieces: list[Any]) -> Data:
    axes = list(data.axes)
    kept: list[str] = []
    rank: int | None = data.rank
    after_dots = False
    thin = data.thin
    by_mask = False
    for piece in pieces:
        if piece is ...:
            after_dots = True
            kept += axes[:-1] if len(axes) < len(AXES) - 1 else axes
            axes = []
        elif isinstance(piece, Static) and piece.tag == "none":
            kept.append(NEW)
            rank = None if rank is None else rank + 1
        elif isinstance(piece, tuple):
            if axes and not after_dots:
                kept.append(axes.pop(0))
            thin = _is_one(piece)
        elif isinstance(piece, Data) and piece.role == "mask":
            by_mask = True
            kept.append(axes.pop(0) if axes else "selected")
        elif isinstance(piece, Data) and piece.axes:
            axes = axes[1:]
            kept += piece.axes[: 1 if len(piece.axes) == len(AXES) else None]
            rank = None
        else:
            axes = axes[1:]
            rank = None if rank is None else rank - 1
            thin = False
    role = "selected" if by_mask else ""
    return dataclasses.replace(data, axes=tuple(kept + axes), rank=rank, thin=thin, role=role, mapping=False)


def _is_one(ends: tuple[AbstractValue | None, AbstractValue | None]) -> bool:
    low, high = ends
    start = low.number if isinstance(low, Static) else 0 if low is None else None
    stop = high.number if isinstance(high, Static) else None
    if start is not None and stop is not None:
        return stop - start == 1
    return isinstance(low, Static) and low.number == -1 and high is None
