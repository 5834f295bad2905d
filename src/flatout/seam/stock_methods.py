"""Keras' own fit, evaluate and predict: always available, also while `enable()` has replaced them."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import patches
from .trainers import trainer_class

METHODS = ("fit", "evaluate", "predict")
# What is called in the place of a method, with its name, the model and the arguments.
Conduct = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], Any]

_calls = 0
_calls_lock = threading.Lock()
_is_in_call: contextvars.ContextVar[bool] = contextvars.ContextVar("is_in_call", default=False)


def original(name: str) -> Callable[..., Any]:
    """Keras' own function for a method, whether or not it is replaced at the moment."""
    function: Callable[..., Any] = patches.beneath(trainer_class(), name)
    return function


def replace_methods(conduct: Conduct) -> None:
    """Have `conduct` called in place of Keras' methods; a second call changes nothing."""
    patches.apply("stock methods", _patches(conduct, lambda: True))


def restore_methods() -> None:
    """Put Keras' methods back."""
    patches.undo("stock methods")


def are_replaced() -> bool:
    """Whether a call of one of Keras' methods from here comes to us."""
    return patches.is_applied("stock methods") or _is_in_call.get()


@contextlib.contextmanager
def replaced_in_this_call(conduct: Conduct) -> Iterator[None]:
    """Meanwhile, have `conduct` called in place of Keras' methods by what runs here; not by other threads."""
    global _calls
    with _calls_lock:
        _calls += 1
        patches.apply("one call", _patches(conduct, _is_in_call.get))
    token = _is_in_call.set(True)
    try:
        yield
    finally:
        _is_in_call.reset(token)
        with _calls_lock:
            _calls -= 1
            if not _calls:
                patches.undo("one call")


def is_overridden(name: str, model: Any) -> bool:
    """Whether a model has a method of its own in the place of that of its trainer."""
    return name in vars(model) or getattr(type(model), name) is not vars(trainer_class())[name]


def _patches(conduct: Conduct, is_wanted: Callable[[], bool]) -> list[patches.Patch]:
    def around_of(name: str) -> patches.Around:
        def around(inner: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
            return conduct(name, model, args, kwargs) if is_wanted() else inner(*args, **kwargs)

        return around

    return [patches.Patch(trainer_class(), name, around_of(name)) for name in METHODS]
