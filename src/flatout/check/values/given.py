"""What a call is given: values by position and by keyword."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from .abstract_values import AbstractValue
from .names import Names


@dataclass(frozen=True)
class Given:
    """The arguments of a call, with the call itself and the names around it."""

    values: tuple[AbstractValue, ...]
    keywords: Mapping[str, AbstractValue]
    node: ast.Call
    names: Names

    @property
    def everything(self) -> list[AbstractValue]:
        """All of it."""
        return [*self.values, *self.keywords.values()]

    @property
    def first(self) -> AbstractValue | None:
        """What comes first, by position or by keyword."""
        return next(iter(self.everything), None)

    def at(self, place: int, *names: str) -> AbstractValue | None:
        """What is given by one of the keywords, else by position."""
        found = next((self.keywords[name] for name in names if name in self.keywords), None)
        return found if found is not None else self.values[place] if len(self.values) > place else None

    @property
    def axis(self) -> AbstractValue | None:
        """The axis of a reduction or selection."""
        return self.at(1, "axis", "dim")
