"""What was traced of a model's step, kept from one call to the next as long as stock Keras keeps its own function.

Keras traces a step once after `compile`, and once for each new shape: a second `fit` does not read the model's Python
again. Tracing takes as long as hundreds of small steps.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flatout.seam.trainers import step_function

from .contract import Task

_NAME = "_flatout_functions"
_STOCK = "_flatout_stock_has_run"
# A model that is fitted on another number of rows each time has a program for each.
_MOST = 32


def has_functions(model: Any, task: Task) -> bool:
    """Whether a program was made of a model's step, and is still there."""
    return bool(getattr(getattr(model, f"{task}_function", None), _NAME, None))


def stock_has_run(model: Any, task: Task) -> bool:
    """Whether stock Keras has compiled its own function of a step."""
    return hasattr(getattr(model, f"{task}_function", None), _STOCK)


def note_stock_run(model: Any, task: Task) -> None:
    """Remember that stock Keras has run steps of a model by its own function, until that is replaced."""
    # The function may be one of the user's, without attributes.
    with contextlib.suppress(TypeError):
        vars(getattr(model, f"{task}_function", None))[_STOCK] = True


class Functions:
    """Functions of one model and task, by what they were traced for; those that were used last.

    Attributes:
        owner: Keras' own function, with which they go.
    """

    def __init__(self, model: Any, task: Task):
        getattr(model, f"make_{task}_function")()
        # Kept by Keras' own function, which `compile` and `make_train_function(force=True)` replace.
        self.owner = step_function(model, task)
        self._kept: OrderedDict[Any, Any] = self.owner.__dict__.setdefault(_NAME, OrderedDict())
        self._fresh: set[Any] = set()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for this key; made now if there is nothing."""
        if key not in self._kept:
            self.keep(key, make())
        self._kept.move_to_end(key)
        return self._kept[key]

    def keep(self, key: Any, function: Any) -> None:
        self._kept[key] = function
        self._fresh.add(key)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    def forget_fresh(self) -> None:
        """Trace anew what stock Keras has not traced yet."""
        for key in self._fresh:
            self._kept.pop(key, None)
        self._fresh.clear()
