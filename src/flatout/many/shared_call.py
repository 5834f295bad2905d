"""What all models of a `fit_many` have in common: the arguments of `fit`, and rows that are placed once."""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import InvalidOption, Reason
from flatout.base.options import current
from flatout.base.when_used import keras, tree
from flatout.data.output.fingerprint import of_arrays
from flatout.data.sources.description import ArraySource
from flatout.engines.select import engine_for
from flatout.seam.trainers import build_on_batch, is_unbuilt
from flatout.training.arguments import resolved, split_off_validation
from flatout.training.planning.call_facts import Source, describe_call
from flatout.training.planning.plan import Plan
from flatout.training.preparing.prepare import placed_rows
from flatout.training.preparing.prepared import HeldRows

from .candidate import Candidate, OwnGenerators
from .grid import Point, accepted
from .ownership import Ownership
from .store import Store

# Where callbacks of Keras write: models that share a name would overwrite each other's files.
_NAMES_OF_FILES = ("filepath", "filename", "log_dir", "backup_dir", "directory")
_PLACE_OF_NUMBER = "{number}"


class SharedCall:
    """The call of `fit` that every candidate makes, on rows of its own.

    Attributes:
        build: Makes the model of a point.
        ownership: Whose variables are whose.
        call: The arguments of `fit`, with arrays for paths and frames, and `validation_split` taken off.
        source: The rows, described; or why they cannot be.
    """

    def __init__(
        self,
        build: Callable[[Point], Any],
        first: Point,
        call: dict[str, Any],
        callbacks: Any,
        validates_on_folds: bool,
    ):
        if validates_on_folds and (call["validation_data"] is not None or call["validation_split"]):
            raise InvalidOption("`folds` hold out rows for validation. Leave out validation_data and validation_split.")
        self.build = build
        self.ownership = Ownership()
        self._callbacks = callbacks
        for name in ("x", "validation_data"):
            if isinstance(call[name], types.GeneratorType):
                raise InvalidOption(f"A generator is read once, by one model. Received: {name}={call[name]!r}.")
        self._given = call
        # The names of its inputs say what becomes of the columns of a frame.
        with OwnGenerators(engine_for(keras.config.backend())).seeded(0):
            tried = build(first)
            arrays = resolved("fit", tried, call)
        self.ownership.note(tried)
        self._has_columns = arrays is not call
        self.call = split_off_validation(arrays)
        self.source: Source = describe_call("fit", self.call)
        self._validates_on_folds = validates_on_folds
        self._train = _Placed()
        # Keras applies weights of classes to training alone: rows held out are other arrays then.
        self._test = self._train if validates_on_folds and call["class_weight"] is None else _Placed()
        if callbacks is not None and not callable(callbacks):
            self._check_callbacks(callbacks)

    @property
    def rows(self) -> int:
        """How many rows there are to be shared out."""
        if isinstance(self.source, ArraySource):
            return self.source.rows
        why = f" ({self.source})" if isinstance(self.source, Reason) else ""
        raise InvalidOption(f"`folds` and `subsets` want arrays, frames or files as `x`, whose rows have numbers{why}.")

    def fingerprint(self) -> dict[str, str]:
        """What all models have in common, by names that a user knows."""
        data = [self.call[name] for name in ("x", "y", "sample_weight", "validation_data")]
        plain = {
            name: repr(value)
            for name, value in self.call.items()
            if name not in ("x", "y", "sample_weight", "validation_data", "callbacks", "verbose")
        }
        try:
            common = {"the data": of_arrays(data), **plain, "backend": keras.config.backend()}
        except Exception as error:
            raise InvalidOption(f"`checkpoint` wants arrays, frames or files as data: {error}") from error
        policy = f"{keras.config.dtype_policy().name} with {keras.config.floatx()}"
        return {**common, "precision": str(current().precision), "the dtype policy": policy}

    def restored(self, store: Store, candidate: Candidate) -> Any:
        """The model of a candidate that an earlier run has finished."""
        with candidate.generators.seeded(candidate.seed):
            model = self.build(candidate.point)
            if is_unbuilt(model) and isinstance(self.source, ArraySource):
                head = engine_for(keras.config.backend()).place(self.source.head(self.source.batch_size))
                build_on_batch(model, head)
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
        self._teach_words(model)
        store.give_values(candidate, model)
        return model

    def of(self, candidate: Candidate) -> dict[str, Any]:
        """The arguments of the `fit` of a candidate, whose rows are shared."""
        self._teach_words(candidate.model)
        call = {**self.call, "callbacks": self._callbacks_of(candidate)}
        if self._validates_on_folds:
            given = (call["x"], call["y"], call["sample_weight"])
            call["validation_data"] = given if given[2] is not None else given[:2]
        return call

    def _teach_words(self, model: Any) -> None:
        """A model remembers the codes of words in the columns that it was trained on."""
        if self._has_columns:
            resolved("fit", model, self._given)

    def on_its_rows(self, candidate: Candidate, call: dict[str, Any]) -> dict[str, Any]:
        """The same with copies of its rows, for a `fit` that shares nothing."""
        split, names = candidate.split, ("x", "y", "sample_weight")
        if split.train is None:
            return call
        call = {**call, **{name: _taken(call[name], split.train) for name in names}}
        if split.held_out is not None:
            call["validation_data"] = tuple(_taken(part, split.held_out) for part in call["validation_data"])
        return call

    def training_rows(self, candidate: Candidate) -> HeldRows:
        assert isinstance(self.source, ArraySource)
        return HeldRows(self._train.at(self.source), candidate.split.train)

    def validation_rows(self, candidate: Candidate, call: dict[str, Any]) -> HeldRows | None:
        if call["validation_data"] is None:
            return None
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(call["validation_data"])
        source = self._test.source or describe_call("evaluate", {"x": x, "y": y, "sample_weight": sample_weight})
        if not isinstance(source, ArraySource):
            return None
        return HeldRows(self._test.at(source), candidate.split.held_out)

    def _callbacks_of(self, candidate: Candidate) -> list[Any]:
        given = self._callbacks
        if given is None:
            return []
        if callable(given):
            own = _listed(given(**accepted(given, candidate.point)) or [])
        else:
            # All at once: some may know others.
            own = copy.deepcopy(_listed(given))
        for callback in own:
            # In all its attributes: some callbacks make further names of the one that they are given.
            for name, value in vars(callback).items():
                if isinstance(value, (str, os.PathLike)) and _PLACE_OF_NUMBER in str(value):
                    named = str(value).replace(_PLACE_OF_NUMBER, str(candidate.number))
                    setattr(callback, name, named if isinstance(value, str) else Path(named))
        return own

    def _check_callbacks(self, callbacks: Any) -> None:
        for callback in _listed(callbacks):
            named = [getattr(callback, name, None) for name in _NAMES_OF_FILES]
            paths = [str(path) for path in named if isinstance(path, (str, os.PathLike))]
            if any(_PLACE_OF_NUMBER not in path for path in paths):
                raise InvalidOption(
                    f"All models would write to {paths[0]!r} of {type(callback).__name__}. Put {_PLACE_OF_NUMBER!r} "
                    "into the name, for the number of the model, or give a function: callbacks=lambda **point: [...]."
                )


class _Placed:
    """Rows on the device, for every engine that asks for them."""

    def __init__(self) -> None:
        self.source: ArraySource | None = None
        self._by_engine: dict[str, Any] = {}

    def at(self, source: ArraySource) -> Callable[[Plan], Any]:
        self.source = source

        def place(plan: Plan) -> Any:
            if plan.engine not in self._by_engine:
                self._by_engine[plan.engine] = placed_rows(plan, source)
            return self._by_engine[plan.engine]

        return place


def _listed(callbacks: Any) -> list[Any]:
    given = getattr(callbacks, "callbacks", callbacks)
    listed = keras.tree.flatten(list(given) if isinstance(given, Iterator) else given)
    for callback in listed:
        if not isinstance(callback, keras.callbacks.Callback):
            raise InvalidOption(
                "`callbacks` is a list of Keras callbacks, or a function that makes one for a point. "
                f"Received: {type(callback).__name__}."
            )
    return listed


def _taken(structure: Any, rows: np.ndarray) -> Any:
    return tree.map_structure(
        lambda leaf: None if leaf is None else leaf.iloc[rows] if hasattr(leaf, "iloc") else leaf[rows], structure
    )
