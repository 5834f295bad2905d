"""A program on a device: its kernels compiled, its buffers allocated, data bound, steps run."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..errors import Reason, Refusal
from . import state
from .buffers import DeviceArray
from .fused import Precision
from .fused_run import FusedRunner
from .launch import Launch, Launcher, Module
from .program import STEPS_PER_CHUNK, Program, StepName
from .scalars import scalars


class Session:
    """A program loaded with a launcher.

    Attributes:
        program: What was loaded.
        launcher: What runs it.
        buffers: Every buffer by name, as arrays of the device.
        fused: Trains whole chunks in one kernel; None where stages do.
        form: Which form trains, and why; None where nobody asked for another than the staged one.
    """

    def __init__(self, program: Program, launcher: Launcher, precision: Precision | None = None):
        """Load a program.

        Args:
            program: The staged form.
            launcher: What runs it.
            precision: Of training in one kernel, where that serves; None for one kernel a stage in any case.
        """
        self.program = program
        self.launcher = launcher
        self.buffers: dict[str, DeviceArray] = {}
        self._rows = 0
        for name, buffer in program.layout.items():
            if buffer.arena is not None:
                self.buffers[name] = self.buffers[buffer.arena].part(buffer.shape, buffer.offset)
            elif 0 not in buffer.shape:
                self.buffers[name] = launcher.empty(buffer.shape, np.dtype(buffer.dtype))
        self.form: Reason | None = None
        self.fused: FusedRunner | None = None
        if precision is not None and "train" in program.steps:
            try:
                self.fused = FusedRunner(self, precision)
                self.form = self.fused.form
            except Refusal as refusal:
                self.form = refusal.reason

    @functools.cached_property
    def _module(self) -> Module:
        """The kernels of the stages, compiled when they are first wanted: the fused form may do without them."""
        return self.launcher.load(self.program)

    def bind(self, x: Any, y: Any = None, weight: Any = None) -> None:
        """Take the rows to train on: arrays of the device as they are, others as a copy."""
        for name, array in (("x", x), ("y", y), ("weight", weight)):
            if array is None:
                continue
            self._rows = int(array.shape[0])
            found = self.launcher.adopt(array)
            dtype = np.dtype(self.program.layout[name].dtype)
            if found is None or found.dtype != dtype:
                host = np.ascontiguousarray(_on_host(array), dtype)
                found = self.launcher.empty(host.shape, dtype)
                found.assign(host)
            self.buffers[name] = found
            if name == "x" and self.fused is not None:
                self.fused.forget_x()
        self.set_order(None)
        self.launcher.synchronize()

    def set_order(self, order: np.ndarray | None) -> None:
        """Take the order of the rows; None means 0, 1, 2, ..."""
        numbers = np.arange(self._rows, dtype=np.int32) if order is None else np.ascontiguousarray(order, np.int32)
        if "order" not in self.buffers or self.buffers["order"].shape != numbers.shape:
            self.buffers["order"] = self.launcher.empty(numbers.shape, numbers.dtype)
        self.buffers["order"].assign(numbers)

    def run(self, task: StepName, start: int, stop: int, rows_in_order: int) -> list[np.ndarray]:
        """Run the steps `start` to `stop - 1` with the state of the Keras variables, which have the new one afterwards.

        Returns:
            Of "train" and "test" the totals and counts of loss and metrics after each step; of "predict" each step's
            outputs.
        """
        state.load(self, task)
        results = self.advance(task, start, stop, rows_in_order)
        state.store(self, task, stop - start)
        return results

    def advance(self, task: StepName, start: int, stop: int, rows_in_order: int) -> list[np.ndarray]:
        """The same with the state that the buffers hold."""
        batch = self.program.batch_size
        full = rows_in_order // batch
        first_iteration = state.iterations(self.program.model) if task == "train" else 0
        results: list[np.ndarray] = []
        most = self.program.layout["outputs"].shape[0] if task == "predict" else STEPS_PER_CHUNK
        step, before = start, 0
        while step < stop:
            # A last batch with fewer rows is a launch of its own, with other grids.
            rows = batch if step < full else rows_in_order - full * batch
            count = min(stop, full) - step if step < full else 1
            count = min(count, most)
            self._chunk(task, step * batch, rows, count, first_iteration + step - start, before)
            results += self._results(task, rows, count)
            step, before = step + count, count
        return results

    def _chunk(self, task: StepName, first_row: int, rows: int, count: int, iteration: int, done: int) -> None:
        spec = self.program.network.optimizer
        if task == "train" and spec is not None:
            table = scalars(self.program.model.optimizer, spec, iteration, count)
            self.buffers["scalars"].part((count, 2), 0).assign(table)
        if task == "train" and rows == self.program.batch_size and self.fused is not None:
            try:
                self.fused.run(self, first_row, count)
                return
            except Refusal as refusal:
                # Nothing was changed, so the same steps are taken the other way, as are all that follow.
                self.fused = None
                self.form = refusal.reason
        self.buffers["clock"].assign(np.array([first_row, 0], np.int32))
        if task == "train" and self.program.network.dropouts and done:
            # The kernel adds the clock, which begins anew with each chunk, to Keras' counter.
            seeds = self.buffers["seeds"].numpy()
            seeds[:, 1] += np.int32(done)
            self.buffers["seeds"].assign(seeds)
        self._module.run(self._launches(task, rows), count)

    def _launches(self, task: StepName, rows: int) -> list[Launch]:
        launches = []
        for name in self.program.steps[task]:
            kernel = self.program.kernels[name]
            arguments = tuple(
                None if one.buffer is None else self.buffers[one.buffer].pointer for one in kernel.parameters
            )
            launches.append(
                Launch(name, kernel.blocks(rows), kernel.threads, arguments, rows, kernel.cluster, kernel.shared_bytes)
            )
        return launches

    def _results(self, task: StepName, rows: int, count: int) -> list[np.ndarray]:
        if task == "predict":
            buffer = self.buffers["outputs"]
            outputs = buffer.part((count, *buffer.shape[1:]), 0).numpy()
            return [output[:rows] for output in outputs]
        buffer = self.buffers["log"]
        return list(buffer.part((count, *buffer.shape[1:]), 0).numpy())


def _on_host(array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray):
        return array
    from keras import ops

    return np.asarray(ops.convert_to_numpy(array))


def logs_of(binding: Any, totals: np.ndarray) -> dict[str, np.float32]:
    """The logs of a step from the totals and counts after it."""
    return {
        name: np.float32(total / count) if count else np.float32(0.0)
        for name, (total, count) in zip(binding.log_names, totals, strict=True)
    }
