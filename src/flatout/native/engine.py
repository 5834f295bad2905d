"""The native engine: the backend's own engine for everything around the steps, and CUDA kernels for the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engines.base import Engine, Structure, Task
from ..errors import FallbackRefused, FlatoutError, Reason, Refusal
from ..options import current
from .data import check
from .fused import Precision
from .launch import default_launcher, make_launcher, why_not_here
from .lower import lowered
from .program import STEPS_PER_CHUNK, Program
from .reading import read
from .session import Session, logs_of

# Sessions of other shapes of data that are kept: the chunks of a stream, and its shorter last one.
_KEPT = 4


class NativeEngine:
    """Runs what there are kernels for, and hands the rest to the engine of the backend, with the reason."""

    name = "native"

    def __init__(self, backend: Engine):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def prepare(
        self, model: Any, task: Task, data: Structure, rows: int, batch_size: int, any_length: bool = False
    ) -> Any:
        try:
            return NativeProgram(model, task, data, rows, batch_size)
        except Refusal as refusal:
            if current().strict:
                raise FallbackRefused(
                    f"Strict mode: engine='native' was asked for, and cannot run this {task} step. {refusal.reason}"
                ) from None
            program = self._backend.prepare(model, task, data, rows, batch_size, any_length)
            program.reasons = (refusal.reason, *program.reasons)
            return program


def obstacle(model: Any, method: str) -> Reason | None:
    """Why the native engine cannot run a call, as far as that can be said before the model is built."""
    why = why_not_here()
    if why is not None:
        return why
    is_ready = method == "predict" or (
        all(part is None or part.built for part in (model._compile_loss, model._compile_metrics))
        if getattr(model, "compiled", False)
        else False
    )
    if not is_ready or not all(layer.built for layer in model._flatten_layers()):
        return None
    try:
        # Not "train", which would build the optimizer.
        read(model, "predict" if method == "predict" else "test")
    except Refusal as refusal:
        return refusal.reason
    return None


class NativeProgram:
    """One model's step as kernels, over rows in device memory.

    The model's state is read from its variables before each run and written to them after it.
    """

    engine = "native"
    unit = 1
    pays = True

    def __init__(self, model: Any, task: Task, data: Structure, rows: int, batch_size: int):
        self._model = model
        self._task = task
        self._sessions: dict[Any, Session] = {}
        self._order: np.ndarray | None = None
        self._precision: Precision = "fast" if current().precision == "fast" else "exact"
        self.longest: int | None = STEPS_PER_CHUNK
        why = why_not_here()
        if why is not None:
            raise Refusal(why)
        self._launcher = make_launcher(default_launcher())
        self._hold(data, rows, batch_size)

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        x, y, weight = _unpacked(data, self._task)
        batch_size = max(1, min(batch_size, rows))
        key = (batch_size, *(None if part is None else _dtype(part) for part in (x, y, weight)))
        session = self._sessions.pop(key, None)
        if session is None:
            session = self._load(x, y, weight, batch_size)
            if len(self._sessions) >= _KEPT:
                del self._sessions[next(iter(self._sessions))]
        self._sessions[key] = session
        check(session.program.network, x, y, weight)
        session.bind(x, y, weight)
        self._session, self._rows, self._held = session, rows, (data, rows, batch_size)
        # `bind` has put the rows back into the order in which they lie.
        self._order = None
        if self._task == "predict":
            self.longest = session.program.layout["outputs"].shape[0]

    def _load(self, x: Any, y: Any, weight: Any, batch_size: int) -> Session:
        program: Program = lowered(
            self._model, self._task, batch_size, _dtype(x), None if y is None else _dtype(y), weight is not None
        )
        return Session(program, self._launcher, self._precision if self._task == "train" else None)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Which form trains, and why, of each size of batch."""
        return tuple(dict.fromkeys(one.form for one in self._sessions.values() if one.form is not None))

    def renew(self, is_first: bool) -> None:
        """Read the model again; a callback may have changed it."""
        import keras

        if not is_first and keras.config.backend() != "torch":
            # Stock Keras has traced the model once and for all.
            return
        program = self._session.program
        try:
            network, binding = read(self._model, self._task)
            if network == program.network and binding.names_the_same_as(program.binding):
                return
            order = self._order
            self._sessions.clear()
            self._hold(*self._held)
        except Refusal as refusal:
            raise FlatoutError(
                f"A callback has changed the model during a native run. {refusal.reason} Train with engine='auto'."
            ) from None
        self.begin_pass(order)

    def replace(self, data: Structure, rows: int, batch_size: int) -> None:
        try:
            self._hold(data, rows, batch_size)
        except Refusal as refusal:
            raise ValueError(f"A later part of the data is unlike the first. {refusal.reason}") from None

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._order = order
        self._session.set_order(order)

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        results = self._session.run(self._task, start, stop, self._rows)
        if self._task == "predict":
            return results
        wanted = results if every_step else results[-1:]
        return [logs_of(self._session.program.binding, totals) for totals in wanted]

    def end_pass(self) -> None:
        """Every run has put the state back already."""


def _dtype(array: Any) -> str:
    import keras

    return str(keras.backend.standardize_dtype(array.dtype))


def _unpacked(data: Structure, task: Task) -> tuple[Any, Any, Any]:
    """x, y and sample weights of `(x, y, sample_weight)`, each a single array or None."""
    from ..errors import reason

    parts = list(data) if isinstance(data, tuple | list) else [data]
    x, y, weight = (*parts, None, None, None)[:3]
    if task == "predict":
        y = weight = None
    leaves = []
    for name, part in (("x", x), ("y", y), ("sample_weight", weight)):
        if isinstance(part, Mapping | tuple | list):
            values = list(part.values()) if isinstance(part, Mapping) else list(part)
            if len(values) != 1 or isinstance(part, Mapping):
                raise Refusal(reason("native_data", f"{name} is a structure of arrays"))
            part = values[0]
        leaves.append(part)
    return leaves[0], leaves[1], leaves[2]
