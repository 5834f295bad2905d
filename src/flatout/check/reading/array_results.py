"""What the functions of array libraries give, whatever library they are of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from flatout.pysource.operation_names import CREATORS, REDUCTIONS, plain

from . import operation_results as operations
from .abstract_values import (
    GROUPS,
    NEW,
    STATIC,
    UNKNOWN,
    Bound,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Together,
    Tuple,
    Unknown,
    Value,
    Variable,
    data_in,
    is_unclear,
)
from .operation_results import elementwise

TO_HOST = frozenset({"convert_to_numpy", "get_value", "eval", "batch_get_value", "make_ndarray", "device_get"})
CASTS = frozenset({"cast", "to", "type"})


def array_result(
    name: str, short: str, arguments: list[Value], keywords: Mapping[str, Value], cast_to: str = ""
) -> Value:
    """What an array operation gives; `cast_to` is the last argument of a cast, as written."""
    everything = [*arguments, *keywords.values()]
    first = arguments[0] if arguments else next(iter(keywords.values()), None)
    second = arguments[1] if len(arguments) > 1 else None
    axis = keywords.get("axis", keywords.get("dim", second))
    if short in CREATORS and not data_in(everything):
        if is_unclear(arguments):
            return UNKNOWN
        if short == "arange" and arguments:
            return _counting(arguments[1] if len(arguments) > 1 else arguments[0])
        return operations.created(keywords.get("shape", first))
    if not data_in(everything):
        if isinstance(first, Variable):
            return Data(axes=())
        return UNKNOWN if is_unclear(everything) else Data(axes=("constant",))
    if isinstance(first, (Sequence, Tuple)) and short in (
        "stack",
        "concatenate",
        "add_n",
        "hstack",
        "vstack",
        *CREATORS,
    ):
        return operations.stacked(first)
    if not isinstance(first, Data):
        result = elementwise(everything, short)
        return dataclasses.replace(result, rank=None, squeezed=False) if is_unclear(everything) else result
    if short in TO_HOST:
        return dataclasses.replace(first, on_host=True, differentiable=False, loop=None)
    if short in REDUCTIONS:
        keeps = any(_is_true(keywords.get(key)) for key in ("keepdims", "keepdim", "keep_dims"))
        return operations.reduced(first, axis, keeps, short)
    if short == "shape":
        return Shape(first.axes)
    if short in ("size", "numel"):
        return Size(first.axes[0] if first.axes else STATIC)
    if short in ("ndim", "rank", "dtype"):
        return Static("number")
    if short in ("unstack", "unbind"):
        return operations.unstacked(first, axis)
    if short in ("split", "chunk", "array_split"):
        return _split(name, first, arguments, keywords)
    if short == "matmul" and isinstance(second, Data):
        return operations.multiplied(first, second)
    if short == "transpose":
        return operations.transposed(first)
    if short in ("reshape", "flatten"):
        result = operations.reshaped(first)
        if first.rank == 0 and _is_flat(second if second is not None else keywords.get("shape"), short):
            return dataclasses.replace(result, axes=first.axes, rank=-1, squeezed=True)
        return result
    if short == "unique":
        found = dataclasses.replace(first, axes=(GROUPS,), role="unique", differentiable=False)
        several = name.startswith("tensorflow.") or any(key.startswith("return_") for key in keywords)
        return Tuple((found, found, found)) if several else found
    if short == "top_k":
        picked = dataclasses.replace(first, role="")
        return Tuple((picked, dataclasses.replace(picked, differentiable=False)))
    return _shaped(short, first, second, axis, everything, keywords, cast_to)


def _shaped(
    short: str,
    first: Data,
    second: Value | None,
    axis: Value | None,
    everything: list[Value],
    keywords: Mapping[str, Value],
    cast_to: str,
) -> Value:
    if short == "expand_dims":
        at = int(axis.number) if isinstance(axis, Static) and axis.number is not None else -1
        axes = (*first.axes[:at], NEW, *first.axes[at:]) if at >= 0 else first.axes
        rank = None if first.rank is None else first.rank + 1
        return dataclasses.replace(first, axes=axes, rank=rank, thin=at == -1)
    if short == "squeeze":
        rank = None if first.rank is None else first.rank - 1
        is_last = axis is None or (isinstance(axis, Static) and axis.number in (1, -1))
        return dataclasses.replace(first, rank=rank, thin=False, squeezed=is_last and first.rank == 0)
    if short in ("cast", "to", "type"):
        return operations.cast(first, keywords.get("dtype", second), cast_to)
    if short in ("int", "long", "bool"):
        return dataclasses.replace(first, differentiable=False)
    if short in ("zeros_like", "ones_like", "full_like"):
        return Data(axes=first.axes, rank=first.rank)
    if short == "take":
        indices = data_in(everything[1:])
        axes = indices[0].axes if indices else first.axes
        return dataclasses.replace(elementwise(everything), axes=axes, differentiable=first.differentiable, rank=None)
    if short == "where" and len(everything) > 1:
        result = elementwise(everything[1:])
        joined = elementwise(everything)
        return dataclasses.replace(joined, differentiable=result.differentiable, role="")
    if short in ("norm", "cdist", "pairwise_distance"):
        return dataclasses.replace(elementwise(everything), rank=None)
    if short in CREATORS:
        return dataclasses.replace(first, on_host=False)
    if short in ("one_hot", "einsum", "tensordot", "segment_sum", "segment_mean", "segment_max", "bincount"):
        return dataclasses.replace(elementwise(everything, short), rank=None, thin=False)
    return elementwise(everything, short)


def _is_flat(shape: Value | None, short: str) -> bool:
    """Whether a new shape has one axis."""
    if shape is None:
        return short == "flatten"
    (size,) = shape.items if isinstance(shape, Tuple) and len(shape.items) == 1 else (shape,)
    return isinstance(size, Static) and size.number == -1


def _split(name: str, first: Data, arguments: list[Value], keywords: Mapping[str, Value]) -> Sequence:
    """Parts of an array: as many as an axis is long, where each has length 1 (torch) or their number is that length."""
    names = ("indices_or_sections", "num_or_size_splits", "split_size_or_sections", "split_size", "chunks")
    given = [*arguments[1:], *(keywords[key] for key in names if key in keywords)]
    sections = given[0] if given else None
    axis = keywords.get("axis", keywords.get("dim", given[1] if len(given) > 1 else None))
    if isinstance(sections, Size):
        return Sequence(first, sections.label)
    # A method is torch's: NumPy's arrays and TensorFlow's tensors have none of that name.
    by_size = name.startswith("torch.") or "." not in name
    if by_size and isinstance(sections, Static) and sections.number == 1 and "chunk" not in name:
        at = int(axis.number) if isinstance(axis, Static) and axis.number is not None else 0
        size = operations.size_of_axis(Shape(first.axes), at)
        return Sequence(first, size.label if isinstance(size, Size) else STATIC)
    return Sequence(first, STATIC)


def host_result(name: str, everything: list[Value], arguments: list[Value], keywords: Mapping[str, Value]) -> Value:
    """What NumPy, pandas and the like give: on the host, without a gradient."""
    short = plain(name.rsplit(".", 1)[-1])
    data = data_in(everything)
    if name.startswith("numpy.random."):
        return Static("rng" if short in ("default_rng", "RandomState", "Generator") else "array")
    if short == "unique" and data:
        found = dataclasses.replace(
            elementwise(list(data)), axes=(GROUPS,), on_host=True, role="unique", differentiable=False
        )
        return Tuple((found, found)) if any(key.startswith("return_") for key in keywords) else found
    if short == "arange" and arguments and not data:
        return Bound(arguments[-1] if len(arguments) < 3 else arguments[1])
    if short == "ndindex" and arguments and isinstance(arguments[0], (Shape, Tuple)):
        return _indices(arguments[0])
    if not data:
        if any(isinstance(one, Unknown) for one in arguments) and not name.startswith("numpy."):
            return UNKNOWN
        if short in CREATORS and arguments and isinstance(arguments[0], Tuple):
            return Static("array", length=len(arguments[0].items))
        return Static("frame" if name.startswith(("pandas.", "polars.")) else "array")
    if short in REDUCTIONS and arguments and isinstance(arguments[0], Data):
        axis = keywords.get("axis", arguments[1] if len(arguments) > 1 else None)
        result = operations.reduced(arguments[0], axis, "keepdims" in keywords, short)
    elif isinstance(arguments[0] if arguments else None, Sequence):
        result = operations.stacked(arguments[0])
    else:
        result = elementwise(list(data), short)
    return dataclasses.replace(result, on_host=True, differentiable=False)


def _is_true(value: Value | None) -> bool:
    return isinstance(value, Static)


def _counting(bound: Value) -> Data:
    return Data(axes=(bound.label if isinstance(bound, Size) else "constant",))


def _indices(shape: Shape | Tuple) -> Value:
    sizes = shape.items if isinstance(shape, Tuple) else tuple(Size(label) for label in shape.axes[:2])
    return Together(tuple(Bound(size) for size in sizes), "product")
