"""What was traced of a model's step, kept from one call to the next as long as stock Keras keeps its own function.

Keras traces a step once after `compile`, and once for each new shape: a second `fit` does not read the model's Python
again. Tracing takes as long as hundreds of small steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .contract import Task

_NAME = "_flatout_functions"
# A model that is fitted on another number of rows each time has a program for each.
_MOST = 32


class Functions:
    """Functions of one model and task, by what they were traced for; those that were used last."""

    def __init__(self, model: Any, task: Task):
        getattr(model, f"make_{task}_function")()
        owner = getattr(model, f"{task}_function")
        # Kept by Keras' own function, which `compile` and `make_train_function(force=True)` replace.
        self._kept: OrderedDict[Any, Any] = owner.__dict__.setdefault(_NAME, OrderedDict())
        self._fresh: set[Any] = set()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for this key; made now if there is nothing."""
        if key not in self._kept:
            self._kept[key] = make()
            self._fresh.add(key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def forget_fresh(self) -> None:
        """Trace anew what stock Keras has not traced yet."""
        for key in self._fresh:
            self._kept.pop(key, None)
        self._fresh.clear()
