"""The shape of a convolution, of which jax tells the operands' alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConvolutionShape:
    """What is known of a convolution without its values, along each axis of the window.

    Attributes:
        parameters: Those of `lax.conv_general_dilated_p`.
        lengths: Of the operand.
        window: Of the kernel.
    """

    parameters: dict[str, Any]
    lengths: tuple[int, ...]
    window: tuple[int, ...]

    @classmethod
    def of(cls, lhs: Any, rhs: Any, parameters: dict[str, Any]) -> ConvolutionShape:
        numbers = parameters["dimension_numbers"]
        both = (lhs, numbers.lhs_spec), (rhs, numbers.rhs_spec)
        lengths, window = (tuple(operand.shape[axis] for axis in spec[2:]) for operand, spec in both)
        return cls(parameters, lengths, window)

    @property
    def result(self) -> tuple[int, ...]:
        """Positions of the result."""
        given = self.parameters
        axes = zip(self.lengths, self.window, given["padding"], self.spread, self.spacing, self.strides, strict=True)
        found = []
        for length, size, (low, high), spread, space, stride in axes:
            covered = (length - 1) * spread + 1 + low + high - (size - 1) * space - 1
            found.append(max(0, covered // stride + 1))
        return tuple(found)

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(self.parameters["window_strides"])

    @property
    def spacing(self) -> tuple[int, ...]:
        return tuple(self.parameters["rhs_dilation"])

    @property
    def spread(self) -> tuple[int, ...]:
        return tuple(self.parameters["lhs_dilation"])

    @property
    def products(self) -> dict[str, Any]:
        """The parameters of a product in its place."""
        return {name: self.parameters[name] for name in ("precision", "preferred_element_type")}

    @property
    def is_grouped(self) -> bool:
        return self.parameters["feature_group_count"] != 1 or self.parameters["batch_group_count"] != 1
