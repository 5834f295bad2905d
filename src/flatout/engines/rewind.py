"""Going back: to a model's state at the start of a chunk, and to random generators before something was tried."""

from __future__ import annotations

import ast
import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.base.when_used import keras

from .contract import Engine


class Snapshot:
    """The values of variables and of the engine's generators.

    By default they are all variables of the model, its optimizer and its metrics.
    """

    def __init__(self, model: Any, engine: Engine, variables: list[Any] | None = None):
        self._model, self._engine = model, engine
        _attach(model)
        if variables is None:
            optimizer = getattr(model, "optimizer", None)
            of_optimizer = optimizer.variables if optimizer is not None else []
            variables = [*model.variables, *of_optimizer, *model.metrics_variables]
        unique = {id(variable): variable for variable in variables}
        self._values = [(variable, keras.ops.copy(variable.value)) for variable in unique.values()]
        self._generators = engine.generator_state()

    def restore(self) -> None:
        _attach(self._model)
        for variable, value in self._values:
            variable.assign(value)
        self._engine.set_generator_state(self._generators)


@dataclass(frozen=True)
class Generators:
    """The states of the generators of Python, NumPy and an engine; all of them can be compared."""

    python: tuple[Any, ...]
    numpy: Any
    of_engine: tuple[bytes, ...]

    @classmethod
    def now(cls, engine: Engine) -> Generators:
        state: Any = np.random.get_state()
        if isinstance(state, tuple):  # Not of a generator of the user's.
            name, keys, *rest = state
            state = (name, keys.tobytes(), *rest)
        return cls(random.getstate(), state, engine.generator_state())

    @classmethod
    def from_text(cls, text: str) -> Generators:
        """What `as_text` returned, in this process or another one."""
        return cls(*ast.literal_eval(text))

    def as_text(self) -> str:
        return repr((self.python, self.numpy, self.of_engine))

    def put_back(self, engine: Engine) -> None:
        random.setstate(self.python)
        self.put_back_numpy()
        engine.set_generator_state(self.of_engine)

    @property
    def state_of_numpy(self) -> Any:
        """As NumPy's own generator returns and takes it."""
        if not isinstance(self.numpy, tuple):
            return self.numpy
        name, keys, *rest = self.numpy
        return (name, np.frombuffer(keys, np.uint32), *rest)

    def put_back_numpy(self) -> None:
        np.random.set_state(self.state_of_numpy)


@contextlib.contextmanager
def generators_kept(engine: Engine) -> Iterator[None]:
    """Have the generators of Python, NumPy and the engine afterwards as they are now."""
    before = Generators.now(engine)
    try:
        yield
    finally:
        before.put_back(engine)


def _attach(model: Any) -> None:
    """On jax the values are away from the variables while a program runs."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
