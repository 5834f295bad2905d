"""The operations of a traced jax program, in NumPy, for the few numbers of a trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .gathers_on_host import NotOnHost, gathered, scattered

Operation = Callable[..., Any]


def _by_entries(function: Callable[[float], float]) -> Operation:
    """A function of Python's, for each entry."""

    def of_all(params: Any, x: np.ndarray) -> np.ndarray:
        if not np.all(np.isfinite(x)):
            raise NotOnHost(function.__name__)
        return np.asarray([function(entry) for entry in x.ravel().tolist()], x.dtype).reshape(x.shape)

    return of_all


def _simple(function: Any) -> Operation:
    return lambda params, *values: function(*values)


def _numbers(function: Any) -> Operation:
    """A function of NumPy's that is XLA's for floats; for integers they differ at zero or overflow."""

    def of_floats(params: Any, *values: np.ndarray) -> Any:
        if any(value.dtype.kind != "f" for value in values):
            raise NotOnHost(function.__name__)
        return function(*values)

    return of_floats


def _converted(params: Any, x: np.ndarray) -> np.ndarray:
    dtype = np.dtype(params["new_dtype"])
    if x.dtype.kind == "f" and dtype.kind in "iu":
        if dtype.itemsize > 4:
            raise NotOnHost("a conversion to 64 bits")
        limits = np.iinfo(dtype)
        # XLA saturates, and makes 0 of NaN. In float64 the limits are exact.
        return np.nan_to_num(np.clip(x.astype("float64"), limits.min, limits.max), nan=0.0).astype(dtype)
    return x.astype(dtype)


def _divided(params: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return x / y
    if np.any(y == 0):
        raise NotOnHost("division of an integer by zero")
    return np.asarray(np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))) if x.dtype.kind == "i" else x // y


