"""A loss as array code, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rewrite:
    """A loss as array code."""

    source: str  # Python, in `keras.ops`: lines to run once, then the function under its own name.
    form: str  # How loops were replaced: "axis" (dimensions), "masked" (and selections), "map" (`vectorized_map`).
    notes: tuple[str, ...] = ()  # What differs where the original fails or is undefined, and what was left out.
    codes: tuple[str, ...] = ()  # The rules of docs/losses.md that the rewrite answers.
    ranks: tuple[tuple[str, int], ...] = ()  # Of the parameters that are arrays; the rewrite holds for these.
    names: Mapping[str, Any] = field(default_factory=dict)  # What the source needs beside the function's globals.
    guards: tuple[tuple[str, bool], ...] = ()  # Expressions that decided a branch, with the truth they must have.
    hints: tuple[tuple[Any, ...], ...] = ()  # What was learned about the values of the parameters.
    is_tie_sensitive: bool = False  # Whether the order of equal entries matters.
    # Functions and their outside names that the source holds as they were, such as a helper that was read in.
    pins: tuple[tuple[Any, str, Any], ...] = ()


@dataclass(frozen=True)
class NoRewrite:
    """Why a loss is left as it is."""

    reason: str  # One sentence.
    code: str  # The rule of docs/losses.md that stands in the way.
    line: int | None = None  # Of the source.
    is_rank: bool = False  # Whether arrays of other ranks might do.
    hints: tuple[tuple[Any, ...], ...] = ()  # What was learned about the values of the parameters until then.

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return f"{self.code}: {self.reason}{where}"
