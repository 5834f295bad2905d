"""What array operations give: axes, whether a gradient flows, what is on the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from flatout.pysource.spellings import COMPARISONS, NOT_DIFFERENTIABLE

from .abstract_values import (
    AXES,
    BATCH,
    LAST,
    NEW,
    AbstractValue,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Tuple,
    data_in,
    is_unclear,
    origins_of,
    whole_number,
)

_INTEGERS = ("int", "uint", "bool", "long")


def elementwise(values: Iterable[AbstractValue], name: str = "") -> Data:
    """What an operation gives that works element by element, with broadcasting."""
    values = list(values)
    data = data_in(values)
    axes: tuple[str, ...] = ()
    for one in data:
        axes = _broadcast(axes, one.axes)
    ranks = {one.rank for one in data if one.axes}
    flows = name not in NOT_DIFFERENTIABLE and name not in COMPARISONS
    # What is not known may carry a gradient.
    unclear = is_unclear(values)
    return Data(
        origins=origins_of(values),
        axes=axes,
        on_host=bool(data) and all(one.on_host for one in data),
        differentiable=flows and (unclear or any(one.differentiable for one in data)),
        role="mask" if name in COMPARISONS else "",
        rank=ranks.pop() if len(ranks) == 1 else None,
        thin=bool(data) and all(one.thin for one in data if one.axes),
        squeezed=any(one.axes for one in data) and all(one.squeezed for one in data if one.axes),
    )


def _broadcast(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    if len(longer) > len(shorter) or NEW not in (*longer, *shorter):
        return tuple(a if a != NEW else b for a, b in zip(longer, shorter, strict=False)) + longer[len(shorter) :]
    return tuple(b if a == NEW else a for a, b in zip(longer, shorter, strict=True))


def reduced(data: Data, axis: AbstractValue | None, keepdims: bool, name: str) -> Data:
    """What is left after a reduction along an axis (all of them if None)."""
    flows = data.differentiable and name not in NOT_DIFFERENTIABLE
    role = name if name in ("max", "argmax") else "mask" if name in ("any", "all") else ""
    kept = dataclasses.replace(data, differentiable=flows, role=role, thin=False, loop=None)
    if axis is None or (isinstance(axis, Static) and axis.tag == "none"):
        return dataclasses.replace(kept, axes=(), rank=None)
    if keepdims:
        last = isinstance(axis, Static) and axis.number == -1
        return dataclasses.replace(kept, thin=last)
    rank = None if data.rank is None else data.rank - 1
    if isinstance(axis, Static) and axis.number is not None:
        if axis.number >= 0:
            at = int(axis.number)
            return dataclasses.replace(kept, axes=data.axes[:at] + data.axes[at + 1 :], rank=rank)
        short = data.axes[:-1] if 0 < len(data.axes) < len(AXES) - 1 and data.rank is None else data.axes
        return dataclasses.replace(kept, axes=short, rank=rank)
    return dataclasses.replace(kept, axes=data.axes[:1], rank=None)


def first_element(data: Data) -> Data:
    """One entry along the first axis."""
    rank = None if data.rank is None else data.rank - 1
    return dataclasses.replace(data, axes=data.axes[1:], rank=rank, mapping=False)


def unstacked(data: Data, axis: AbstractValue | None) -> Sequence:
    """A list of the slices along an axis."""
    at = whole_number(axis, 0)
    rank = None if data.rank is None else data.rank - 1
    if at < 0:
        return Sequence(dataclasses.replace(data, rank=rank, thin=False), LAST)
    label = data.axes[at] if at < len(data.axes) else LAST
    return Sequence(dataclasses.replace(data, axes=data.axes[:at] + data.axes[at + 1 :], rank=rank), label)


def multiplied(first: Data, second: Data) -> Data:
    """A matrix product; `y @ y.T` has two axes of samples."""
    joined = elementwise([first, second])
    axes = (*first.axes[:1], *second.axes[1:2])
    rank = first.rank if first.rank == second.rank else None
    return dataclasses.replace(joined, axes=axes, rank=rank, thin=False)


def transposed(data: Data) -> Data:
    """With the first two axes exchanged."""
    axes = data.axes
    return dataclasses.replace(data, axes=(axes[1], axes[0], *axes[2:]) if len(axes) > 1 else axes)


def reshaped(data: Data) -> Data:
    """Of another shape: the first axis is taken for the samples still."""
    return dataclasses.replace(data, axes=AXES if data.origins else data.axes, rank=None, thin=False)


def created(shape: AbstractValue | None) -> Data:
    """A constant tensor."""
    sizes = shape.items if isinstance(shape, Tuple) else (shape,) if isinstance(shape, Size) else ()
    if isinstance(shape, Shape):
        return Data(axes=shape.axes)
    return Data(axes=tuple(size.label if isinstance(size, Size) else "constant" for size in sizes))


def cast(data: Data, dtype: AbstractValue | None, text: str) -> Data:
    """Of another dtype: integers have no gradient."""
    word = (dtype.text if isinstance(dtype, Static) and dtype.text else text).lower()
    whole = any(word.split(".")[-1].startswith(start) for start in _INTEGERS)
    return dataclasses.replace(data, differentiable=data.differentiable and not whole, role=data.role if whole else "")


def stacked(value: AbstractValue) -> Data:
    """A list of tensors as one."""
    inside = elementwise([value])
    label = value.label if isinstance(value, Sequence) else "constant"
    return dataclasses.replace(inside, axes=(label, *inside.axes), rank=None, on_host=False)


def size_of_axis(shape: Shape, number: int) -> Size:
    """`shape[number]`."""
    if number < 0:
        return Size(LAST if -number < 2 or len(shape.axes) < 2 else AXES[1] if -number == 2 else BATCH)
    at = number + shape.start
    return Size(shape.axes[at] if at < len(shape.axes) else LAST)


def read_on_host(data: Data) -> Data:
    """What is left of data once it was read: no gradient flows."""
    return dataclasses.replace(data, on_host=True, differentiable=False)
