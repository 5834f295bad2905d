"""Keras' own fit, evaluate and predict: always available, also while `enable()` has replaced them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .trainers import trainer_class as trainer_class

METHODS = ("fit", "evaluate", "predict")
_originals: dict[str, Callable[..., Any]] = {}


def original(name: str) -> Callable[..., Any]:
    """Keras' own function for a method, whether or not it is replaced at the moment."""
    return _originals[name] if name in _originals else vars(trainer_class())[name]


def replace_methods(replacements: Mapping[str, Callable[..., Any]]) -> None:
    """Put our functions in place of Keras' methods; a second call changes nothing."""
    if _originals:
        return
    cls = trainer_class()
    for name in METHODS:
        _originals[name] = vars(cls)[name]
    for name in METHODS:
        setattr(cls, name, replacements[name])


def restore_methods() -> None:
    """Put Keras' methods back."""
    if not _originals:
        return
    cls = trainer_class()
    for name, function in _originals.items():
        setattr(cls, name, function)
    _originals.clear()


def are_replaced() -> bool:
    return bool(_originals)


def is_overridden(name: str, model: Any) -> bool:
    """Whether a model has a method of its own in the place of that of its trainer."""
    return name in vars(model) or getattr(type(model), name) is not vars(trainer_class())[name]
