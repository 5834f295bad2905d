"""The array operations that the checker understands, by one name for all spellings, and what they give.

`keras.ops.mean`, `tf.reduce_mean`, `torch.mean`, `K.mean`, `jnp.mean` and `y.mean()` are all "mean".
"""

from __future__ import annotations

import dataclasses

from .values import (
    AXES,
    BATCH,
    LAST,
    NEW,
    Counter,
    Data,
    Sequence,
    Shape,
    Size,
    Static,
    Tuple,
    Value,
    data_in,
    is_unclear,
    origins_of,
)

_PREFIXES = (
    "keras.ops.numpy.", "keras.ops.nn.", "keras.ops.image.", "keras.ops.linalg.", "keras.ops.math.", "keras.ops.core.",
    "keras.ops.", "keras.backend.", "keras.activations.",
    "tensorflow.compat.v1.", "tensorflow.experimental.numpy.", "tensorflow.math.", "tensorflow.linalg.",
    "tensorflow.nn.", "tensorflow.image.", "tensorflow.signal.", "tensorflow.ragged.", "tensorflow.",
    "torch.nn.functional.", "torch.linalg.", "torch.special.", "torch.fft.", "torch.",
    "jax.numpy.linalg.", "jax.numpy.", "jax.nn.", "jax.lax.", "jax.scipy.special.", "jax.",
)  # fmt: skip
HOST_LIBRARIES = (
    "numpy", "pandas", "polars", "scipy", "sklearn", "skimage", "cv2", "statsmodels", "numba", "xgboost", "lightgbm",
    "shapely", "networkx", "nltk", "PIL", "librosa", "editdistance", "Levenshtein", "matplotlib", "seaborn",
)  # fmt: skip
# One name to its other spellings.
_SPELLINGS = {
    "abs": "absolute",
    "all": "reduce_all",
    "any": "reduce_any",
    "arange": "range",
    "boolean_mask": "masked_select",
    "cast": "astype",
    "cast_float": "to_float",
    "cast_int": "to_int32 to_int64",
    "clip": "clamp clip_by_value",
    "concatenate": "cat concat",
    "divide": "div true_divide truediv",
    "expand_dims": "unsqueeze",
    "flatten": "ravel",
    "isnan": "is_nan",
    "matmul": "batch_dot bmm dot mm",
    "max": "amax",
    "min": "amin",
    "multiply": "mul",
    "power": "pow",
    "reshape": "view",
    "searchsorted": "bucketize digitize",
    "shape": "get_shape int_shape",
    "square": "sqr",
    "stop_gradient": "detach",
    "subtract": "sub",
    "take": "batch_gather embedding gather gather_nd index_select take_along_axis",
    "top_k": "topk",
    "transpose": "permute permute_dimensions swapaxes t",
    "unstack": "unbind",
}
_ALIASES = {other: name for name, others in _SPELLINGS.items() for other in others.split()}
REDUCTIONS = frozenset(
    [
        "mean",
        "sum",
        "max",
        "min",
        "prod",
        "std",
        "var",
        "any",
        "all",
        "logsumexp",
        "norm",
        "median",
        "argmax",
        "argmin",
        "count_nonzero",
        "nanmean",
        "nansum",
        "average",
        "quantile",
        "reduce_std",
        "reduce_variance",
        "euclidean_norm",
        "entropy",
        "nanmedian",
        "variance",
    ]
)
# Nothing of these flows back.
NOT_DIFFERENTIABLE = frozenset(
    [
        "argmax",
        "argmin",
        "argsort",
        "round",
        "floor",
        "ceil",
        "sign",
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "isnan",
        "isfinite",
        "isinf",
        "logical_and",
        "logical_or",
        "logical_not",
        "one_hot",
        "stop_gradient",
        "shape",
        "zeros_like",
        "ones_like",
        "any",
        "all",
        "count_nonzero",
        "searchsorted",
        "cast_int",
        "nonzero",
        "unique",
        "bincount",
        "histogram",
        "in_top_k",
        "arange",
        "zeros",
        "ones",
        "eye",
        "full",
        "constant",
    ]
)
COMPARISONS = frozenset(
    [
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "isnan",
        "isfinite",
        "isinf",
        "logical_and",
        "logical_or",
        "logical_not",
        "isclose",
        "eq",
        "ne",
        "gt",
        "lt",
        "ge",
        "le",
    ]
)
CREATORS = frozenset(
    [
        "zeros",
        "ones",
        "full",
        "eye",
        "arange",
        "linspace",
        "constant",
        "empty",
        "identity",
        "tri",
        "diag",
        "fill",
        "convert_to_tensor",
        "tensor",
        "as_tensor",
        "array",
        "asarray",
        "variable",
        "from_numpy",
    ]
)
# Work whose repetition, or whose place outside the step, is worth a remark.
HEAVY = frozenset(
    [
        "matmul",
        "einsum",
        "exp",
        "log",
        "softmax",
        "log_softmax",
        "sigmoid",
        "sort",
        "argsort",
        "top_k",
        "conv",
        "conv2d",
        "cdist",
        "norm",
        "logsumexp",
        "erf",
        "gamma",
        "lgamma",
        "fft",
        "rfft",
        "fft2",
        "svd",
        "inv",
        "solve",
        "qr",
        "cholesky",
        "det",
        "slogdet",
        "resize",
        "max_pool",
        "average_pool",
        "tensordot",
        "cumsum",
        "cumprod",
        "unique",
        "segment_sum",
        "power",
        "sqrt",
        "tanh",
    ]
)
_INTEGERS = ("int", "uint", "bool", "long")


