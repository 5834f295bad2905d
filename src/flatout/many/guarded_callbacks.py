"""Callbacks of one of several models that run at once: what they draw comes from the generators of their model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flatout.base.when_used import keras
from flatout.seam.keras_names import is_of_keras

from .candidate import Candidate


def guarded(callbacks: list[Any], candidate: Candidate, steps: int | None, epochs: int) -> Any:
    """The callbacks of a candidate as `fit` takes them; Keras' own draw nothing, and stay as they are."""
    if all(is_of_keras(type(callback)) for callback in callbacks):
        return callbacks
    made = keras.callbacks.CallbackList(callbacks, add_history=True, epochs=epochs, steps=steps, model=candidate.model)
    for name in dir(made):
        if name.startswith("on_"):
            setattr(made, name, _guarded_hook(getattr(made, name), candidate))
    return made


def _guarded_hook(hook: Callable[..., Any], candidate: Candidate) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with candidate.generators():
            return hook(*args, **kwargs)

    return called
