"""Which objects of a Keras model belong to which buffers of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Binding:
    """Which Keras objects belong to which buffers.

    Attributes:
        weights: Variables of layers by the names of their buffers.
        constants: Functions that give constants of layers, by the names of their buffers.
        slots: Variables of the optimizer by the names of their buffers.
        seeds: The seed generators of the Dropout layers.
        metrics: The loss' tracker, then the metrics in order.
        log_names: The metrics' names in the logs.
    """

    weights: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Callable[[], np.ndarray]] = field(default_factory=dict)
    slots: dict[str, Any] = field(default_factory=dict)
    seeds: list[Any] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    log_names: list[str] = field(default_factory=list)

    def names_the_same_as(self, other: Binding) -> bool:
        """Whether both name the same objects."""

        def ids(one: Binding) -> list[int]:
            found = [*one.weights.values(), *one.slots.values(), *one.seeds, *one.metrics]
            return [id(each) for each in found]

        return ids(self) == ids(other) and self.log_names == other.log_names
