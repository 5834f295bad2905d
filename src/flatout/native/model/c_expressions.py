"""Numbers, names and activations of a model as C spells them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from flatout.base.errors import Refusal, reason


def c_float(number: float) -> str:
    """A float32 literal of C, exact."""
    if not math.isfinite(number):
        raise Refusal(reason("native_model", f"one of its constants is {number}"))
    text = f"{number:.9g}"
    return f"{text}f" if any(mark in text for mark in ".e") else f"{text}.0f"


def c_bool(value: bool) -> str:
    return "true" if value else "false"


def identifier(name: str) -> str:
    """A layer's name as one of C."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"layer_{made}" if made[:1].isdigit() else made


@dataclass(frozen=True)
class Curve:
    """An activation function.

    Attributes:
        name: As Keras calls it.
        value: A C expression of `z`, what it is given.
        slope: A C expression of `z` and `y`, its value.
        needs_z: Whether the slope cannot do with `y` alone.
    """

    name: str
    value: str
    slope: str
    needs_z: bool = False

    @property
    def is_linear(self) -> bool:
        return self.name == "linear"


LINEAR = Curve("linear", "z", "1.0f")


def relu(negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0) -> Curve:
    """Keras' `relu` with its three numbers."""
    if negative_slope == 0 and max_value is None and threshold == 0:
        # A NaN stays one, as in Keras.
        return Curve("relu", "z > 0.0f || z != z ? z : 0.0f", "y > 0.0f ? 1.0f : 0.0f")
    low, slope = c_float(threshold), c_float(negative_slope)
    above = f"z > {low}" if threshold else f"z > {low} || z != z"
    value, inside = f"({above} ? z : 0.0f)", f"z > {low}"
    if max_value is not None:
        value, inside = f"clipped({value}, 0.0f, {c_float(max_value)})", f"{inside} && z < {c_float(max_value)}"
    below = f"{slope} * fmaxf({low} - z, 0.0f)"
    return Curve(
        "relu",
        f"{value} - {below}",
        f"({inside} ? 1.0f : 0.0f) + (z < {low} ? {slope} : 0.0f)",
        needs_z=True,
    )


def leaky_relu(negative_slope: float, slope_at_zero_is_1: bool) -> Curve:
    """The slope at 0 itself is 1 on jax, and `negative_slope` elsewhere."""
    slope, above = c_float(negative_slope), "z >= 0.0f" if slope_at_zero_is_1 else "z > 0.0f"
    return Curve("leaky_relu", f"z >= 0.0f ? z : {slope} * z", f"{above} ? 1.0f : {slope}", needs_z=True)


def elu(alpha: float) -> Curve:
    factor = c_float(alpha)
    return Curve("elu", f"z > 0.0f ? z : {factor} * expm1f(z)", f"z > 0.0f ? 1.0f : {factor} * expf(z)", needs_z=True)


_CDF = f"0.5f * erfcf(-z * {c_float(math.sqrt(0.5))})"
_DENSITY = f"{c_float(1 / math.sqrt(2 * math.pi))} * expf(-0.5f * z * z)"
_REST = "(1.0f + expf(-z))"
# Functions of `keras.activations`, with the numbers that they have there.
NAMED = {
    "linear": LINEAR,
    "relu": relu(),
    "relu6": relu(max_value=6.0),
    "elu": elu(alpha=1.0),
    # The exact one, by the error function.
    "gelu": Curve("gelu", f"z * ({_CDF})", f"{_CDF} + z * {_DENSITY}", needs_z=True),
    "silu": Curve("silu", f"z / {_REST}", f"(1.0f + z * (1.0f - 1.0f / {_REST})) / {_REST}", needs_z=True),
    "sigmoid": Curve("sigmoid", f"1.0f / {_REST}", "y * (1.0f - y)"),
    "tanh": Curve("tanh", "tanhf(z)", "1.0f - y * y"),
}
