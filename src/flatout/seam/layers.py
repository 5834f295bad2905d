"""How a model is made of layers: all of them, the graph of a functional one, and what a layer keeps to itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def all_layers(model: Any) -> list[Any]:
    """A model and all layers inside it, however deep."""
    return list(model._flatten_layers())


def functional_class() -> type:
    """The class of models made from inputs and outputs."""
    from keras.src.models.functional import Functional

    return Functional  # type: ignore[no-any-return]


def functional_of(model: Any) -> Any:
    """The graph behind a Sequential or functional model: an object with `inputs` and `outputs`, or the model itself."""
    return getattr(model, "_functional", None) or model


def inputs_structure(model: Any) -> Any:
    """The structure of symbolic inputs that a functional model was built on; None for one that does not say."""
    return getattr(functional_of(model), "_inputs_struct", None)


def outputs_structure(model: Any) -> Any:
    """The structure of symbolic outputs of a functional model; None for one that does not say."""
    return getattr(functional_of(model), "_outputs_struct", None)


def made_by(tensor: Any) -> tuple[Any, Any]:
    """The layer that a symbolic tensor comes out of, and the node of that call."""
    layer, node_index, _ = tensor._keras_history
    return layer, layer._inbound_nodes[node_index]


def has_own_losses(layer: Any) -> bool:
    """Whether `add_loss` was called on a layer."""
    return bool(layer._losses)


def plain_attributes(part: Any) -> dict[str, Any]:
    """The numbers, flags and words that a layer or an optimizer keeps under public names."""
    kinds = (bool, int, float, complex, str, bytes, type(None))
    return {
        name: value
        for name, value in getattr(part, "__dict__", {}).items()
        if not name.startswith("_") and isinstance(value, kinds)
    }


def automatic_name(layer: Any) -> str:
    """The name that Keras gives to the first layer of a kind."""
    from keras.src.utils.naming import to_snake_case

    return str(to_snake_case(type(layer).__name__))


@contextlib.contextmanager
def open_to_new_state(model: Any) -> Iterator[None]:
    """Let a built model take up further metrics and layers, which Keras forbids."""
    was_locked = model._tracker.locked
    model._tracker.unlock()
    try:
        yield
    finally:
        if was_locked:
            model._tracker.lock()


def untrack(model: Any, part: Any) -> None:
    """Have a model no longer know one of its attributes as its metric or layer."""
    model._tracker.untrack(part)
