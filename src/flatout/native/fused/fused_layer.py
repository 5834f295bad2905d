"""What one hidden layer takes of the registers and the shared memory of a block in the fused form."""

from __future__ import annotations

import math
from dataclasses import dataclass


def units_of_a_block(width: int, cluster: int) -> int:
    """Units of a layer that each block owns: 8 or a multiple of 16. The last ones may only fill the matrix tiles."""
    least = math.ceil(width / cluster)
    return 8 if least <= 8 else math.ceil(least / 16) * 16


def padded_tiles(inputs: int, warps: int) -> int:
    """Tiles of 16 inputs, with those that fill the warps: each has as many, and those without another role may have one
    more."""
    tiles = math.ceil(inputs / 16)
    each, extra = divmod(tiles, warps)
    return tiles if each > 0 and extra <= warps - 3 else (each + 1) * warps


@dataclass(frozen=True)
class FusedLayer:
    """A hidden layer of a fused kernel.

    Attributes:
        inputs: Values of a row that it is given.
        width: Its units.
        cluster: Blocks that share them.
        warps: Of a block.
        batch: Rows of a step.
        planes: Halves that make one value of its input.
        is_exact: Whether every operand is the sum of two halves.
        slots: Variables of the optimizer beside each weight.
    """

    inputs: int
    width: int
    cluster: int
    warps: int
    batch: int
    planes: int
    is_exact: bool
    slots: int

    @property
    def units(self) -> int:
        return units_of_a_block(self.width, self.cluster)

    @property
    def tiles(self) -> int:
        """Of 16 inputs, together with those that are only there to fill the warps."""
        return padded_tiles(self.inputs, self.warps)

    @property
    def tiles_of_a_warp(self) -> int:
        return self.tiles // self.warps

    @property
    def tiles_at_once(self) -> int:
        return min(self.tiles_of_a_warp, {8: 6, 16: 2}.get(self.units, 1))

    @property
    def state_registers(self) -> int:
        """What weights and optimizer state take of a thread's registers."""
        return (self.tiles_of_a_warp + 1) * self.units // 2 * (1 + self.slots)

    @property
    def sum_registers(self) -> int:
        """The same of forward sums."""
        if self.units == 8:
            return self.batch // 2
        return self.units * self.batch // 32 * (2 if self.is_exact else 1)

    @property
    def row_halves(self) -> int:
        return self.planes * self.tiles * 16

    @property
    def row_bytes(self) -> int:
        """All rows of its input in shared memory."""
        return self.batch * (2 * self.row_halves + 16)

    @property
    def own_floats(self) -> int:
        """Slopes, gradient and bias in shared memory."""
        return self.units * self.batch + self.batch // 8 * 32 * 2 * (self.units // 8) + self.units