def operation(name: str) -> str:
    """The one name of an array function; empty where it is none that runs on the device."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            short = name.removeprefix(prefix)
            return plain(short) if "." not in short else ""
    return ""


def plain(short: str) -> str:
    """The one name of a function or method without its module."""
    if short.startswith("reduce_") and short not in REDUCTIONS:
        short = _ALIASES.get(short, short.removeprefix("reduce_"))
    return _ALIASES.get(short, short)


def is_host_library(name: str) -> bool:
    """Whether a function computes on the host."""
    return name.split(".")[0] in HOST_LIBRARIES


def elementwise(values: list[Value], name: str = "") -> Data:
    """What an operation gives that works element by element, with broadcasting."""
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
    )


def _broadcast(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    if len(longer) > len(shorter) or NEW not in (*longer, *shorter):
        return tuple(a if a != NEW else b for a, b in zip(longer, shorter, strict=False)) + longer[len(shorter) :]
    return tuple(b if a == NEW else a for a, b in zip(longer, shorter, strict=True))


def reduced(data: Data, axis: Value | None, keepdims: bool, name: str) -> Data:
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


def unstacked(data: Data, axis: Value | None) -> Sequence:
    """A list of the slices along an axis."""
    at = int(axis.number) if isinstance(axis, Static) and axis.number is not None else 0
    if at < 0:
        return Sequence(data, LAST)
    label = data.axes[at] if at < len(data.axes) else LAST
    rank = None if data.rank is None else data.rank - 1
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


def created(shape: Value | None) -> Data:
    """A constant tensor."""
    sizes = shape.items if isinstance(shape, Tuple) else (shape,) if isinstance(shape, Size) else ()
    if isinstance(shape, Shape):
        return Data(axes=shape.axes)
    return Data(axes=tuple(size.label if isinstance(size, Size) else "constant" for size in sizes))


def cast(data: Data, dtype: Value | None, text: str) -> Data:
    """Of another dtype: integers have no gradient."""
    word = (dtype.text if isinstance(dtype, Static) and dtype.text else text).lower()
    whole = any(word.split(".")[-1].startswith(start) for start in _INTEGERS)
    return dataclasses.replace(data, differentiable=data.differentiable and not whole, role=data.role if whole else "")


def stacked(value: Value) -> Data:
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


def is_sample_index(value: Value) -> bool:
    """Whether a value counts samples."""
    return isinstance(value, Counter) and value.label == BATCH
