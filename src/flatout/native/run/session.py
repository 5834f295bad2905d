"""A program on a device: its kernels compiled, its buffers allocated, data bound, steps run."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from flatout.base.errors import Reason, Refusal, reason
from flatout.base.uninterrupted import Uninterrupted
from flatout.engines.contract import company
from flatout.native.fused.fused_plan import FusedPlan, Precision
from flatout.native.launch.buffers import DeviceArray
from flatout.native.launch.launcher import Launcher, Run, launches
from flatout.native.program.kernel_program import STEPS_PER_CHUNK, KernelProgram, StepName

from .fused_runner import OUT_OF_RANGE, FusedRunner
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


class Launched:
    """Steps that were launched, and the totals and counts of loss and metrics after them.

    Attributes:
        order: The order of the rows from which they take theirs; None means 0, 1, 2, ...
        begins_pass: Whether all totals were zero before.
        was_taken_again: Whether one kernel could not take them, and stages have.
        fetch: Waits for the steps, if nothing else: what it returns begins with the totals.
    """

    def __init__(self, session: Session, chunk: _Chunk, order: np.ndarray | None, begins_pass: bool):
        self.chunk, self.order, self.begins_pass = chunk, order, begins_pass
        self.was_taken_again = False
        self.fetch: Callable[[], list[np.ndarray]] | None = None
        self._session = session

    def settle(self) -> bool:
        """Wait until it is known whether one kernel could take the steps; False if stages had to."""
        return self._session.settle(self)

    def totals(self) -> np.ndarray:
        """Totals and counts, for which it waits."""
        return self._session.totals_after(self)


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
        # The order of the rows that was sent last, if any was.
        self._order: np.ndarray | None = None
        self._has_order = False
        self._states: dict[StepName, State] = {}
        # Whether there may be steps whose end nobody has waited for, and those of one kernel of which nobody knows yet
        # whether it could take them.
        self._is_running = False
        self._unsettled: deque[Launched] = deque()
        self._begins_pass = False
        self._is_alone = company().models == 1
        # The session that trains the weights.
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

    def follow(self, leader: Session | None) -> bool:
        """Take the weights from another session, which trains them, whenever a pass begins; or from none any more.

        Returns:
            False if there is none, or they lie otherwise there than here.
        """
        self._leader = None
        if leader is None:
            return False
        layout, other = self.program.layout, leader.program.layout
        names = [name for name, buffer in layout.items() if buffer.role == "weight"]
        wholes = {layout[name].arena or name for name in names}
        if any(layout[name] != other.get(name) for name in (*names, *wholes)):
            return False
        self._leader, self._taken_over = leader, sorted(wholes)
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
        self._has_order = False
        self.set_order(None)
        self.launcher.synchronize()

    def set_order(self, order: np.ndarray | None) -> None:
        """Take the order of the rows for the steps that are launched from now on; None means 0, 1, 2, ..."""
        if self._has_order and order is None and self._order is None:
            return
        numbers = np.arange(self._rows, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
        if "order" not in self.buffers or self.buffers["order"].shape != numbers.shape:
            self.finish()
            self.buffers["order"] = self.launcher.empty(numbers.shape, numbers.dtype)
        self.launcher.assign_soon(self.buffers["order"], numbers)
        self._order, self._has_order = order, True

    def load(self, task: StepName) -> None:
        """Take the state of the Keras variables, metrics among it."""
        self.state(task).load()
        self._begins_pass = False

    def begin_pass(self) -> None:
        """Count loss and metrics from zero on in the steps that are launched from now on."""
        self.buffers["metrics"].assign(np.zeros(self.buffers["metrics"].shape, np.float32))
        self._begins_pass = True

    def runs_ahead(self, rows: int) -> bool:
        """Whether the last pass over so many rows was one kernel, behind which another such one may be launched."""
        if self.fused is None or not self._unsettled or not self._is_alone:
            return False
        last = self._unsettled[-1]
        return last.begins_pass and last.chunk.count * self.program.batch_size == rows

    def run(self, task: StepName, start: int, stop: int, rows_in_order: int) -> list[np.ndarray]:
        """Run the steps `start` to `stop - 1` with the state of the Keras variables, which have the new one afterwards.

        Returns:
            Of "train" and "test" the totals and counts of loss and metrics after each step; of "predict" each step's
            outputs.
        """
        self.load(task)
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

    def launch(self, task: StepName, first_row: int, end_row: int, done: int) -> Launched:
        """Launch the steps over some rows of the order, with the state that the buffers hold.

        `done` steps were taken since the state was loaded. Those of a pass that begins may be launched behind others of
        which nobody knows yet whether one kernel could take them, if all of them are for one kernel.
        """
        if self._leader is not None and self._begins_pass:
            self._take_weights(self._leader)
        for chunk in self._chunks(task, first_row, end_row, done):
            begins = self._begins_pass
            if self._unsettled and not (begins and self._is_for_one_kernel(chunk)):
                self._settle_all()
                if begins:
                    # Steps that were taken again have counted theirs.
                    self.begin_pass()
            launched = self._launch(chunk)
        return launched

    def settle(self, launched: Launched) -> bool:
        """Wait until it is known whether one kernel could take these steps; False if stages had to."""
        while launched in self._unsettled:
            self._settle_first()
        return not launched.was_taken_again

    def _settle_first(self) -> None:
        launched = self._unsettled[0]
        _, failed = self._fetch(launched)()
        if not failed[0]:
            self._unsettled.popleft()
            return
        # What takes long, or fails, does so while the steps are still to be taken.
        _ = self._run
        with Uninterrupted():
            self._unsettled.popleft()
            # Nothing was changed, so the same steps are taken the other way, as are all that follow.
            self.fused, self.form = None, OUT_OF_RANGE
            order = self._order
            self.set_order(launched.order)
            if launched.begins_pass:
                self.begin_pass()
            launched.fetch, launched.was_taken_again = None, True
            self._launch(launched.chunk, launched)
            self.set_order(order)

    def finish(self) -> None:
        """Wait for all steps that were launched."""
        self._settle_all()
        if self._is_running:
            self.launcher.wait()
            self._is_running = False

    def totals_after(self, launched: Launched) -> np.ndarray:
        """Totals and counts of loss and metrics after steps, for which it waits."""
        self.settle(launched)
        return self._fetch(launched)()[0]

    def _settle_all(self) -> None:
        while self._unsettled:
            self._settle_first()

    def _take_weights(self, leader: Session) -> None:
        """Copy them as they will be when all is done that the leader has launched."""
        # What is launched here may still read the last ones.
        leader.launcher.follow(self.launcher)
        for name in self._taken_over:
            leader.launcher.copy(self.buffers[name], leader.buffers[name])
        self.launcher.follow(leader.launcher)

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
        return self.fused is not None and chunk.task == "train" and chunk.rows == self.program.batch_size

    def _launch(self, chunk: _Chunk, again: Launched | None = None) -> Launched:
        launched = again or Launched(self, chunk, self._order, self._begins_pass)
        self._begins_pass, self._is_running = False, True
        if chunk.task == "train":
            first = self.state("train").iterations + chunk.done
            self.buffers["scalars"].part((chunk.count, 2), 0).assign(self._rates.rows(first, chunk.count))
        if not self._is_launched_in_one_kernel(launched):
            self.buffers["clock"].assign(np.array([chunk.first_row, 0], np.int32))
            if chunk.task == "train":
                # The kernel adds the clock, which begins anew with each chunk, to Keras' counter.
                self.state("train").load_seeds(chunk.done)
            names = self.program.steps[chunk.task]
            self._run(launches(self.program, names, self.buffers, chunk.rows), chunk.count)
        if self._is_alone and chunk.task != "predict":
            # Not beside other models: a GPU takes launches of several streams in the order in which they come, and
            # their steps would wait behind what waits for these.
            self._fetch(launched)
        return launched

    def _is_launched_in_one_kernel(self, launched: Launched) -> bool:
        """Launch steps in one kernel, if that can take them as far as is known."""
        chunk = launched.chunk
        if not self._is_for_one_kernel(chunk):
            return False
        assert self.fused is not None
        try:
            self.fused.launch(chunk.first_row, chunk.count)
        except Refusal as refusal:
            self.fused, self.form = None, refusal.reason
            return False
        self._unsettled.append(launched)
        return True

    def _fetch(self, launched: Launched) -> Callable[[], list[np.ndarray]]:
        """What waits for the totals after steps and, if they are unsettled, whether they failed."""
        if launched.fetch is None:
            arrays = [self.buffers["metrics"]]
            if launched in self._unsettled:
                assert self.fused is not None
                arrays.append(self.fused.sum_up())
            launched.fetch = self.launcher.fetch_soon(arrays)
        return launched.fetch

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

        return JaxTransfer(launcher)
    return HostTransfer()


def logs_of(binding: Any, totals: np.ndarray) -> dict[str, np.float32]:
    """The logs of a step from the totals and counts after it."""
    return {
        name: np.float32(total / count) if count else np.float32(0.0)
        for name, (total, count) in zip(binding.log_names, totals, strict=True)
    }
