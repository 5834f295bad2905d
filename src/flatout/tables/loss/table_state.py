"""Tables as state of a model: what makes an update visible to a step that is compiled already.

On jax a compiled step takes its state as arguments, and whatever else it reads is frozen in it. Keras hands the
variables of a model's metrics to the loss and to the metrics alike, so a table joins a model as a metric that measures
nothing. A model that lists its metrics itself (`metrics` overridden) gets a layer without weights to train instead.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from flatout.base.errors import TableError
from flatout.base.when_used import keras
from flatout.seam.layers import open_to_new_state, untrack
from flatout.seam.variable_state import has_state_in_variables, is_argument_of_step, is_stateless, is_symbolic

_NAME = "flatout_tables"
_lock = threading.Lock()


def attach(table: Any, model: Any) -> None:
    """Make a table's columns part of a model's state; a second time changes nothing."""
    with _lock:
        holder = getattr(model, _NAME, None)
        if holder is None:
            holder = _track(model)
        if not any(known is table for known in holder.tables):
            holder.tables.append(table)
            table.models.add(model)


def tables_of(model: Any) -> list[Any]:
    """The tables that are part of a model's state."""
    holder = getattr(model, _NAME, None)
    return [] if holder is None else list(holder.tables)


def _track(model: Any) -> Any:
    metric_class, layer_class = _holders()
    holder = metric_class(name=_NAME)
    with open_to_new_state(model):
        setattr(model, _NAME, holder)
        if not any(metric is holder for metric in model.metrics):
            untrack(model, holder)
            holder = layer_class(name=_NAME, trainable=False)
            holder.built = True
            setattr(model, _NAME, holder)
    return holder


class _TableHolder:
    """What holds tables in a model."""

    @functools.cached_property
    def tables(self) -> list[Any]:
        """Not set as an attribute, which Keras would track."""
        return []

    @property
    def variables(self) -> list[Any]:
        return [variable for table in self.tables for variable in table.variables]

    def save_own_variables(self, store: Any) -> None:
        """Write mutable columns alone: the others come from the user's frame, and may be large."""
        for number, table in enumerate(self.tables):
            for name, variable in table.mutable_columns().items():
                store[f"{number}.{name}"] = keras.ops.convert_to_numpy(variable.value)
            if table.mutable_columns():
                store[f"{number}.keys"] = np.frombuffer(table.index.digest(), np.uint8)

    def load_own_variables(self, store: Any) -> None:
        for number, table in enumerate(self.tables):
            if f"{number}.keys" not in store:
                continue
            if bytes(np.asarray(store[f"{number}.keys"]).tobytes()) != table.index.digest():
                raise TableError(
                    f"The weights hold columns of a table with other keys than {table.name}. Make the table from the "
                    "frame that it was made from when the weights were saved."
                )
            for name, variable in table.mutable_columns().items():
                if f"{number}.{name}" in store:
                    variable.assign(np.asarray(store[f"{number}.{name}"]))


@functools.cache
def _holders() -> tuple[Any, Any]:
    class TableMetric(_TableHolder, keras.metrics.Metric):
        """Holds tables in the place of a metric; has no result, and nothing of it is reset."""

        def update_state(self, *_: Any, **__: Any) -> None:
            pass

        def reset_state(self) -> None:
            pass

        def result(self) -> dict[str, Any]:
            return {}

    class TableLayer(_TableHolder, keras.layers.Layer):
        """Holds tables as weights that are not trained."""

        weights = non_trainable_weights = non_trainable_variables = _TableHolder.variables

        def call(self, inputs: Any) -> Any:
            return inputs

    return TableMetric, TableLayer


def bring_home(table: Any) -> None:
    """On jax, put the state of a model that is being trained back into its variables, so that they can be changed."""
    for model in list(table.models):
        if hasattr(model, "jax_state_sync") and not has_state_in_variables(model):
            model.jax_state_sync()


def is_frozen(variable: Any) -> bool:
    """Whether a step that is being compiled would take a variable's value for good (on jax)."""
    if keras.config.backend() != "jax" or not is_stateless() or is_symbolic():
        return False
    return not is_argument_of_step(variable)
