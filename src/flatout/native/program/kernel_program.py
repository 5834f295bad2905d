"""A model's steps as plain data: buffers, kernels, and which kernels make which step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from flatout.native.model.network import Binding, Network

Role = Literal["data", "state", "weight", "gradient", "slot", "activation", "scratch"]
StepName = Literal["train", "test", "predict"]
# Steps for which learning rates and logs lie on the device: the most that run before the host looks.
STEPS_PER_CHUNK = 4096


@dataclass(frozen=True)
class Buffer:
    """An array in device memory.

    Attributes:
        shape: Its shape; the first axis of data is left at 0 until they are there.
        dtype: NumPy's name of its type.
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
class GridExtent:
    """How many blocks a grid has along one axis: a fixed number of items and some for each row, in tiles."""

    per_row: int = 0
    fixed: int = 0
    tile: int = 1

    def blocks(self, rows: int) -> int:
        return -(-(self.per_row * rows + self.fixed) // self.tile)


Grid = tuple[GridExtent, GridExtent, GridExtent]
ONE = GridExtent(fixed=1)
ONE_BLOCK: Grid = (ONE, ONE, ONE)


@dataclass(frozen=True)
class Parameter:
    """An argument of a kernel: a buffer, or the number of rows (`buffer` is None)."""

    declaration: str
    buffer: str | None


@dataclass(frozen=True)
class Kernel:
    """A CUDA kernel, and how it is launched.

    Attributes:
        title: What it computes, in a line.
        reads: Buffers that it reads.
        writes: Buffers that it writes.
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
    grid: Grid
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


@dataclass(frozen=True, eq=False)
class KernelProgram:
    """A model's steps as kernels.

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
    """

    network: Network
    form: str
    batch_size: int
    layout: dict[str, Buffer]
    kernels: dict[str, Kernel]
    steps: dict[StepName, tuple[str, ...]]
    prelude: str
    model: Any
    binding: Binding
    shims: tuple[str, ...] = ()
