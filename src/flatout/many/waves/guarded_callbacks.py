"""Callbacks of one of several models that run at once: what they draw comes from the generators of their model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flatout.base.when_used import keras
from flatout.many.candidate import Candidate
from flatout.seam.callbacks import has_users_code


def guarded(callbacks: list[Any], candidate: Candidate, steps: int | None, epochs: int) -> Any:
    """The callbacks of a candidate as `fit` takes them; those that draw nothing stay as they are."""
    if draw_nothing(callbacks):
        return callbacks
    told = {"verbose": 0, "epochs": epochs, "steps": steps}
    made = keras.callbacks.CallbackList(callbacks, add_history=True, model=candidate.model, **told)
    for name in dir(made):
        if name.startswith("on_"):
            setattr(made, name, _guarded_hook(getattr(made, name), candidate))
    return made


def draw_nothing(callbacks: list[Any]) -> bool:
    """Whether no callback can draw random numbers: all are Keras' own, and none has functions of the user's."""
    return not any(map(has_users_code, callbacks))


def _guarded_hook(hook: Callable[..., Any], candidate: Candidate) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with candidate.generators():
            return hook(*args, **kwargs)

    return called
