"""What is of Keras' own making, and under which public name."""

from __future__ import annotations

from typing import Any


def is_of_keras(thing: Any) -> bool:
    """Whether a function or class is Keras' own."""
    return (getattr(thing, "__module__", None) or "").startswith("keras.")


def public_path(path: str) -> str:
    """The name by which users know a function of Keras: `keras.src.ops.core.map` is `keras.ops.map`."""
    if not path.startswith("keras.src."):
        return path
    package, *_, name = path.removeprefix("keras.src.").split(".")
    return f"keras.{package}.{name}" if package != name else f"keras.{name}"


def is_loss_wrapper(value: Any) -> bool:
    """Whether a value is an object of one of Keras' own losses that wrap a function."""
    wraps = any(base.__name__ == "LossFunctionWrapper" and is_of_keras(base) for base in type(value).__mro__)
    return wraps and type(value).__module__.startswith("keras.src.losses.")
