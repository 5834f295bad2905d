"""The native engine: the backend's own engine for everything around the steps, and CUDA kernels for the steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from flatout.base.errors import FlatoutError, MissingExtra, Reason, Refusal, reason
from flatout.base.options import current
from flatout.base.uninterrupted import Uninterrupted
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, Engine, StepProgram, Structure, Task, steps_per_piece
from flatout.engines.select import engine_for
from flatout.native.fused.fused_plan import Precision, plans
from flatout.native.launch.launcher import default_launcher, make_launcher, why_not_here
from flatout.native.model.read_model import read
from flatout.native.program.kernel_program import STEPS_PER_CHUNK
from flatout.native.staged.staged_program import staged_program
from flatout.seam.trainers import has_built_layers, has_built_losses_and_metrics

from .accepted_data import problem_with, unpacked
from .rate_table import has_users_schedule
from .session import Launched, Session, logs_of

# Backends on which one kernel was measured; the others have no arrays that kernels could read.
_BACKENDS = ("jax", "torch")
# Sessions of other shapes of data that are kept: the chunks of a stream, and its shorter last one.
_KEPT = 4
# Rows that are tested in one step where nothing depends on their number, and values of all those rows in one layer.
_TESTED_AT_ONCE = 16384
_VALUES_AT_ONCE = 2**26


class NativeEngine:
    """Runs the steps for which there are kernels; all else is done by the engine of the backend."""

    name = "native"

    def __init__(self, backend: Engine):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def epoch_logs(self, model: Any, logs: Any) -> dict[str, Any]:
        if logs and all(isinstance(value, Later) for value in logs.values()):
            # The metrics' results already: models with other logs are none of ours.
            return {name: value.number for name, value in logs.items()}
        return self._backend.epoch_logs(model, logs)

    def prepare(
        self, model: Any, task: Task, data: Structure, rows: int, batch_size: int, **limits: Any
    ) -> NativeProgram:
        """As `Engine.prepare`; a step for which there are no kernels is refused, and the backend's engine has it."""
        output_bytes = limits.get("output_bytes", OUTPUT_BYTES_PER_CHUNK)
        program = NativeProgram(model, task, data, rows, batch_size, output_bytes)
        if current().engine != self.name and task == "train" and not program.is_fused:
            # It was chosen for the one kernel, which turned out not to run here.
            raise Refusal(program.reasons[0])
        return program


def obstacle(model: Any, method: str) -> Reason | None:
    """Why the native engine cannot run a call, as far as that can be said before the model is built."""
    if (why := why_not_here()) is not None:
        return why
    is_ready = method == "predict" or (getattr(model, "compiled", False) and has_built_losses_and_metrics(model))
    if not is_ready or not has_built_layers(model):
        return None
    try:
        # Not "train", which would build the optimizer.
        read(model, "predict" if method == "predict" else "test")
    except Refusal as refusal:
        return refusal.reason
    return None


def one_kernel_is_better(model: Any, inputs: Any, batch_size: int, is_streamed: bool) -> bool:
    """Whether a long fit shall run natively although nobody asked for it: in one kernel, exact and faster.

    The model's loss and metrics are built. `inputs` are `(x, y, sample_weight)`, on the host or the device. Of those
    that are streamed nothing may be found out later that stands against it: labels in files are not read for that.
    """
    if keras.config.backend() not in _BACKENDS or not _has_clusters():
        return False
    try:
        network, _ = read(model, "train")
        x, y, weight = unpacked(inputs, "train")
        plans(network, batch_size, np.dtype(x.dtype).name, weight is not None, _precision())
        return not is_streamed or not (hasattr(y, "paths") or problem_with(network, x, y, weight))
    except (Refusal, TypeError, AttributeError):
        return False


@functools.cache
def _has_clusters() -> bool:
    """Whether there is a GPU whose blocks work together in clusters, and it is the backend's."""
    if default_launcher() != "cuda.core" or not engine_for(keras.config.backend()).reuses_memory:
        return False
    try:
        return make_launcher("cuda.core").why_no_clusters() is None
    except MissingExtra:
        return False


