"""One of many models: its point, its rows, its random generators, and what became of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flatout.base.when_used import keras
from flatout.engines.contract import Engine
from flatout.engines.rewind import Generators
from flatout.seam.model_copies import (
    global_seeds,
    keras_kept,
    put_global_seeds,
    seed_generators,
    tensorflow_seed_kept,
)

from .grid import Point
from .splits import Split

History = dict[str, list[Any]]
# Whoever has put generators of a candidate in the place of those of the process.
_at_work = threading.RLock()


class OwnGenerators:
    """Generators of one candidate, in the place of those of the process while it is called as a context."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._own: Generators | None = None
        self._seeds: dict[str, Any] = {}
        self._depth = 0

    @property
    def of_numpy(self) -> Any:
        """The state of NumPy's generator, once they were in place."""
        assert self._own is not None
        return self._own.state_of_numpy

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with _at_work:
            self._depth += 1
            if self._depth > 1:
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            before, seeds = Generators.now(self._engine), global_seeds()
            if self._own is not None:
                self._own.put_back(self._engine)
                put_global_seeds(self._seeds)
            try:
                yield
            finally:
                self._own, self._seeds = Generators.now(self._engine), global_seeds()
                before.put_back(self._engine)
                put_global_seeds(seeds)
                self._depth = 0

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Begin as a process in which the first thing done is `keras.utils.set_random_seed(seed)`.

        What Keras keeps for the process, such as its counters of names, is as before afterwards.
        """
        is_tensorflow = keras.config.backend() == "tensorflow"
        with keras_kept(), tensorflow_seed_kept() if is_tensorflow else contextlib.nullcontext(), self():
            seed_generators(seed)
            yield


@dataclass(eq=False)
class Candidate:
    """One model of `fit_many`.

    Attributes:
        number: Its place among all.
        point: The arguments of `build`, as the user gave them.
        seed: What its generators begin with.
        split: Its rows.
        generators: Its own.
        model: Once it is built.
        history: What its `fit` came to, once that is over.
        seconds: From its first step to its last.
        keep: Called when it is finished.
        restore: Makes its model, if that was trained by an earlier run.
    """

    number: int
    point: Point
    seed: int
    split: Split
    generators: OwnGenerators
    model: Any = None
    history: History | None = None
    seconds: float = 0.0
    keep: Callable[[Candidate], None] | None = None
    restore: Callable[[Candidate], Any] | None = None

    def finish(self, seconds: float) -> None:
        """Its `fit` is over."""
        self.seconds = seconds
        self.history = dict(self.model.history.history)
        if self.keep is not None:
            self.keep(self)

    def trained_model(self) -> Any:
        if self.model is None and self.restore is not None:
            self.model = self.restore(self)
        return self.model

    @property
    def so_far(self) -> History:
        """Its history, also while it runs."""
        if self.history is not None:
            return self.history
        running = getattr(self.model, "history", None)
        return {} if running is None else running.history

    @property
    def coordinates(self) -> dict[str, Any]:
        """What tells it from the others: its point, with its seed and its fold."""
        fold = {} if self.split.fold is None else {"fold": self.split.fold}
        return {"seed": self.seed, **self.point, **fold}
