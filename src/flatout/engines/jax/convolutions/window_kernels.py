"""Convolutions of few features, and the gradients of their kernels, as one Pallas kernel each.

cuDNN's kernels are made for larger matrices, and take up to ten times as long with these as reading the numbers takes.
Here a program takes some positions of the result. It reads what the window covers there place by place, as a matrix of
positions times features: most of what it has read for one place it needs again for the next, and finds near. Nothing is
laid out in memory before.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

# Of tensor cores: no side of a product has fewer.
_LEAST = 16
# Rows of a tile that has features of several places.
_MOST_FLAT = 32
# A result's positions and warps of a program, and loads under way (H200).
_POSITIONS, _WARPS, _STAGES = 128, 4, 3
# Of a float32, as tensor cores have it (TF32).
_UPPER_BITS = -(2**13)
# Numbers that a program of a gradient sums in registers.
_MOST_SUMS = 24_576


@dataclass(frozen=True)
class WindowForm:
    """A convolution of images whose features lie last, as its kernels need it.

    Attributes:
        images: How many.
        lengths: Of an image, along each axis of the window.
        positions: Of the result, likewise.
        window: Its size.
        strides: From a position to the next.
        spacing: From a place in the window to the next.
        spread: From a number of the image to the next: between them are zeros.
        padding: Zeros before the first.
        features: Of an image.
        results: At a position.
        interpret: Whether to run as plain jax operations, on any device.
    """

    images: int
    lengths: tuple[int, ...]
    positions: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    spacing: tuple[int, ...]
    spread: tuple[int, ...]
    padding: tuple[int, ...]
    features: int
    results: int
    interpret: bool = False

    @property
    def all_positions(self) -> int:
        return self.images * math.prod(self.positions)

    @property
    def _rows(self) -> int:
        """Of the kernel as a matrix."""
        return math.prod(self.window) * self.features

    @property
    def is_flat(self) -> bool:
        """Whether a tile has features of several places, since one has too few."""
        return self.features < _LEAST

    @property
    def tile(self) -> int:
        """Rows of a tile; the kernel as a matrix is divided into so many."""
        return min(_filled(self._rows), _MOST_FLAT) if self.is_flat else _filled(self.features)

    @property
    def tiles(self) -> int:
        return -(-self._rows // self.tile) if self.is_flat else math.prod(self.window)

    @property
    def columns(self) -> int:
        return _filled(self.results)

    def rows_of(self, tile: Any) -> tuple[list[Any], Any, Any]:
        """The place in the window and the feature of each row of a tile, and whether there is such a row."""
        row = jnp.arange(self.tile, dtype=jnp.int32)
        if self.is_flat:
            row = row + tile * self.tile
            place, feature = _divided(row, (math.prod(self.window), self.features))
            return _divided(place, self.window), feature, row < self._rows
        return _divided(tile, self.window), row, row < self.features

    def covered(self, images: Any, position: Any, tile: Any) -> Any:
        """What the window covers from some positions, in the places and features of a tile."""
        image, *at = _divided(position, (self.images, *self.positions))
        place, feature, exists = self.rows_of(tile)
        inside = (position < self.all_positions)[:, None] & exists[None, :]
        number = image[:, None]
        for axis, length in enumerate(self.lengths):
            where = at[axis][:, None] * self.strides[axis] - self.padding[axis] + place[axis] * self.spacing[axis]
            inside &= where >= 0
            if self.spread[axis] > 1:
                where, between = _divided(where, (length, self.spread[axis]))
                inside &= between == 0
            inside &= where < length
            number = number * length + where
        return triton.load(images.at[number * self.features + feature[None, :]], mask=inside, other=0)

    def joined(self, tiles: Any) -> Any:
        """The kernel of all tiles: window, features, results."""
        rows = tiles.reshape(-1, self.columns)[: self._rows] if self.is_flat else tiles[:, : self.features]
        return rows[..., : self.results].reshape(*self.window, self.features, self.results)

    def apart(self, kernel: Any) -> Any:
        """Its tiles, filled with zeros."""
        fill = self.columns - self.results
        if self.is_flat:
            rows = kernel.reshape(self._rows, self.results)
            rows = jnp.pad(rows, ((0, self.tiles * self.tile - self._rows), (0, fill)))
            return rows.reshape(self.tiles, self.tile, self.columns)
        rows = kernel.reshape(self.tiles, self.features, self.results)
        return jnp.pad(rows, ((0, 0), (0, self.tile - self.features), (0, fill)))


@dataclass(frozen=True)
class _Division:
    """How the work of a gradient is divided among programs (H200).

    Attributes:
        warps: Of a program: more would compute the same.
        stages: Loads under way.
        positions: That are taken in one go.
        programs: Of each multiprocessor.
    """

    warps: int
    stages: int
    positions: int
    programs: int


# By the numbers in a tile, at most.
_DIVISIONS = {512: _Division(1, 1, 32, 16), 1024: _Division(2, 2, 64, 4), 4096: _Division(4, 2, 64, 4)}


# Compiled as functions, so that the layers of a model that are alike are traced and lowered once.
@functools.partial(jax.jit, static_argnums=0)
def convolved(form: WindowForm, images: Any, kernel: Any) -> Any:
    """Images `[images, *lengths, features]` convolved with a kernel `[*window, features, results]`."""
    found = pl.pallas_call(
        functools.partial(_convolve, form),
        grid=(-(-form.all_positions // _POSITIONS),),
        in_specs=[_whole(images.size), _whole(form.tiles, form.tile, form.columns)],
        out_specs=_whole(form.all_positions * form.results),
        out_shape=jax.ShapeDtypeStruct((form.all_positions * form.results,), images.dtype),
        **_compiled(form, _WARPS, _STAGES),
    )(images.reshape(-1), form.apart(kernel))
    return found.reshape(form.images, *form.positions, form.results)


def _convolve(form: WindowForm, images: Any, tiles: Any, out: Any) -> None:
    position = pl.program_id(0) * _POSITIONS + jnp.arange(_POSITIONS, dtype=jnp.int32)

    def add(tile: Any, total: Any) -> Any:
        return total + _product(form, form.covered(images, position, tile), tiles[tile], 1)

    total = lax.fori_loop(np.int32(0), np.int32(form.tiles), add, jnp.zeros((_POSITIONS, form.columns), jnp.float32))
    number, exists = _results(form, position)
    triton.store(out.at[number], total.astype(out.dtype), mask=exists)


@functools.partial(jax.jit, static_argnums=(0, 3))
def gradient_of_kernel(form: WindowForm, images: Any, of_results: Any, cores: int) -> Any:
    """The gradient of the kernel, from that of the results `[images, *positions, results]`, on so many processors."""
    size = form.tile * form.columns
    division = next(division for most, division in _DIVISIONS.items() if size <= most)
    at_once = max(number for number in range(1, form.tiles + 1) if _is_divisor(number, form.tiles, size))
    groups = form.tiles // at_once
    blocks = -(-form.all_positions // division.positions)
    of_a_part = -(-blocks // max(1, cores * division.programs // groups))
    parts = -(-blocks // of_a_part)
    sums = pl.pallas_call(
        functools.partial(_sum_gradient, form, division.positions, of_a_part),
        grid=(parts, groups),
        in_specs=[_whole(images.size), _whole(of_results.size)],
        out_specs=pl.BlockSpec((None, at_once, form.tile, form.columns), lambda part, group: (part, group, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((parts, form.tiles, form.tile, form.columns), jnp.float32),
        **_compiled(form, division.warps, division.stages),
    )(images.reshape(-1), of_results.reshape(-1))
    return form.joined(jnp.sum(sums, axis=0)).astype(images.dtype)


def _is_divisor(number: int, tiles: int, size: int) -> bool:
    return tiles % number == 0 and (number == 1 or number * size <= _MOST_SUMS)


def _sum_gradient(form: WindowForm, positions: int, of_a_part: int, images: Any, of_results: Any, out: Any) -> None:
    part, group, tiles = pl.program_id(0), pl.program_id(1), out.shape[0]

    def add(block: Any, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        position = (part * of_a_part + block) * positions + jnp.arange(positions, dtype=jnp.int32)
        number, exists = _results(form, position)
        gradient = triton.load(of_results.at[number], mask=exists, other=0)
        covered = (form.covered(images, position, group * tiles + tile) for tile in range(tiles))
        return tuple(total + _product(form, each, gradient, 0) for total, each in zip(sums, covered, strict=True))

    begin = tuple(jnp.zeros(out.shape[1:], jnp.float32) for _ in range(tiles))
    for tile, total in enumerate(lax.fori_loop(np.int32(0), np.int32(of_a_part), add, begin)):
        out[tile] = total


def _results(form: WindowForm, position: Any) -> tuple[Any, Any]:
    """Numbers of the results at positions, and which of them there are."""
    result = jnp.arange(form.columns, dtype=jnp.int32)[None, :]
    exists = (position < form.all_positions)[:, None] & (result < form.results)
    return position[:, None] * form.results + result, exists


def _product(form: WindowForm, one: Any, other: Any, axis: int) -> Any:
    def multiplied(one: Any, other: Any) -> Any:
        # By tensor cores, with the upper 19 bits of each number.
        return lax.dot_general(one, other, (((axis,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    if not form.is_flat:
        return multiplied(one, other)
    # For so few features cuDNN takes kernels that multiply whole numbers.
    (upper, lower), (other_upper, other_lower) = _halves(one), _halves(other)
    small = multiplied(_finite(upper), other_lower) + multiplied(lower, _finite(other_upper))
    return small + multiplied(upper, other_upper)


def _halves(value: Any) -> tuple[Any, Any]:
    """Two numbers that add up to a number: its upper 19 bits, and the rest."""
    bits = lax.bitcast_convert_type(value, jnp.int32) & np.int32(_UPPER_BITS)
    upper = lax.bitcast_convert_type(bits, jnp.float32)
    return upper, _finite(value) - _finite(upper)


def _finite(value: Any) -> Any:
    """Without infinities, which would make numbers of none of zeros."""
    return jnp.where(jnp.abs(value) == jnp.inf, jnp.zeros_like(value), value)


def _divided(number: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Where a number is along each axis of an array of these sizes."""
    found, number = [], jnp.asarray(number, jnp.int32)
    for size in reversed(sizes[1:]):
        # Not by % and //, which would look for negative numbers.
        found.append(lax.rem(number, jnp.int32(size)))
        number = lax.div(number, jnp.int32(size))
    return [number, *reversed(found)]


def _filled(count: int) -> int:
    return max(_LEAST, 1 << (count - 1).bit_length())


def _whole(*shape: int) -> pl.BlockSpec:
    return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))


def _compiled(form: WindowForm, warps: int, stages: int) -> dict[str, Any]:
    if form.interpret:
        return {"interpret": True}
    return {"compiler_params": triton.CompilerParams(num_warps=warps, num_stages=stages)}
