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


_ROLES = {
    "data": "data",
    "state": "state of a chunk of steps",
    "weight": "weights",
    "gradient": "gradients",
    "slot": "optimizer",
    "activation": "of one step",
    "scratch": "scratch",
}


def describe(program: KernelProgram, step: StepName) -> str:
    """The step of a kind: its buffers, then its kernels in order."""
    kernels = [program.kernels[name] for name in program.steps[step]]
    used = {name for kernel in kernels for name in (*kernel.reads, *kernel.writes)}
    arenas = {program.layout[name].arena for name in used} - {None}
    used -= {name for name in used if name in arenas and any(program.layout[one].arena == name for one in used)}
    buffers = [buffer for name, buffer in program.layout.items() if name in used or name in arenas]
    own = sum(buffer.nbytes for buffer in buffers if buffer.arena is None)
    weights = sum(weight.size for weight in program.network.trained)
    lines = [
        f"{program.form} {step} step, batch of {program.batch_size}: {len(kernels)} kernels, "
        f"{weights:,} trained weights, {own:,} B of buffers",
        "",
        "buffers",
        *_buffer_lines(buffers),
        "",
        "kernels",
    ]
    for number, kernel in enumerate(kernels, 1):
        lines += _kernel_lines(program, number, kernel)
    flops, moved = sum(kernel.flops for kernel in kernels), sum(kernel.nbytes for kernel in kernels)
    lines += ["", f"in all: {flops:,} FLOP, {moved:,} B read and written"]
    return "\n".join(lines)


def _buffer_lines(buffers: list[Buffer]) -> list[str]:
    rows = []
    for buffer in buffers:
        sizes = ["rows" if size == 0 else str(size) for size in buffer.shape]
        where = f"in {buffer.arena} at {buffer.offset}" if buffer.arena else _ROLES[buffer.role]
        size = "" if 0 in buffer.shape else f"{buffer.nbytes:,} B"
        rows.append((buffer.name, buffer.dtype, f"[{', '.join(sizes)}]", size, where))
    a, b, c, d = (max((len(row[column]) for row in rows), default=0) for column in range(4))
    return [f"  {row[0]:<{a}}  {row[1]:<{b}}  {row[2]:<{c}}  {row[3]:>{d}}  {row[4]}".rstrip() for row in rows]


def _kernel_lines(program: KernelProgram, number: int, kernel: Kernel) -> list[str]:
    grid = " x ".join(str(size) for size in kernel.blocks(program.batch_size) if size > 1) or "1"
    work = f"{kernel.flops:,} FLOP, " if kernel.flops else ""
    return [
        f"{number:>3}. {kernel.name}: {kernel.title}",
        f"     reads  {', '.join(kernel.reads)}",
        f"     writes {', '.join(kernel.writes)}",
        f"     {grid} blocks of {kernel.threads} threads, {work}{kernel.nbytes:,} B",
    ]
