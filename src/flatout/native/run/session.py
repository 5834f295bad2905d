"""A program on a device: its kernels compiled, its buffers allocated, data bound, steps run."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from flatout.base.errors import Reason, Refusal, reason
from flatout.engines.contract import Structure, Task
from flatout.native.fused.fused_plan import FusedPlan, Precision
from flatout.native.launch.buffers import DeviceArray
from flatout.native.launch.launcher import Launcher, Run, launches
from flatout.native.model.network import Network
from flatout.native.program.kernel_program import STEPS_PER_CHUNK, KernelProgram, StepName

from .fused_runner import FusedRunner
from .rate_table import RateTable
from .state_transfer import HostTransfer, State, on_host


@dataclass(frozen=True)
class _Chunk:
    """`count` steps of `rows` rows each that are launched together, `done` steps after the state was loaded."""

    task: StepName
    first_row: int
    rows: int
    count: int
    done: int


class Session:
    """A program loaded with a launcher.

    Attributes:
        buffers: Every buffer by name, as arrays of the device.
        fused: Trains whole chunks in one kernel; None where stages do.
        form: Which form trains, and why; None where nobody asked for another than the staged one.
    """

    def __init__(self, program: KernelProgram, launcher: Launcher, precision: Precision | None = None):
        """Load a program; `precision` is that of one kernel, where that serves, or None for stages in any case."""
        self.program = program
        self.launcher = launcher
        self.buffers: dict[str, DeviceArray] = {}
        self._rows = 0
        self._is_in_order = False
        self._states: dict[StepName, State] = {}
        # Steps whose end nobody has waited for.
        self._running: _Chunk | None = None
        # The session in whose buffers the weights are.
        self._leader: Session | None = None
        for name, buffer in program.layout.items():
            if buffer.arena is not None:
                self.buffers[name] = self.buffers[buffer.arena].part(buffer.shape, buffer.offset)
            elif 0 not in buffer.shape:
                self.buffers[name] = launcher.empty(buffer.shape, np.dtype(buffer.dtype))
        self.form: Reason | None = None
        self.fused: FusedRunner | None = None
        if precision is not None and "train" in program.steps:
            try:
                self.fuse(precision)
            except Refusal as refusal:
                self.form = refusal.reason

    def fuse(self, precision: Precision, plan: FusedPlan | None = None) -> None:
        """Train whole chunks in one kernel from now on: of the shape that is the fastest here, or of that of `plan`.

        Raises:
            Refusal: There is none for the program.
        """
        self.fused = FusedRunner(self.launcher, self.program, self.buffers, precision, plan)
        self.form = reason("native_form", self.fused.plan.title)

    @functools.cached_property
    def _run(self) -> Run:
        """Runs the kernels of the stages, compiled when they are first wanted: the fused form may do without them."""
        return self.launcher.load(self.program)

    @functools.cached_property
    def _rates(self) -> RateTable:
        assert self.program.network.optimizer is not None
        return RateTable(self.program.model.optimizer, self.program.network.optimizer)

    def state(self, task: StepName) -> State:
        """What carries the model's state to the buffers and back."""
        if task not in self._states:
            self._states[task] = State(self.program, self.buffers, _fastest_transfer(self.launcher), task)
        return self._states[task]

    def follow(self, leader: Session) -> bool:
        """Take the weights where another session trains them; steps begin when all is done that it has launched.

        Returns:
            False if they lie otherwise there than here; then nothing is changed.
        """
        names = [name for name, buffer in self.program.layout.items() if buffer.role == "weight"]
        if any(self.program.layout[name] != leader.program.layout.get(name) for name in names):
            return False
        if self._leader is not leader:
            self.finish()
            self.buffers.update({name: leader.buffers[name] for name in names})
            self._states.clear()
            self._leader = leader
        return True

    def bind(self, x: Any, y: Any = None, weight: Any = None, filled: int | None = None) -> None:
        """Take the rows to train on, the first of them `filled`: arrays of the device as they are, others as a copy."""
        self.finish()
        for name, array in (("x", x), ("y", y), ("weight", weight)):
            if array is None:
                continue
            self._rows = int(array.shape[0])
            found = self.launcher.adopt(array)
            dtype = np.dtype(self.program.layout[name].dtype)
            if found is None or found.dtype != dtype:
                host = np.ascontiguousarray(on_host(array), dtype)
                found = self.launcher.empty(host.shape, dtype)
                found.assign(host)
            self.buffers[name] = found
            if name == "x" and self.fused is not None:
                self.fused.forget_x(filled)
        self._is_in_order = False
        self.set_order(None)
        self.launcher.synchronize()

    def set_order(self, order: np.ndarray | None) -> None:
        """Take the order of the rows; None means 0, 1, 2, ..."""
        if order is None and self._is_in_order:
            return
        self.finish()
        numbers = np.arange(self._rows, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
        if "order" not in self.buffers or self.buffers["order"].shape != numbers.shape:
            self.buffers["order"] = self.launcher.empty(numbers.shape, numbers.dtype)
        self.buffers["order"].assign(numbers)
        self._is_in_order = order is None

    def run(self, task: StepName, start: int, stop: int, rows_in_order: int) -> list[np.ndarray]:
        """Run the steps `start` to `stop - 1` with the state of the Keras variables, which have the new one afterwards.

        Returns:
            Of "train" and "test" the totals and counts of loss and metrics after each step; of "predict" each step's
            outputs.
        """
        self.state(task).load()
        results = self.advance(task, start, stop, rows_in_order)
        self.state(task).store(stop - start)
        return results

    def advance(self, task: StepName, start: int, stop: int, rows_in_order: int) -> list[np.ndarray]:
        """The same with the state that the buffers hold."""
        batch = self.program.batch_size
        results: list[np.ndarray] = []
        for chunk in self._chunks(task, start * batch, min(stop * batch, rows_in_order), 0):
            self._launch(chunk)
            self.finish()
            results += self._results(chunk)
        return results

    def launch(self, task: StepName, first_row: int, end_row: int, done: int) -> None:
        """Launch the steps over some rows of the order, with the state that the buffers hold; `finish` waits for them.

        `done` steps were taken since the state was loaded.
        """
        if self._leader is not None:
            self.launcher.follow(self._leader.launcher)
        for chunk in self._chunks(task, first_row, end_row, done):
            self._settle()
            self._launch(chunk)

    def finish(self) -> bool:
        """Wait for the steps that were launched last; False if they had to be taken again."""
        has_stood = self._settle()
        if self._running is not None:
            self.launcher.wait()
            self._running = None
        return has_stood

    def _settle(self) -> bool:
        """Have the steps that were launched last succeed: if one kernel could not take them, stages do."""
        chunk = self._running
        if chunk is None or self.fused is None or not self._is_for_one_kernel(chunk):
            return True
        self._running = None
        try:
            self.fused.finish()
            return True
        except Refusal as refusal:
            # Nothing was changed, so the same steps are taken the other way, as are all that follow.
            self.fused = None
            self.form = refusal.reason
            self._launch(chunk)
            return False

    def totals(self) -> np.ndarray:
        """Totals and counts of loss and metrics after the last step."""
        self.finish()
        return self.buffers["metrics"].numpy()

    def _chunks(self, task: StepName, first_row: int, end_row: int, done: int) -> list[_Chunk]:
        """Steps of as many rows each; a last batch with fewer is a launch of its own, with other grids."""
        batch = self.program.batch_size
        most = self.program.layout["outputs"].shape[0] if task == "predict" else STEPS_PER_CHUNK
        found = []
        while first_row < end_row:
            rows = min(batch, end_row - first_row)
            count = min((end_row - first_row) // rows, most)
            found.append(_Chunk(task, first_row, rows, count, done))
            first_row, done = first_row + count * rows, done + count
        return found

    def _is_for_one_kernel(self, chunk: _Chunk) -> bool:
        return chunk.task == "train" and chunk.rows == self.program.batch_size

    def _launch(self, chunk: _Chunk) -> None:
        if chunk.task == "train":
            first = self.state("train").iterations + chunk.done
            self.buffers["scalars"].part((chunk.count, 2), 0).assign(self._rates.rows(first, chunk.count))
        self._running = chunk
        if self.fused is not None and self._is_for_one_kernel(chunk):
            try:
                self.fused.launch(chunk.first_row, chunk.count)
                return
            except Refusal as refusal:
                self.fused = None
                self.form = refusal.reason
        self.buffers["clock"].assign(np.array([chunk.first_row, 0], np.int32))
        if chunk.task == "train":
            # The kernel adds the clock, which begins anew with each chunk, to Keras' counter.
            self.state("train").load_seeds(chunk.done)
        names = self.program.steps[chunk.task]
        self._run(launches(self.program, names, self.buffers, chunk.rows), chunk.count)

    def _results(self, chunk: _Chunk) -> list[np.ndarray]:
        buffer = self.buffers["outputs" if chunk.task == "predict" else "log"]
        results = buffer.part((chunk.count, *buffer.shape[1:]), 0).numpy()
        return [result[: chunk.rows] for result in results] if chunk.task == "predict" else list(results)


def _fastest_transfer(launcher: Launcher) -> HostTransfer:
    """The fastest way between the backend in use and the memory of a launcher."""
    backend = keras.config.backend()
    if backend == "torch" and launcher.name in ("cuda.core", "cpu"):
        from .torch_transfer import TorchTransfer

        return TorchTransfer()
    if backend == "jax" and launcher.name == "cuda.core":
        from .jax_transfer import JaxTransfer

        return JaxTransfer(cast(Any, launcher))
    return HostTransfer()


def logs_of(binding: Any, totals: np.ndarray) -> dict[str, np.float32]:
    """The logs of a step from the totals and counts after it."""
    return {
        name: np.float32(total / count) if count else np.float32(0.0)
        for name, (total, count) in zip(binding.log_names, totals, strict=True)
    }


def unpacked(data: Structure, task: Task) -> list[Any]:
    """x, y and sample weights of `(x, y, sample_weight)`, each a single array or None."""
    parts = list(data) if isinstance(data, tuple | list) else [data]
    leaves = [*parts, None, None, None][:3]
    if task == "predict":
        leaves[1:] = None, None
    for number, name in enumerate(("x", "y", "sample_weight")):
        part = leaves[number]
        if isinstance(part, tuple | list) and len(part) == 1:
            leaves[number] = part = part[0]
        if isinstance(part, Mapping | tuple | list):
            raise Refusal(reason("native_data", f"{name} is a structure of arrays"))
    return leaves


def problem_with(network: Network, x: Any, y: Any, weight: Any = None) -> str | None:
    """Why data do not fit a network; None if they do."""
    if x.shape[0] == 0:
        return "there are no rows"
    size = math.prod(x.shape[1:])
    if size != network.features:
        return f"x has rows of {size} values, the model takes rows of {network.features} values"
    if weight is not None and tuple(weight.shape[1:]) not in ((), (1,)):
        return f"sample weights have the shape {tuple(weight.shape)}, not (rows,)"
    if network.loss is None:
        return None
    if y is None:
        return "there is no y"
    shape, width = tuple(y.shape), network.outputs
    if network.has_sparse_targets:
        if shape[1:] not in ((), (1,)):
            return f"labels have the shape {shape}, not (rows,)"
        low, high = _range(y)
        if low < 0 or high >= width:
            return f"labels go from {low:g} to {high:g}, with {width} classes"
    elif shape[1:] != (width,) and not (width == 1 and shape[1:] == ()):
        return f"targets have the shape {shape}, not {('rows', width)}"
    return None


def _range(y: Any) -> tuple[float, float]:
    if isinstance(y, np.ndarray):
        return float(y.min()), float(y.max())
    return float(on_host(ops.min(y))), float(on_host(ops.max(y)))
