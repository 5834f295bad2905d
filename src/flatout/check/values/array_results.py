"""What the functions of array libraries give, whatever library they are of: one table by the name of the operation."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable

from flatout.pysource.spellings import CREATORS, REDUCTIONS, plain

from . import operation_results as operations
from .abstract_values import (
    GROUPS,
    NEW,
    STATIC,
    UNKNOWN,
    AbstractValue,
    Bound,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Tuple,
    Unknown,
    Variable,
    data_in,
    is_unclear,
    whole_number,
)
from .given import Given
from .operation_results import elementwise, read_on_host

TO_HOST = frozenset({"convert_to_numpy", "get_value", "eval", "batch_get_value", "make_ndarray", "device_get"})
_STACKING = frozenset({"stack", "concatenate", "add_n", "hstack"}) | CREATORS


def array_result(name: str, short: str, given: Given) -> AbstractValue:
    """What an array operation gives; `name` is how it is spelled, `short` the one name of all its spellings."""
    everything, first = given.everything, given.first
    if not data_in(everything):
        if short in CREATORS:
            return UNKNOWN if is_unclear(given.values) else _created(short, given)
        if isinstance(first, Variable):
            return Data(axes=())
        return UNKNOWN if is_unclear(everything) else Data(axes=("constant",))
    if isinstance(first, (Sequence, Tuple)) and short in _STACKING:
        return operations.stacked(first)
    if not isinstance(first, Data):
        result = elementwise(everything, short)
        return dataclasses.replace(result, rank=None, squeezed=False) if is_unclear(everything) else result
    if short in REDUCTIONS:
        keeps = any(isinstance(given.keywords.get(key), Static) for key in ("keepdims", "keepdim", "keep_dims"))
        return operations.reduced(first, given.axis, keeps, short)
    if short in _SPLITS:
        return _split(name, first, given)
    if short == "unique":
        found = _distinct(first)
        several = name.startswith("tensorflow.") or any(key.startswith("return_") for key in given.keywords)
        return Tuple((found, found, found)) if several else found
    result_of = _RESULTS.get(short)
    return result_of(first, given) if result_of else elementwise(everything, short)


def _created(short: str, given: Given) -> Data:
    if short == "arange" and given.values:
        bound = given.values[min(1, len(given.values) - 1)]
        return Data(axes=(bound.label if isinstance(bound, Size) else "constant",))
    return operations.created(given.keywords.get("shape", given.first))


def _distinct(data: Data) -> Data:
    return dataclasses.replace(data, axes=(GROUPS,), role="unique", differentiable=False)


def _multiplied(first: Data, given: Given) -> AbstractValue:
    second = given.at(1)
    return operations.multiplied(first, second) if isinstance(second, Data) else elementwise(given.everything, "matmul")


def _reshaped(first: Data, shape: AbstractValue | None, is_flat: bool) -> AbstractValue:
    """With another shape; one axis takes away the last one of an array of samples."""
    result = operations.reshaped(first)
    if shape is not None:
        (size,) = shape.items if isinstance(shape, Tuple) and len(shape.items) == 1 else (shape,)
        is_flat = isinstance(size, Static) and size.number == -1
    if first.rank == 0 and is_flat:
        return dataclasses.replace(result, axes=first.axes, rank=-1, squeezed=True)
    return result


def _best(first: Data, given: Given) -> AbstractValue:
    picked = dataclasses.replace(first, role="")
    return Tuple((picked, dataclasses.replace(picked, differentiable=False)))


def _expanded(first: Data, given: Given) -> AbstractValue:
    at = whole_number(given.axis, -1)
    axes = (*first.axes[:at], NEW, *first.axes[at:]) if at >= 0 else first.axes
    rank = None if first.rank is None else first.rank + 1
    return dataclasses.replace(first, axes=axes, rank=rank, thin=at == -1)


def _squeezed(first: Data, given: Given) -> AbstractValue:
    axis = given.axis
    rank = None if first.rank is None else first.rank - 1
    is_last = axis is None or (isinstance(axis, Static) and axis.number in (1, -1))
    return dataclasses.replace(first, rank=rank, thin=False, squeezed=is_last and first.rank == 0)


def _cast(first: Data, given: Given) -> AbstractValue:
    last = [*given.node.args, *(one.value for one in given.node.keywords)][-1:]
    return operations.cast(first, given.at(1, "dtype"), ast.unparse(last[0]) if last else "")


def _taken(first: Data, given: Given) -> AbstractValue:
    indices = data_in(given.everything[1:])
    axes = indices[0].axes if indices else first.axes
    result = elementwise(given.everything)
    return dataclasses.replace(result, axes=axes, differentiable=first.differentiable, rank=None)


def _chosen(first: Data, given: Given) -> AbstractValue:
    if len(given.everything) < 2:
        return elementwise(given.everything, "where")
    flows = elementwise(given.everything[1:]).differentiable
    return dataclasses.replace(elementwise(given.everything), differentiable=flows, role="")


def _contracted(short: str) -> Callable[[Data, Given], AbstractValue]:
    """What has other axes than its inputs."""
    return lambda first, given: dataclasses.replace(elementwise(given.everything, short), rank=None, thin=False)


def _distance(first: Data, given: Given) -> AbstractValue:
    return dataclasses.replace(elementwise(given.everything), rank=None)


_SPLITS = frozenset({"split", "chunk", "array_split"})
_CONTRACTIONS = ("one_hot", "einsum", "tensordot", "segment_sum", "segment_mean", "segment_max", "bincount")
_RESULTS: dict[str, Callable[[Data, Given], AbstractValue]] = {
    **dict.fromkeys(TO_HOST, lambda first, given: dataclasses.replace(read_on_host(first), loop=None)),
    "shape": lambda first, given: Shape(first.axes),
    **dict.fromkeys(("size", "numel"), lambda first, given: Size(first.axes[0] if first.axes else STATIC)),
    **dict.fromkeys(("ndim", "rank", "dtype"), lambda first, given: Static("number")),
    "unstack": lambda first, given: operations.unstacked(first, given.axis),
    "matmul": _multiplied,
    "transpose": lambda first, given: operations.transposed(first),
    "reshape": lambda first, given: _reshaped(first, given.at(1) or given.keywords.get("shape"), False),
    "flatten": lambda first, given: _reshaped(first, given.at(1) or given.keywords.get("shape"), True),
    "top_k": _best,
    "expand_dims": _expanded,
    "squeeze": _squeezed,
    **dict.fromkeys(("cast", "to", "type"), _cast),
    **dict.fromkeys(("int", "long", "bool"), lambda first, given: dataclasses.replace(first, differentiable=False)),
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like"), lambda first, given: Data(axes=first.axes, rank=first.rank)
    ),
    "take": _taken,
    "where": _chosen,
    **dict.fromkeys(("cdist", "pairwise_distance"), _distance),
    **dict.fromkeys(CREATORS, lambda first, given: dataclasses.replace(first, on_host=False)),
    **{short: _contracted(short) for short in _CONTRACTIONS},
}


def _split(name: str, first: Data, given: Given) -> Sequence:
    """Parts of an array: as many as an axis is long, where each has length 1 (torch) or their number is that length."""
    names = ("indices_or_sections", "num_or_size_splits", "split_size_or_sections", "split_size", "chunks")
    counts = [*given.values[1:], *(given.keywords[key] for key in names if key in given.keywords)]
    sections = counts[0] if counts else None
    if isinstance(sections, Size):
        return Sequence(first, sections.label)
    # A method is torch's: NumPy's arrays and TensorFlow's tensors have none of that name.
    by_size = name.startswith("torch.") or "." not in name
    if by_size and isinstance(sections, Static) and sections.number == 1 and "chunk" not in name:
        axis = given.keywords.get("axis", given.keywords.get("dim", counts[1] if len(counts) > 1 else None))
        return Sequence(first, operations.size_of_axis(Shape(first.axes), whole_number(axis, 0)).label)
    return Sequence(first, STATIC)


def host_result(name: str, given: Given) -> AbstractValue:
    """What NumPy, pandas and the like give: on the host, without a gradient."""
    short = plain(name.rpartition(".")[2])
    data, first = data_in(given.everything), given.values[0] if given.values else None
    if name.startswith("numpy.random."):
        return Static("rng" if short in ("default_rng", "RandomState", "Generator") else "array")
    if short == "unique" and data:
        found = _distinct(read_on_host(elementwise(data)))
        return Tuple((found, found)) if any(key.startswith("return_") for key in given.keywords) else found
    if short == "arange" and first is not None and not data:
        return Bound(given.values[-1] if len(given.values) < 3 else given.values[1])
    if not data:
        if any(isinstance(one, Unknown) for one in given.values) and not name.startswith("numpy."):
            return UNKNOWN
        if short in CREATORS and isinstance(first, Tuple):
            return Static("array", length=len(first.items))
        return Static("frame" if name.startswith(("pandas.", "polars.")) else "array")
    if short in REDUCTIONS and isinstance(first, Data):
        axis = given.at(1, "axis")
        return read_on_host(operations.reduced(first, axis, "keepdims" in given.keywords, short))
    return read_on_host(operations.stacked(first) if isinstance(first, Sequence) else elementwise(data, short))
