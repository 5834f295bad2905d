"""A loss as array code, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rewrite:
    """A loss as array code.

    Attributes:
        source: Python, in `keras.ops`: lines to run once, then the function under its own name.
        form: How the loops were replaced: `"axis"` (dimensions), `"masked"` (dimensions and selections) or `"map"`
            (`vectorized_map` of the loop's body).
        notes: What differs where the original fails or is undefined, and what was left out.
        codes: The rules of docs/losses.md that the rewrite answers.
        ranks: Of the parameters that are arrays; the rewrite holds for these.
        names: Objects that the source needs beside the function's own globals.
        guards: Expressions that decided a branch, with the truth that they must have.
        hints: What was learned about the values of the parameters.
        is_tie_sensitive: Whether the order of equal entries matters.
        pins: Functions and their outside names that the source holds as they were, such as a helper that was read in.
    """

    source: str
    form: str
    notes: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    names: Mapping[str, Any] = field(default_factory=dict)
    guards: tuple[tuple[str, bool], ...] = ()
    hints: tuple[tuple[Any, ...], ...] = ()
    is_tie_sensitive: bool = False
    pins: tuple[tuple[Any, str, Any], ...] = ()


@dataclass(frozen=True)
class NoRewrite:
    """Why a loss is left as it is.

    Attributes:
        reason: One sentence.
        code: The rule of docs/losses.md that stands in the way.
        line: Of the source, or None.
        is_rank: Whether arrays of other ranks might do.
        hints: What was learned about the values of the parameters until then.
    """

    reason: str
    code: str
    line: int | None = None
    is_rank: bool = False
    hints: tuple[tuple[Any, ...], ...] = ()

    def __str__(self) -> str:
        where = f" (line {self.line})" if self.line else ""
        return f"{self.code}: {self.reason}{where}"
