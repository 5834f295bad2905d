"""What Keras' optimizers keep to themselves: slots, the count of iterations, the learning rate as it was given."""

from __future__ import annotations

from typing import Any

# Attribute of Keras' optimizers by the name of a slot.
_SLOTS = {
    "momentum": "_momentums",
    "velocity": "_velocities",
    "velocity_hat": "_velocity_hats",
    "average_gradient": "_average_gradients",
}


def slot_variables(optimizer: Any, slot: str) -> list[Any]:
    """A built optimizer's variables of a slot, one for each variable that it trains."""
    is_public = slot == "momentum" and hasattr(optimizer, "momentums")
    found: list[Any] = optimizer.momentums if is_public else getattr(optimizer, _SLOTS[slot])
    return found


def position_of(optimizer: Any, variable: Any) -> int:
    """The place of a trained variable in the slots."""
    return int(optimizer._get_variable_index(variable))


def decays(optimizer: Any, variable: Any) -> bool:
    """Whether weight decay is meant for a variable."""
    return optimizer.weight_decay is not None and bool(optimizer._use_weight_decay(variable))


def iterations_variable(optimizer: Any) -> Any:
    """The count of steps; the public attribute is another thing while gradients are accumulated."""
    return optimizer._iterations


def given_learning_rate(optimizer: Any) -> Any:
    """A variable, or the user's schedule."""
    return optimizer._learning_rate


def current_learning_rate(optimizer: Any) -> Any:
    """The variable, or what the schedule gives for the next step."""
    return optimizer._get_current_learning_rate()
