"""What `flatout.lower` returns: a program to read, to run, or to launch with another library."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flatout.base.errors import CannotLower, Refusal
from flatout.native.fused.fused_plan import FusedPlan, Precision
from flatout.native.launch.launcher import default_launcher, make_launcher
from flatout.native.program.kernel_program import KernelProgram, describe
from flatout.native.program.kernel_source import cuda_source
from flatout.native.run.accepted_data import problem_with
from flatout.native.run.fused_runner import candidates, remember_shape
from flatout.native.run.session import Session, logs_of
from flatout.native.staged.staged_program import staged_program

# Steps of a shape that are timed together, and how often.
_TIMED_STEPS, _REPEATS = 500, 5


@dataclass(frozen=True)
class ShapeTiming:
    """A shape of the kernel, and how long a step takes with it; None if it does not run on this GPU."""

    plan: FusedPlan
    us_per_step: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Program(KernelProgram):
    """A model's step as kernels; made by `flatout.lower`. `KernelProgram` has its attributes.

    Example:
        >>> import flatout, keras
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> program = flatout.lower(model, batch_size=8)
        >>> str(program).splitlines()[0]
        'staged train step, batch of 8: 6 kernels, 5 trained weights, 65,848 B of buffers'
    """

    _sessions: dict[str, Session] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """CUDA C++ of all kernels: one file for NVRTC or nvcc, without includes."""
        return cuda_source(self)

    @property
    def buffers(self) -> dict[str, Any]:
        """The buffers on the device: of the launcher that ran last, or else of the default one."""
        session = next(reversed(self._sessions.values()), None) or self.load()
        return dict(session.buffers)

    def load(self, launcher: str | None = None) -> Session:
        """Compile the kernels and allocate the buffers, once for each launcher; returns the `Session`."""
        name = default_launcher() if launcher is None else launcher
        session = self._sessions.pop(name, None) or Session(self, make_launcher(name))
        self._sessions[name] = session
        return session

    def run(
        self,
        x: Any = None,
        y: Any = None,
        *,
        order: Any = None,
        steps: int | None = None,
        launcher: str | None = None,
    ) -> dict[str, float]:
        """Train the model for an epoch.

        Weights, optimizer state and metrics are read from the Keras variables before, and written to them after.

        Args:
            x: Rows to train on, on the host or the device; those of the last call if None.
            y: Their targets.
            order: Numbers of the rows to take, in this order; all of them as they lie if None.
            steps: How many steps; a whole pass if None.
            launcher: `"cuda.core"`, `"cupy"`, `"pycuda"`, or `"cpu"`, which emulates a GPU for tests.

        Returns:
            Loss and metrics, as `fit` reports them for an epoch.
        """
        session = self.load(launcher)
        if x is not None:
            session.bind(*self._checked(x, y))
        if "x" not in session.buffers:
            raise ValueError("There are no data yet. Expected `x` and `y` in the first call with a launcher.")
        numbers = None if order is None else np.asarray(order)
        rows = session.buffers["x"].shape[0]
        if numbers is not None and numbers.size and not (numbers.min() >= 0 and numbers.max() < rows):
            raise ValueError(f"Invalid value for argument `order`. Expected row numbers from 0 to {rows - 1}.")
        session.set_order(numbers)
        taken = rows if numbers is None else numbers.size
        most = -(-taken // self.batch_size)
        if steps is not None and not 0 <= steps <= most:
            raise ValueError(f"Invalid value for argument `steps`. Received: {steps}. Expected at most {most}.")
        self.model.reset_metrics()
        totals = session.run("train", 0, most if steps is None else steps, taken)
        return {name: float(value) for name, value in logs_of(self.binding, totals[-1]).items()} if totals else {}

    def tune(self, x: Any, y: Any, *, precision: Literal["exact", "fast"] = "exact") -> list[ShapeTiming]:
        """Time every shape in which one kernel can train the model on this GPU, and have `fit` take the fastest.

        Which blocks and warps those are is remembered in the user's cache, for this GPU and models of these sizes. The
        model is not changed. A shape takes about a second to compile.

        Args:
            x: Rows to train on; a few hundred batches are enough.
            y: Their targets.
            precision: As given to `fit`.

        Returns:
            A `ShapeTiming` for each shape, the fastest first: its `plan` and `us_per_step`.

        Raises:
            CannotLower: No single kernel serves this model, or this GPU.
        """
        x, y = self._checked(np.asarray(x), np.asarray(y))
        if len(x) < self.batch_size:
            raise ValueError(f"Expected at least a batch of {self.batch_size} rows. Received: {len(x)}.")
        program = staged_program(self.model, "train", self.batch_size, x.dtype.name, y.dtype.name, False)
        try:
            return _tune(Session(program, make_launcher(default_launcher())), precision, x, y)
        except Refusal as refusal:
            raise CannotLower(refusal.reason) from None

    def _checked(self, x: Any, y: Any) -> tuple[Any, Any]:
        if y is None or len(x) != len(y):
            raise ValueError("Expected `x` and `y` with as many rows each.")
        if (problem := problem_with(self.network, x, y)) is not None:
            raise ValueError(f"These data do not fit the model: {problem}.")
        return x, y

    def __str__(self) -> str:
        return describe(self, "train" if "train" in self.steps else next(iter(self.steps)))

    def __repr__(self) -> str:
        return f"<Program: {self.form}, batch of {self.batch_size}, {len(self.kernels)} kernels>"


def _tune(session: Session, precision: Precision, x: Any, y: Any) -> list[ShapeTiming]:
    timings = []
    steps = min(_TIMED_STEPS, len(x) // session.program.batch_size)
    for plan in candidates(session.launcher, session.program, precision):
        try:
            session.fuse(precision, plan)
        except Refusal:
            timings.append(ShapeTiming(plan, None))
            continue
        session.bind(x, y)
        session.state("train").load()
        session.advance("train", 0, steps, len(x))
        runner, seconds = session.fused, []
        if runner is None:
            # A number left the range of halves; that is no matter of the shape.
            continue
        for _ in range(_REPEATS):
            session.launcher.synchronize()
            began = time.perf_counter()
            runner.launch_steps()
            session.launcher.synchronize()
            seconds.append(time.perf_counter() - began)
        timings.append(ShapeTiming(plan, statistics.median(seconds) / steps * 1e6))
    timings.sort(key=lambda one: (one.us_per_step is None, one.us_per_step or 0.0))
    if timings and timings[0].us_per_step is not None:
        remember_shape(session.launcher.device_name, timings[0].plan)
    return timings
