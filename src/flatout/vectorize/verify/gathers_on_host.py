"""Gathers and scatters of jax in NumPy: one window after the other, as their definition has it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np


class NotOnHost(Exception):
    """NumPy would not give what XLA gives, or it is not known how to."""


def gathered(params: Any, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [size for axis, size in enumerate(sizes) if axis not in dropped]
    batch = indices.shape[:-1]
    made = np.empty((*batch, *kept), x.dtype)
    places = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    for at, start, is_inside in _windows(params, x.shape, indices, sizes, numbers.start_index_map, places):
        made[at] = x[_window(start, sizes)].reshape(kept) if is_inside else _filling(params, x.dtype)
    # The dimensions of a window are spread among those of the indices.
    order = iter(range(made.ndim))
    source = [0] * made.ndim
    for axis in [axis for axis in range(made.ndim) if axis not in numbers.offset_dims]:
        source[axis] = next(order)
    for axis in numbers.offset_dims:
        source[axis] = next(order)
    return made.transpose(source)


def scattered(combine: Callable[..., Any] | None) -> Callable[..., np.ndarray]:
    """What writes windows into an array, combined with what is there; None: in its place."""

    def scatter(params: Any, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        numbers = params["dimension_numbers"]
        outer = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
        parts = updates.transpose((*outer, *numbers.update_window_dims))
        dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        window = iter(parts.shape[len(outer) :])
        sizes = [1 if axis in dropped else next(window) for axis in range(x.ndim)]
        places = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
        made = x.copy()
        written: set[tuple[int, ...]] = set()
        to = numbers.scatter_dims_to_operand_dims
        for at, start, is_inside in _windows(params, x.shape, indices, sizes, to, places):
            if not is_inside:
                continue
            if combine is None and tuple(start) in written:
                raise NotOnHost("several updates of one place")  # Which of them stays is not defined.
            written.add(tuple(start))
            window_of_x = _window(start, sizes)
            part = parts[at].reshape(sizes)
            made[window_of_x] = part if combine is None else combine(made[window_of_x], part)
        return made

    return scatter


def _windows(
    params: Any,
    shape: Sequence[int],
    indices: np.ndarray,
    sizes: Sequence[int],
    index_map: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]],
) -> Iterator[tuple[tuple[int, ...], list[int], bool]]:
    """The place of each index, where its window starts, and whether that is to be read or written."""
    mode = str(params["mode"]).rpartition(".")[2].upper()
    if not any(known in mode for known in ("CLIP", "FILL", "DROP", "PROMISE")):
        raise NotOnHost(f"mode {mode}")
    for at in itertools.product(*map(range, indices.shape[:-1])):
        start = [0] * len(shape)
        for axis, index in zip(index_map, indices[at], strict=True):
            start[axis] = int(index)
        for axis, place in zip(*batching, strict=True):
            start[axis] = at[place]
        last = [whole - size for whole, size in zip(shape, sizes, strict=True)]
        is_inside = all(0 <= one <= most for one, most in zip(start, last, strict=True))
        if not is_inside and "PROMISE" in mode:
            raise NotOnHost("an index out of range")
        if not is_inside and "CLIP" in mode:
            start = [min(max(0, one), most) for one, most in zip(start, last, strict=True)]
            is_inside = True
        yield at, start, is_inside


def _window(start: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(one, one + size) for one, size in zip(start, sizes, strict=True))


def _filling(params: Any, dtype: np.dtype[Any]) -> Any:
    if params.get("fill_value") is not None:
        return params["fill_value"]
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "b":
        return True
    limits = np.iinfo(dtype)
    return limits.min if dtype.kind == "i" else limits.max
