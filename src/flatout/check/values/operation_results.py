"""What array operations, operators and subscripts give: axes, whether a gradient flows, what is on the host."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from typing import Any

from flatout.pysource.spellings import COMPARISONS, NOT_DIFFERENTIABLE

from . import abstract_values as av
from .abstract_values import UNKNOWN, AbstractValue, Data, Sequence, Static, Tuple

NUMBER = Static("number")
_PLAIN = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def elementwise(values: Iterable[AbstractValue], name: str = "") -> Data:
    """What an operation gives that works element by element, with broadcasting."""
    values = list(values)
    data = av.data_in(values)
    shaped = [one for one in data if one.axes]
    ranks = {one.rank for one in shaped}
    return Data(
        av.origins_of(values),
        functools.reduce(_broadcast, (one.axes for one in data), ()),
        on_host=bool(data) and all(one.on_host for one in data),
        # What is not known may carry a gradient.
        differentiable=name not in NOT_DIFFERENTIABLE
        and (av.is_unclear(values) or any(d.differentiable for d in data)),
        role="mask" if name in COMPARISONS else "",
        rank=ranks.pop() if len(ranks) == 1 else None,
        thin=bool(data) and all(one.thin for one in shaped),
        squeezed=bool(shaped) and all(one.squeezed for one in shaped),
    )


def _broadcast(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    return tuple(b if a == av.NEW else a for a, b in zip(longer, shorter, strict=False)) + longer[len(shorter) :]


def reduced(data: Data, axis: AbstractValue | None, keepdims: bool, name: str) -> Data:
    """What is left after a reduction along an axis (all of them if None)."""
    flows = data.differentiable and name not in NOT_DIFFERENTIABLE
    role = name if name in ("max", "argmax") else "mask" if name in ("any", "all") else ""
    kept = data.but(differentiable=flows, role=role, thin=False, loop=None)
    number = av.number_in(axis)
    if axis is None or axis == Static("none"):
        return kept.but(axes=(), rank=None)
    if keepdims:
        return kept.but(thin=number == -1)
    if number is None:
        return kept.but(axes=data.axes[:1], rank=None)
    if number >= 0:
        return kept.ranked(-1, axes=_without(data.axes, int(number)))
    is_short = 0 < len(data.axes) < len(av.AXES) - 1 and data.rank is None
    return kept.ranked(-1, axes=data.axes[:-1] if is_short else data.axes)


def _without(axes: tuple[str, ...], at: int) -> tuple[str, ...]:
    return axes[:at] + axes[at + 1 :]


def first_element(data: Data) -> Data:
    """One entry along the first axis."""
    return data.ranked(-1, axes=data.axes[1:], mapping=False)


def unstacked(data: Data, axis: AbstractValue | None) -> Sequence:
    """A list of the slices along an axis."""
    at = av.whole_number(axis, 0)
    if at < 0:
        return Sequence(data.ranked(-1, thin=False), av.LAST)
    return Sequence(data.ranked(-1, axes=_without(data.axes, at)), size_of_axis(av.Shape(data.axes), at).label)


def multiplied(first: Data, second: Data) -> Data:
    """A matrix product; `y @ y.T` has two axes of samples."""
    rank = first.rank if first.rank == second.rank else None
    return elementwise([first, second]).but(axes=(*first.axes[:1], *second.axes[1:2]), rank=rank, thin=False)


def transposed(data: Data) -> Data:
    """With the first two axes exchanged."""
    return data.but(axes=(*data.axes[1:2], *data.axes[:1], *data.axes[2:]))


def stacked(value: AbstractValue) -> Data:
    """A list of tensors as one."""
    inside = elementwise([value])
    label = value.label if isinstance(value, Sequence) else "constant"
    return inside.but(axes=(label, *inside.axes), rank=None, on_host=False)


def size_of_axis(shape: av.Shape, number: int) -> av.Size:
    """`shape[number]`."""
    if number < 0:
        return av.Size(av.LAST if -number < 2 or len(shape.axes) < 2 else av.AXES[1] if -number == 2 else av.BATCH)
    at = number + shape.start
    return av.Size(shape.axes[at] if at < len(shape.axes) else av.LAST)


def read_on_host(data: Data) -> Data:
    """What is left of data once it was read: no gradient flows."""
    return data.but(on_host=True, differentiable=False)


# -- operators


def operated(operator: str, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """The value of `left operator right`."""
    pair = (left, right)
    if any(isinstance(one, (Data, av.Variable)) for one in pair):
        data = [one for one in pair if isinstance(one, Data)]
        if len(data) == 2 and operator == "MatMult":
            return multiplied(data[0], data[1])
        if any(isinstance(one, Tuple) for one in pair):
            return UNKNOWN
        roles = {one.role for one in data}
        keeps = operator in ("Add", "Sub", "BitAnd", "BitOr") and len(roles) == 1
        result = elementwise(pair).but(role=roles.pop() if keeps else "")
        return result.but(on_host=False) if any(isinstance(one, (av.Variable, av.Unknown)) for one in pair) else result
    if isinstance(left, Tuple) and isinstance(right, Tuple) and operator == "Add":
        return Tuple(left.items + right.items, left.is_list)
    for one, other in (pair, pair[::-1]):
        if isinstance(one, Sequence):
            return one
        if isinstance(one, av.Counter) and isinstance(other, (Static, av.Size, av.Counter)):
            return one.but(shifted=True)
        if isinstance(one, av.Size) and isinstance(other, (Static, av.Size)):
            return one
        if isinstance(one, Tuple) and one.is_list and len(one.items) == 1 and operator == "Mult":
            return Static("list")  # `[None] * n`
    if isinstance(left, Static) and isinstance(right, Static):
        tag = "object" if "object" in (left.tag, right.tag) else "number"
        return Static(left.tag if left.tag in ("list", "array", "frame") else tag)
    return UNKNOWN


def negated(operator: ast.unaryop, value: AbstractValue) -> AbstractValue:
    """The value of `-value`, `not value` and the like."""
    if isinstance(operator, ast.Not):
        return value.but(axes=(), role="mask", differentiable=False) if isinstance(value, Data) else NUMBER
    if isinstance(value, Static) and value.number is not None and isinstance(operator, ast.USub):
        return value.but(number=-value.number)
    return value.but(role="mask" if value.role == "mask" else "") if isinstance(value, Data) else value


def _is_plain(operator: ast.cmpop, *pair: AbstractValue) -> bool:
    """Whether a comparison gives a Python value whatever is compared, such as one with None."""
    return isinstance(operator, _PLAIN) or any(isinstance(one, Static) and one.tag in ("text", "none") for one in pair)


def is_computed(operator: ast.cmpop, left: AbstractValue, right: AbstractValue) -> bool:
    """Whether a comparison is one of numbers on the device or read from it."""
    return not _is_plain(operator, left, right) and any(isinstance(one, (Data, av.Variable)) for one in (left, right))


def compared(operator: ast.cmpop, left: AbstractValue, right: AbstractValue) -> AbstractValue:
    """The value of `left < right` and the like."""
    pair = (left, right)
    if is_computed(operator, left, right):
        result = elementwise(pair, "equal")
        only_counters = all(isinstance(one, av.Counter) or (isinstance(one, Data) and one.on_host) for one in pair)
        # All but one: the count does not depend on the data, only the place.
        if only_counters and isinstance(operator, ast.NotEq) and any(isinstance(one, av.Counter) for one in pair):
            return result.but(role="all_but_one")
        return result
    if isinstance(operator, (ast.In, ast.NotIn)) and isinstance(left, Data) and left.on_host:
        return left.but(axes=(), role="")
    is_known = all(isinstance(one, (Static, av.Size, av.Counter, Tuple, av.Shape)) for one in pair)
    return NUMBER if is_known or _is_plain(operator, left, right) else UNKNOWN


# -- subscripts


def selected(base: AbstractValue, pieces: list[Any]) -> AbstractValue:
    """The value of `base[pieces]`: each piece a value, the two ends of a slice, or `...`."""
    first = pieces[0] if pieces else None
    number = av.number_in(first)
    if isinstance(base, Data):
        is_name = isinstance(first, Static) and first.tag == "text"
        return base.but(mapping=False) if is_name else _indexed(base, pieces)
    if isinstance(base, av.Shape):
        if number is not None:
            return size_of_axis(base, int(number))
        low = av.whole_number(first[0], 0) if isinstance(first, tuple) else None
        return NUMBER if low is None else av.Shape(base.axes, base.start + max(0, low))
    if isinstance(base, Tuple):
        if number is not None and -len(base.items) <= number < len(base.items):
            return base.items[int(number)]
        return _picked(first) if isinstance(first, Data) and not av.data_in([base]) else av.merge_all(base.items)
    if isinstance(base, Sequence):
        if not isinstance(first, tuple):
            return base.element
        if (av.number_in(first[1]) or -1) > 0:  # A few of them, whatever they are along.
            return base.but(label=av.STATIC, length=int(av.number_in(first[1]) or 0))
        return base.but(selected=base.selected or any(isinstance(end, Data) for end in first))
    keys = [piece for piece in pieces if isinstance(piece, Data)]
    if isinstance(base, (Static, av.Unknown)) and keys:
        is_known = isinstance(base, Static) or all(key.on_host for key in keys)
        return _picked(keys[0]) if is_known else UNKNOWN
    if isinstance(base, av.External):
        return base if base.name.startswith("numba.") else Static()  # `kernel[blocks, threads]`.
    if isinstance(base, Static):
        return base if base.tag in ("array", "frame") else Static()
    return base if isinstance(base, av.Variable) else UNKNOWN


def _picked(key: Data) -> Data:
    """A constant picked by a number of the batch is a number of the batch."""
    return key.but(differentiable=False, role="", loop=None)


def _indexed(data: Data, pieces: list[Any]) -> Data:
    axes, kept = list(data.axes), list[str]()
    rank, thin = data.rank or 0, data.thin
    is_ranked, after_dots, by_mask = data.rank is not None, False, False
    for piece in pieces:
        if piece is ...:
            after_dots = True
            kept += axes[:-1] if len(axes) < len(av.AXES) - 1 else axes
            axes = []
        elif isinstance(piece, Static) and piece.tag == "none":
            kept.append(av.NEW)
            rank += 1
        elif isinstance(piece, tuple):
            if axes and not after_dots:
                kept.append(axes.pop(0))
            thin = _is_one(*piece)
        elif isinstance(piece, Data) and piece.role == "mask":
            by_mask = True
            kept.append(axes.pop(0) if axes else "selected")
        elif isinstance(piece, Data) and piece.axes:
            axes = axes[1:]
            kept += piece.axes[: 1 if len(piece.axes) == len(av.AXES) else None]
            is_ranked = False
        else:
            axes, rank, thin = axes[1:], rank - 1, False
    role = "selected" if by_mask else ""
    return data.but(axes=(*kept, *axes), rank=rank if is_ranked else None, thin=thin, role=role, mapping=False)


def _is_one(low: AbstractValue | None, high: AbstractValue | None) -> bool:
    start, stop = 0 if low is None else av.number_in(low), av.number_in(high)
    return stop - start == 1 if start is not None and stop is not None else high is None and start == -1
