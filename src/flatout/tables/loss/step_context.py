"""What a loss or a table can know of the step that it runs in: the model, this batch's x, whether it trains."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepContext:
    """One call of a model's loss.

    Attributes:
        model: Whose loss it is.
        x: This batch's inputs with all their entries, those that the model does not take among them.
        training: False in evaluate.
    """

    model: Any
    x: Any
    training: bool


_current: contextvars.ContextVar[StepContext | None] = contextvars.ContextVar("flatout_step", default=None)


def current_step() -> StepContext | None:
    """The step whose loss is being computed, or None outside of all."""
    return _current.get()


@contextlib.contextmanager
def inside_step(context: StepContext) -> Iterator[None]:
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
