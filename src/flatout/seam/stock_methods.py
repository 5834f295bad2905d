"""Keras' own fit, evaluate and predict: always available, also while `enable()` has replaced them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from . import patches
from .trainers import trainer_class

METHODS = ("fit", "evaluate", "predict")
# What is called in the place of a method, with its name, the model and the arguments.
Conduct = Callable[[str, Any, tuple[Any, ...], dict[str, Any]], Any]


def original(name: str) -> Callable[..., Any]:
    """Keras' own function for a method, whether or not it is replaced at the moment."""
    function: Callable[..., Any] = patches.beneath(trainer_class(), name)
    return function


def replace_methods(conduct: Conduct) -> None:
    """Have `conduct` called in place of Keras' methods; a second call changes nothing."""
    patches.apply("stock methods", [patches.Patch(trainer_class(), name, _around(conduct, name)) for name in METHODS])


def restore_methods() -> None:
    """Put Keras' methods back."""
    patches.undo("stock methods")


def are_replaced() -> bool:
    """Whether a call of one of Keras' methods from here comes to us."""
    return patches.is_applied("stock methods") or patches.is_replaced_here(trainer_class(), "fit")


def replaced_in_this_call(conduct: Conduct) -> AbstractContextManager[None]:
    """Meanwhile, have `conduct` called in place of Keras' methods by what runs here; not by other threads."""
    return patches.replaced_here({(trainer_class(), name): _conducted(conduct, name) for name in METHODS})


_FUNCTIONS = ("train_function", "test_function", "predict_function")
_CALLS = (*METHODS, "train_on_batch", "test_on_batch", "predict_on_batch")


@contextlib.contextmanager
def functions_apart(model: Any) -> Iterator[None]:
    """Meanwhile, have a model without the functions that were compiled for it."""
    kept = {name: getattr(model, name, None) for name in _FUNCTIONS}
    for name in _FUNCTIONS:
        setattr(model, name, None)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(model, name, function)


@contextlib.contextmanager
def methods_apart(model: Any, apart: Callable[[], bool]) -> Iterator[None]:
    """Meanwhile, as long as `apart` says so, have Keras' methods compile functions of their own for a model."""

    def calling(name: str) -> Callable[..., Any]:
        def call(called: Any, *args: Any, **kwargs: Any) -> Any:
            function = patches.beneath(trainer_class(), name)
            if called is not model or not apart():
                return function(called, *args, **kwargs)
            with functions_apart(model):
                return function(called, *args, **kwargs)

        return call

    with patches.replaced_here({(trainer_class(), name): calling(name) for name in _CALLS}):
        yield


def is_overridden(name: str, model: Any) -> bool:
    """Whether a model has a method of its own in the place of that of its trainer."""
    return name in vars(model) or getattr(type(model), name) is not vars(trainer_class())[name]


def _conducted(conduct: Conduct, name: str) -> Callable[..., Any]:
    return lambda model, *args, **kwargs: conduct(name, model, args, kwargs)


def _around(conduct: Conduct, name: str) -> patches.Around:
    return lambda _, model, *args, **kwargs: conduct(name, model, args, kwargs)