def _remainder(params: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f" and np.any(y == 0):
        raise NotOnHost("remainder of an integer by zero")
    return np.fmod(x, y)


def _power(params: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f":
        raise NotOnHost("power of an integer")
    return np.power(x, y.astype(x.dtype))


def _integer_power(params: Any, x: np.ndarray) -> np.ndarray:
    y = params["y"]
    raised = np.multiply.reduce([x] * abs(y)) if y else np.ones_like(x)
    return raised if y >= 0 else 1 / raised


def _rounded(params: Any, x: np.ndarray) -> np.ndarray:
    if params["rounding_method"].name == "TO_NEAREST_EVEN":
        return np.rint(x)
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(np.ones_like(x), x), whole)


def _chosen(params: Any, which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype != bool:
        which = np.clip(which, 0, len(cases) - 1)
    elif len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(np.broadcast_to(which, cases[0].shape).astype("int64"), cases)


def _broadcast(params: Any, x: np.ndarray, *sizes: np.ndarray) -> np.ndarray:
    if sizes:
        raise NotOnHost("a size that is computed")
    shape, places = params["shape"], params["broadcast_dimensions"]
    spread = [1] * len(shape)
    for place, size in zip(places, x.shape, strict=True):
        spread[place] = size
    return np.broadcast_to(x.reshape(spread), shape)


def _reshaped(params: Any, x: np.ndarray, *sizes: np.ndarray) -> np.ndarray:
    if params.get("dimensions") is not None or sizes:
        raise NotOnHost("a reshape with an order")
    return x.reshape(params["new_sizes"])


def _sliced(params: Any, x: np.ndarray) -> np.ndarray:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return x[tuple(slice(*bound) for bound in bounds)]


def _padded(params: Any, x: np.ndarray, filling: np.ndarray) -> np.ndarray:
    config = params["padding_config"]
    sizes = [
        max(0, low) + max(0, high) + size + max(0, size - 1) * inner
        for size, (low, high, inner) in zip(x.shape, config, strict=True)
    ]
    made = np.full(sizes, filling, x.dtype)
    ends = [(max(0, low), size, inner + 1) for size, (low, _, inner) in zip(x.shape, config, strict=True)]
    made[tuple(slice(low, low + (size - 1) * step + 1 if size else low, step) for low, size, step in ends)] = x
    # A negative padding cuts off what is there.
    return made[
        tuple(slice(max(0, -low), made.shape[place] - max(0, -high)) for place, (low, high, _) in enumerate(config))
    ]


def _starts(values: Sequence[np.ndarray], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """A slice that would reach beyond an end starts sooner."""
    given = zip(values, shape, sizes, strict=True)
    return [int(np.clip(int(start), 0, whole - size)) for start, whole, size in given]


def _dynamic_slice(params: Any, x: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    sizes = params["slice_sizes"]
    found = _starts(starts, x.shape, sizes)
    return x[tuple(slice(start, start + size) for start, size in zip(found, sizes, strict=True))]


def _dynamic_update(params: Any, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    found = _starts(starts, x.shape, update.shape)
    made = x.copy()
    made[tuple(slice(start, start + size) for start, size in zip(found, update.shape, strict=True))] = update
    return made


def _reduced(function: Any) -> Operation:
    return lambda params, x: function(x, axis=tuple(params["axes"]))


def _place_of(function: Any) -> Operation:
    return lambda params, x: function(x, axis=params["axes"][0])


def _running(function: Any) -> Operation:
    def along(params: Any, x: np.ndarray) -> np.ndarray:
        axis = params["axis"]
        turned = np.flip(x, axis) if params["reverse"] else x
        made = function(turned, axis)
        return np.flip(made, axis) if params["reverse"] else made

    return along


def _dot(params: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    (of_x, of_y), (batch_x, batch_y) = params["dimension_numbers"]
    names_x: list[int] = list(range(x.ndim))
    names_y = list(range(x.ndim, x.ndim + y.ndim))
    for one, other in zip((*of_x, *batch_x), (*of_y, *batch_y), strict=True):
        names_y[other] = names_x[one]
    free_x = [name for place, name in enumerate(names_x) if place not in (*of_x, *batch_x)]
    free_y = [name for place, name in enumerate(names_y) if place not in (*of_y, *batch_y)]
    return np.asarray(np.einsum(x, names_x, y, names_y, [names_x[place] for place in batch_x] + free_x + free_y))


def _sorted(params: Any, *values: np.ndarray) -> list[np.ndarray]:
    axis, keys = params["dimension"], params["num_keys"]
    order = np.arange(values[0].shape[axis])
    order = np.broadcast_to(
        order.reshape([-1 if place == axis else 1 for place in range(values[0].ndim)]), values[0].shape
    )
    # The last key first: a stable sort keeps the order that later keys have given.
    for key in reversed(values[:keys]):
        again = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, again, axis)
    return [np.take_along_axis(value, order, axis) for value in values]


def _split(params: Any, x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], params["axis"])


def _counted(params: Any) -> np.ndarray:
    shape, place = params["shape"], params["dimension"]
    line = np.arange(shape[place]).reshape([-1 if axis == place else 1 for axis in range(len(shape))])
    return np.broadcast_to(line, shape)


# By the name of the primitive; each takes its parameters, then its arrays.
OPERATIONS: Mapping[str, Operation] = {
    "abs": _simple(np.abs),
    "acos": _numbers(np.arccos),
    "acosh": _numbers(np.arccosh),
    "add": _simple(np.add),
    "add_any": _simple(np.add),
    "and": _simple(np.bitwise_and),
    "argmax": _place_of(np.argmax),
    "argmin": _place_of(np.argmin),
    "asin": _numbers(np.arcsin),
    "asinh": _numbers(np.arcsinh),
    "atan": _numbers(np.arctan),
    "atan2": _numbers(np.arctan2),
    "atanh": _numbers(np.arctanh),
    "broadcast_in_dim": _broadcast,
    "ceil": _numbers(np.ceil),
    "clamp": _simple(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "concatenate": lambda params, *values: np.concatenate(values, params["dimension"]),
    "convert_element_type": _converted,
    "copy": _simple(np.asarray),
    "cos": _numbers(np.cos),
    "cosh": _numbers(np.cosh),
    "cummax": _running(np.maximum.accumulate),
    "cummin": _running(np.minimum.accumulate),
    "cumprod": _running(np.multiply.accumulate),
    "cumsum": _running(np.add.accumulate),
    "div": _divided,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "eq": _simple(np.equal),
    "erf": _by_entries(math.erf),
    "erfc": _by_entries(math.erfc),
    "exp": _numbers(np.exp),
    "exp2": _numbers(np.exp2),
    "expm1": _numbers(np.expm1),
    "floor": _numbers(np.floor),
    "gather": gathered,
    "ge": _simple(np.greater_equal),
    "gt": _simple(np.greater),
    "integer_pow": _integer_power,
    "iota": _counted,
    "is_finite": _simple(np.isfinite),
    "le": _simple(np.less_equal),
    "log": _numbers(np.log),
    "log1p": _numbers(np.log1p),
    "logistic": _numbers(lambda x: 1 / (1 + np.exp(-x))),
    "lt": _simple(np.less),
    "max": _simple(np.maximum),
    "min": _simple(np.minimum),
    "mul": _simple(np.multiply),
    "ne": _simple(np.not_equal),
    "neg": _simple(np.negative),
    "not": _simple(np.bitwise_not),
    "or": _simple(np.bitwise_or),
    "pad": _padded,
    "pow": _power,
    "reduce_and": _reduced(np.all),
    "reduce_max": _reduced(np.max),
    "reduce_min": _reduced(np.min),
    "reduce_or": _reduced(np.any),
    "reduce_prod": _reduced(np.prod),
    "reduce_sum": _reduced(np.sum),
    "rem": _remainder,
    "reshape": _reshaped,
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "round": _rounded,
    "rsqrt": _numbers(lambda x: 1 / np.sqrt(x)),
    "scatter": scattered(None),
    "scatter-add": scattered(np.add),
    "scatter-max": scattered(np.maximum),
    "scatter-min": scattered(np.minimum),
    "scatter-mul": scattered(np.multiply),
    "select_n": _chosen,
    "sign": _simple(np.sign),
    "sin": _numbers(np.sin),
    "sinh": _numbers(np.sinh),
    "slice": _sliced,
    "sort": _sorted,
    "split": _split,
    "sqrt": _numbers(np.sqrt),
    "square": _simple(np.square),
    "squeeze": lambda params, x: np.squeeze(x, tuple(params["dimensions"])),
    "stack": lambda params, *values: np.stack(values, params["axis"]),
    "stop_gradient": _simple(np.asarray),
    "sub": _simple(np.subtract),
    "tan": _numbers(np.tan),
    "tanh": _numbers(np.tanh),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "unstack": lambda params, x: list(np.moveaxis(x, params["axis"], 0)),
    "xor": _simple(np.bitwise_xor),
}
