"""Whose variables are whose: models that `build` gives a layer of somebody else's would train each other."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

from flatout.base.errors import InvalidOption
from flatout.base.when_used import keras
from flatout.seam.compiled_parts import given_metrics, given_weighted_metrics


class Ownership:
    """The variables of all models so far that are still there."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def is_alone(self, model: Any) -> bool:
        """Take one more model; whether no earlier one has variables of its.

        Raises:
            InvalidOption: Earlier ones have variables that change while it is trained.
        """
        weights = {id(variable): variable for variable in model.variables}
        metrics = keras.tree.flatten([given_metrics(model), given_weighted_metrics(model)])
        of_metrics = [one.variables for one in metrics if isinstance(one, keras.Metric)]
        changing = [*model.trainable_variables, *model.optimizer.variables, *itertools.chain(*of_metrics)]
        changing += [variable for variable in weights.values() if "seed_generator" in variable.path]
        for variable in changing:
            if id(variable) in self._known:
                raise InvalidOption(
                    "Models would change each other: `build` returns some with the same layer, metric or optimizer. "
                    f"Received: {variable.path} twice. Make them in `build`; only frozen layers may be shared."
                )
        is_alone = weights.keys().isdisjoint(self._known.keys())
        self._known.update({**weights, **{id(variable): variable for variable in changing}})
        return is_alone
