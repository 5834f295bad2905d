"""Where the values of variables are: in the variables, or in the arguments of a step that is being traced."""

from __future__ import annotations

from typing import Any

from .versions import GLOBAL_SEED_GENERATOR


def is_stateless() -> bool:
    """Whether assignments to variables are collected and not carried out."""
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    return bool(in_stateless_scope())


def is_symbolic() -> bool:
    """Whether shapes alone are computed."""
    from keras.src.backend.common.symbolic_scope import in_symbolic_scope

    return bool(in_symbolic_scope())


def is_argument_of_step(variable: Any) -> bool:
    """Whether the stateless step at hand takes a variable's value as an argument."""
    from keras.src.backend.common.stateless_scope import get_stateless_scope

    return id(variable) in get_stateless_scope().state_mapping


def has_state_in_variables(model: Any) -> bool:
    """On jax, whether a model's variables hold its state; not so between the steps of a `fit`."""
    return bool(getattr(model, "_jax_state_synced", True))


def put_value(variable: Any, value: Any) -> None:
    """Give a variable a value as Keras' jax trainer does: without the conversion that `assign` makes."""
    variable._value = value


def global_seeds() -> list[Any]:
    """The variable that Keras draws seeds from where the user gives none; not there before the first of them."""
    from keras.src.backend.common import global_state

    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return [] if generator is None else [generator.state]
