"""Whose variables are whose: models that `build` gives a layer of somebody else's would train each other."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from flatout.base.errors import InvalidOption
from flatout.base.when_used import keras
from flatout.seam.compiled_parts import given_metrics, given_weighted_metrics


class Ownership:
    """The variables of all models so far that are still there."""

    def __init__(self) -> None:
        # By their numbers: Keras' variables compare number by number.
        self._variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._models: dict[int, weakref.ref[Any]] = {}
        self._of_candidates: weakref.WeakSet[Any] = weakref.WeakSet()

    def note(self, model: Any) -> None:
        """Remember what a model has by now: layers without an input shape are built in its first step."""
        for variable in _variables(model):
            self._variables[id(variable)] = variable
            self._models[id(variable)] = weakref.ref(model)

    def is_alone(self, model: Any) -> bool:
        """Take the model of one more candidate; whether no other one has variables of its.

        Raises:
            InvalidOption: Others have variables that its training changes for good.
        """
        if model in self._of_candidates:
            raise InvalidOption(f"`build` returns a model of its own for each. Received: {model.name!r} twice.")
        self._of_candidates.add(model)
        trained = {id(variable) for variable in (*model.trainable_variables, *model.optimizer.variables)}
        shared = [variable for variable in _variables(model) if self._is_anothers(variable, model)]
        for variable in shared:
            if id(variable) in trained:
                raise InvalidOption(
                    "Models would train each other: `build` returns several with the same layer or optimizer. "
                    f"Received: {variable.path} twice. Make them in `build`; only frozen layers may be shared."
                )
        self.note(model)
        return not shared

    def _is_anothers(self, variable: Any, model: Any) -> bool:
        return id(variable) in self._variables and self._models[id(variable)]() is not model


def _variables(model: Any) -> Iterator[Any]:
    yield from model.variables
    yield from model.optimizer.variables
    for metric in keras.tree.flatten([given_metrics(model), given_weighted_metrics(model)]):
        if isinstance(metric, keras.Metric):
            yield from metric.variables
