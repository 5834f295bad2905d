"""A lowered model: the step as a list of buffers and kernels, to read, to run, or to launch with another library."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from flatout.native.model.network import Network

Role = Literal["data", "state", "weight", "gradient", "slot", "activation", "scratch"]
StepName = Literal["train", "test", "predict"]
# Steps for which learning rates and logs lie on the device: the most that run before the host looks.
STEPS_PER_CHUNK = 4096


@dataclass(frozen=True)
class Buffer:
    """An array in device memory.

    Attributes:
        name: Unique in the program.
        shape: Its shape; the first axis of data is left at 0 until they are there.
        dtype: NumPy's name of its type.
        role: What it is for.
        arena: The buffer that it is a part of, or None.
        offset: Where in the arena it begins, in elements.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    arena: str | None = None
    offset: int = 0

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Extent:
    """How many blocks a grid has along one axis: a fixed number of items and some for each row, in tiles."""

    per_row: int = 0
    fixed: int = 0
    tile: int = 1

    def blocks(self, rows: int) -> int:
        return -(-(self.per_row * rows + self.fixed) // self.tile)


ONE = Extent(fixed=1)


@dataclass(frozen=True)
class Parameter:
    """An argument of a kernel: a buffer, or the number of rows (`buffer` is None)."""

    declaration: str
    buffer: str | None


@dataclass(frozen=True)
class Kernel:
    """A CUDA kernel, and how it is launched.

    Attributes:
        name: Of the `extern "C"` function.
        title: What it computes, in a line.
        body: Its statements.
        parameters: Its arguments.
        reads: Buffers that it reads.
        writes: Buffers that it writes.
        grid: Blocks along x, y and z.
        threads: Of a block.
        flops: Floating-point operations for a full batch.
        nbytes: Bytes read and written for a full batch.
        cluster: Blocks of a thread-block cluster; 1 for none.
        shared_bytes: Dynamic shared memory.
    """

    name: str
    title: str
    body: str
    parameters: tuple[Parameter, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    grid: tuple[Extent, Extent, Extent]
    threads: int
    flops: int
    nbytes: int
    cluster: int = 1
    shared_bytes: int = 0

    @property
    def code(self) -> str:
        arguments = ", ".join(parameter.declaration for parameter in self.parameters)
        # A cluster's kernel lives on registers, of which the compiler gives more when it knows the threads.
        head = f"KERNEL({self.name})" if self.cluster == 1 else f"CLUSTER_KERNEL({self.name}, {self.threads})"
        return f"// {self.title}\n{head}({arguments}) {{\n{self.body}\n}}\n"

    def blocks(self, rows: int) -> tuple[int, int, int]:
        x, y, z = (extent.blocks(rows) for extent in self.grid)
        return x, y, z


@dataclass(frozen=True, repr=False, eq=False)
class Program:
    """A model's step as kernels; made by `flatout.lower`.

    Attributes:
        network: What was read from the model.
        form: `"staged"`: one kernel for each stage; `"fused"`: one for all steps.
        batch_size: Rows of a full batch. A kernel takes fewer too.
        layout: Every buffer by name.
        kernels: Every kernel by name.
        steps: Which kernels make a `"train"`, `"test"` or `"predict"` step, in order.
        prelude: The device code that the kernels share.
        model: The Keras model.
        binding: Which Keras variable belongs to which buffer.
        shims: Parts of the shim that its kernels need beside the common one.

    Example:
        >>> import flatout, keras
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> program = flatout.lower(model, batch_size=8)
        >>> str(program).splitlines()[0]
        'staged train step, batch of 8: 6 kernels, 5 trained weights, 65,848 B of buffers'
    """

    network: Network
    form: str
    batch_size: int
    layout: dict[str, Buffer]
    kernels: dict[str, Kernel]
    steps: dict[StepName, tuple[str, ...]]
    prelude: str
    model: Any
    binding: Any
    shims: tuple[str, ...] = ()
    _sessions: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def source(self) -> str:
        """CUDA C++ of all kernels: one file for NVRTC or nvcc, without includes."""
        from .kernel_source import cuda_source

        return cuda_source(self)

    @property
    def buffers(self) -> dict[str, Any]:
        """The buffers on the device: of the launcher that ran last, or else of the default one."""
        session = next(reversed(self._sessions.values()), None) or self.load()
        return dict(session.buffers)

    def load(self, launcher: str | None = None) -> Any:
        """Compile the kernels and allocate the buffers, once for each launcher; returns the `Session`."""
        from flatout.native.launch.launcher import default_launcher, make_launcher
        from flatout.native.run.session import Session

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
        from flatout.native.run.session import logs_of

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

    def tune(self, x: Any, y: Any, *, precision: Literal["exact", "fast"] = "exact") -> list[Any]:
        """Time every shape in which one kernel can train the model on this GPU, and have `fit` take the fastest.

        Which blocks and warps those are is remembered in the user's cache, for this GPU and models of these sizes. The
        model is not changed. A shape takes about a second to compile.

        Args:
            x: Rows to train on; a few hundred batches are enough.
            y: Their targets.
            precision: As given to `fit`.

        Returns:
            A `Timing` for each shape, the fastest first: its `plan` and `us_per_step`.

        Raises:
            CannotLower: No single kernel serves this model, or this GPU.
        """
        from flatout.base.errors import CannotLower, Refusal
        from flatout.native.fused.tuning import tune
        from flatout.native.launch.launcher import default_launcher, make_launcher
        from flatout.native.run.session import Session

        from .lower import lowered

        x, y = self._checked(np.asarray(x), np.asarray(y))
        if len(x) < self.batch_size:
            raise ValueError(f"Expected at least a batch of {self.batch_size} rows. Received: {len(x)}.")
        program = lowered(self.model, "train", self.batch_size, x.dtype.name, y.dtype.name, False)
        try:
            return tune(Session(program, make_launcher(default_launcher())), precision, x, y)
        except Refusal as refusal:
            raise CannotLower(refusal.reason) from None

    def _checked(self, x: Any, y: Any) -> tuple[Any, Any]:
        from .data_checks import targets_fit

        if y is None or len(x) != len(y):
            raise ValueError("Expected `x` and `y` with as many rows each.")
        if math.prod(x.shape[1:]) != self.network.features:
            raise ValueError(f"Expected rows of {self.network.features} values. Received: x.shape={tuple(x.shape)}.")
        problem = targets_fit(self.network, y)
        if problem is not None:
            raise ValueError(f"Invalid value for argument `y`: {problem}.")
        return x, y

    def __str__(self) -> str:
        from .program_text import describe

        return describe(self, "train" if "train" in self.steps else next(iter(self.steps)))

    def __repr__(self) -> str:
        return f"<Program: {self.form}, batch of {self.batch_size}, {len(self.kernels)} kernels>"