def _precision() -> Precision:
    return "fast" if current().precision == "fast" else "exact"


class NativeProgram(StepProgram):
    """One model's step as kernels, over rows in device memory.

    The model's state is in the buffers from the first run of a pass to its end, and in the model's variables else.
    """

    engine = "native"

    def __init__(self, model: Any, task: Task, data: Structure, rows: int, batch_size: int, output_bytes: int):
        self._model = model
        self._task = task
        self._sessions: dict[Any, Session] = {}
        self._order: np.ndarray | None = None
        # The session that has the state, and the steps that it has taken since then.
        self._holder: Session | None = None
        self._taken = 0
        # Whether its metrics are of an earlier pass.
        self._is_kept = False
        # Whether the weights are where another program trains them.
        self._is_following = False
        self._has_run = False
        self._precision = _precision()
        self._output_bytes = output_bytes
        if (why := why_not_here()) is not None:
            raise Refusal(why)
        self._launcher = make_launcher(default_launcher())
        self._hold(data, rows, batch_size)

    def _hold(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        self._arrays = unpacked(data, self._task)
        self._types = tuple(
            part if part is None else keras.backend.standardize_dtype(part.dtype) for part in self._arrays
        )
        self._rows, self._batch_size = rows, max(1, min(batch_size, rows))
        self._held = (data, rows, batch_size, filled)
        self._filled = filled
        # Rows lie in the order in which they are taken, until `begin_pass` says otherwise.
        self._order = None
        self._bound: dict[int, Session] = {}
        self._session = self._session_of(self._batch_size)

    def _session_of(self, batch_size: int) -> Session:
        """The session for batches of that size, over the rows held."""
        x, y, weight = self._arrays
        key = (batch_size, *self._types)
        session = self._sessions.pop(key, None)
        if session is None:
            x_type, y_type, _ = self._types
            assert x_type is not None
            program = staged_program(self._model, self._task, batch_size, x_type, y_type, weight is not None)
            session = Session(program, self._launcher, self._precision if self._task == "train" else None)
            if len(self._sessions) >= _KEPT:
                del self._sessions[next(iter(self._sessions))]
        self._sessions[key] = session
        if batch_size not in self._bound:
            there = y if y is None or self._filled is None else y[: self._filled]
            if (problem := problem_with(session.program.network, x, there, weight)) is not None:
                raise Refusal(reason("native_data", problem))
            session.bind(x, y, weight, self._filled)
            session.set_order(self._order)
            self._bound[batch_size] = session
        return session

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Which form trains, and why, of each size of batch."""
        return tuple(dict.fromkeys(one.form for one in self._sessions.values() if one.form is not None))

    @property
    def longest(self) -> int:
        group = self._model.steps_per_execution
        if self._task != "predict":
            return max(group, STEPS_PER_CHUNK // group * group)
        outputs = self._session.program.layout["outputs"].shape
        # What the buffer cannot hold would go in several pieces.
        most = 4 * math.prod(outputs)
        return steps_per_piece(4 * math.prod(outputs[1:]), min(self._output_bytes, most), group)

    @property
    def runs_beside_others(self) -> bool:
        """With a launcher of its own it has a stream of its own."""
        return True

    @property
    def runs_no_python(self) -> bool:
        return self._task != "train" or not has_users_schedule(self._model.optimizer)

    @property
    def is_fused(self) -> bool:
        """Whether one kernel takes all steps."""
        return self._session.fused is not None

    def renew(self) -> None:
        """Read the model again; a callback may have changed it."""
        if self._has_run and keras.config.backend() != "torch":
            # Stock Keras has traced the model once and for all.
            return
        program = self._session.program
        try:
            network, binding = read(self._model, self._task)
            if network == program.network and binding.names_the_same_as(program.binding):
                return
            order = self._order
            self._begin_after_reset()
            self.end_pass()
            self._sessions.clear()
            self._hold(*self._held)
        except Refusal as refusal:
            raise FlatoutError(
                f"A callback has changed the model during a native run. {refusal.reason} Train with engine='auto'."
            ) from None
        self.begin_pass(order)

    def replace(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        # Who has the state goes on with it, unless these rows are for another session. The memory of the last ones may
        # be written again when this returns.
        if self._holder is not None:
            self._holder.finish()
        try:
            self._hold(data, rows, batch_size, filled)
        except Refusal as refusal:
            raise ValueError(f"A later part of the data is unlike the first. {refusal.reason}") from None

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._order = order
        for session in self._bound.values():
            session.set_order(order)

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        self._has_run = True
        self._begin_after_reset()
        if self._task == "predict" or every_step:
            # Each step is wanted, and after it the variables must have the state.
            self.end_pass()
            results = self._session.run(self._task, start, stop, self._rows)
            binding = self._session.program.binding
            return results if self._task == "predict" else [logs_of(binding, totals) for totals in results]
        session = self._session_of(self._rows_at_once())
        if self._holder is not session:
            self.end_pass()
            if self._is_following:
                session.begin_pass()
            else:
                session.load(self._task)
            self._holder = session
        first, end = start * self._batch_size, min(stop * self._batch_size, self._rows)
        launched = session.launch(self._task, first, end, self._taken)
        self._taken += stop - start
        binding = session.program.binding
        logs = functools.cache(lambda: logs_of(binding, launched.totals()))
        return [{name: Later(launched, logs, name) for name in binding.log_names}]

    def _rows_at_once(self) -> int:
        """Rows of a batch: as many as fit where nothing depends on it, as the sums over all test rows."""
        network = self._session.program.network
        if self._task != "test" or network.loss is None or not network.loss.is_mean:
            return self._batch_size
        return max(self._batch_size, min(_TESTED_AT_ONCE, _VALUES_AT_ONCE // network.widest, self._rows))

    def end_pass(self) -> None:
        if self._holder is None:
            return
        holder, taken = self._holder, self._taken
        try:
            holder.finish()
            # What was copied into its buffers since, too.
            holder.launcher.wait()
        except Exception:
            # There is nothing to be had from it, however often it is asked.
            self._holder, self._taken = None, 0
            raise
        with Uninterrupted():
            self._holder, self._taken = None, 0
            holder.state(self._task).store(taken)

    def keep_state(self) -> None:
        if not self.runs_no_python:
            self.end_pass()
        self._is_kept = self._holder is not None

    def follows(self, trained: StepProgram) -> bool:
        leader = None
        if isinstance(trained, NativeProgram) and trained._model is self._model and trained.runs_no_python:
            leader = trained._holder
        followed = self._session_of(self._rows_at_once()).follow(leader)
        if followed is not self._is_following:
            # What is held was put together otherwise.
            self.end_pass()
            self._is_following = followed
        return followed

    def settle(self, logs: Any) -> bool:
        return all(value.launched.settle() for value in logs.values() if isinstance(value, Later))

    @property
    def runs_ahead(self) -> bool:
        return self._holder is not None and self.runs_no_python and self._holder.runs_ahead(self._rows)

    def _begin_after_reset(self) -> None:
        """A pass begins after one whose state was kept: the metrics, in their variables, were reset since, to zero."""
        if self._is_kept and self._holder is not None:
            self._holder.begin_pass()
        self._is_kept = False


class Later:
    """A number of the logs that the device will have computed after `launched`; whoever asks for it waits."""

    dtype = np.dtype(np.float32)
    shape = ()

    def __init__(self, launched: Launched, logs: Callable[[], dict[str, np.float32]], name: str):
        self.launched, self._logs, self._name = launched, logs, name

    @property
    def number(self) -> np.float32:
        return self._logs()[self._name]

    def __float__(self) -> float:
        return float(self.number)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.number, dtype)
