"""What is left of data after a subscript."""

from __future__ import annotations

import dataclasses
from typing import Any

from .abstract_values import AXES, NEW, Data, Static, Value


def indexed(data: Data, pieces: list[Any]) -> Value:
    axes = list(data.axes)
    kept: list[str] = []
    rank: int | None = data.rank
    after_dots = False
    thin = data.thin
    selected = False
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
            selected = True
            kept.append(axes.pop(0) if axes else "selected")
        elif isinstance(piece, Data) and piece.axes:
            if axes:
                axes.pop(0)
            kept += piece.axes[: 1 if len(piece.axes) == len(AXES) else None]
            rank = None
        else:
            if axes:
                axes.pop(0)
            rank = None if rank is None else rank - 1
            thin = False
    return dataclasses.replace(
        data, axes=tuple(kept + axes), rank=rank, thin=thin, role="selected" if selected else "", mapping=False
    )


def _is_one(ends: tuple[Value | None, Value | None]) -> bool:
    low, high = ends
    start = low.number if isinstance(low, Static) else 0 if low is None else None
    stop = high.number if isinstance(high, Static) else None
    if start is not None and stop is not None:
        return stop - start == 1
    return isinstance(low, Static) and low.number == -1 and high is None
