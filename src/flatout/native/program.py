"""A lowered model: the step as a list of buffers and kernels, to read, to run, or to launch with another library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .network import Network

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
        return f"// {self.title}\nKERNEL({self.name})({arguments}) {{\n{self.body}\n}}\n"

    def blocks(self, rows: int) -> tuple[int, int, int]:
        x, y, z = (extent.blocks(rows) for extent in self.grid)
        return x, y, z


@dataclass(frozen=True)
class Program:
    """A model's step as kernels; made by `flatout.lower`.

    Attributes:
        network: What was read from the model.
        form: `"staged"`: one kernel for each stage.
        batch_size: Rows of a full batch. A kernel takes fewer too.
        layout: Every buffer by name.
        kernels: Every kernel by name.
        steps: Which kernels make a `"train"`, `"test"` or `"predict"` step, in order.
        prelude: The device code that the kernels share.
        model: The Keras model.
        binding: Which Keras variable belongs to which buffer.

    Example:
        >>> import flatout, keras
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> program = flatout.lower(model, batch_size=8)
        >>> print(program).splitlines()[0]
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

    @property
    def source(self) -> str:
        """CUDA C++ of all kernels: one file for NVRTC or nvcc, without includes."""
        from .source import cuda_source

        return cuda_source(self)
