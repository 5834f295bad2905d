"""Collects buffers and kernels while a network is lowered."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from flatout.native.model.c_expressions import Curve, identifier

from .kernel_program import ONE, Buffer, Grid, GridExtent, Kernel, Parameter, Role

THREADS = 256
_C_TYPES = {
    "float32": "float",
    "int32": "int",
    "float64": "double",
    "int64": "long long",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "bool": "bool",
}
# Types of data that the gather kernel reads.
READABLE = frozenset(_C_TYPES)


class KernelDraft:
    """A kernel that is being written: `read` and `write` name its arguments, `call` or `done` adds it."""

    def __init__(self, builder: Builder, name: str, title: str):
        self._builder = builder
        self.name = name
        self.title = title
        self._parameters: list[Parameter] = []
        self._reads: list[str] = []
        self._writes: list[str] = []
        self._moved = 0

    def read(self, parameter: str, buffer: str | None, moved: int | None = None) -> str:
        """Take a buffer to read; `moved` bytes of it if not all. Without a buffer the argument is null."""
        return self._take(parameter, buffer, True, moved)

    def reads(self, **buffers: str | None) -> list[str]:
        """Take buffers to read, whole, by parameter."""
        return [self.read(parameter, buffer) for parameter, buffer in buffers.items()]

    def write(self, parameter: str, buffer: str | None, also_read: bool = False, moved: int | None = None) -> str:
        """Take a buffer to write, or to change."""
        if also_read and buffer is not None:
            self._reads.append(buffer)
            self._moved += self._builder.layout[buffer].nbytes if moved is None else moved
        return self._take(parameter, buffer, False, moved)

    def writes(self, **buffers: str | None) -> list[str]:
        """Take buffers to write, whole, by parameter."""
        return [self.write(parameter, buffer) for parameter, buffer in buffers.items()]

    def _take(self, parameter: str, buffer: str | None, is_const: bool, moved: int | None) -> str:
        if buffer is None:
            return "nullptr"
        found = self._builder.layout[buffer]
        (self._reads if is_const else self._writes).append(buffer)
        self._moved += found.nbytes if moved is None else moved
        kind = f"{'const ' if is_const else ''}{_C_TYPES[found.dtype]}*"
        self._parameters.append(Parameter(f"{kind} {parameter}", buffer))
        return parameter

    def call(self, function: str, arguments: Sequence[str], grid: Grid, flops: int = 0, takes_rows: bool = True) -> str:
        """Add the kernel, as one call of a device function; returns its name."""
        return self.done([f"{function}({', '.join(arguments)});"], grid, flops, takes_rows)

    def done(self, lines: Sequence[str], grid: Grid, flops: int = 0, takes_rows: bool = True) -> str:
        """Add the kernel; returns its name."""
        if takes_rows:
            self._parameters.append(Parameter("int rows", None))
        body = "\n".join(f"    {line}" for line in lines)
        reads, writes = (tuple(dict.fromkeys(names)) for names in (self._reads, self._writes))
        known = self._builder.kernels
        # Names of layers can be such that two kernels would have the same one.
        for name in itertools.chain([self.name], (f"{self.name}_{number}" for number in itertools.count(2))):
            kernel = Kernel(
                name, self.title, body, tuple(self._parameters), reads, writes, grid, THREADS, flops, self._moved
            )
            if known.setdefault(name, kernel) == kernel:
                break
        return name


class Builder:
    """The buffers, kernels and shared declarations of a program in the making."""

    def __init__(self, batch_size: int):
        self.batch_size = batch_size
        self.layout: dict[str, Buffer] = {}
        self.kernels: dict[str, Kernel] = {}
        self.declarations: dict[str, str] = {}

    def buffer(
        self,
        name: str,
        shape: tuple[int, ...],
        role: Role,
        dtype: str = "float32",
        arena: str | None = None,
        offset: int = 0,
    ) -> str:
        """Add a buffer, unless it is there; returns its name."""
        self.layout.setdefault(name, Buffer(name, shape, dtype, role, arena, offset))
        return name

    def scratch(self, name: str, size: int) -> str:
        """Room for a number of floats, shared by all who ask for that name."""
        known = self.layout.get(name)
        if known is None or math.prod(known.shape) < size:
            self.layout[name] = Buffer(name, (size,), "float32", "scratch")
        return name

    def kernel(self, name: str, title: str) -> KernelDraft:
        return KernelDraft(self, identifier(name), title)

    def curve(self, name: str, curve: Curve) -> str:
        """The C++ type of an activation."""
        if curve.is_linear:
            return "Linear"
        kind = f"Curve_{identifier(name)}"
        self.declarations[kind] = (
            f"// {curve.name}\n"
            f"struct {kind} {{\n"
            f"    DEVICE float value(float z) {{ return {curve.value}; }}\n"
            f"    DEVICE float slope(float z, float y) {{ return {curve.slope}; }}\n"
            "};\n"
        )
        return kind


def rows_of(lines: int) -> str:
    """The number of rows, as a C expression, where each sample has so many."""
    return "rows" if lines == 1 else f"rows * {lines}"


def per_value(size: int) -> Grid:
    """A thread for each value of each row."""
    return GridExtent(per_row=size, tile=THREADS), ONE, ONE


def per_row(lines: int, lanes: int) -> Grid:
    """`lanes` threads for each row."""
    return GridExtent(per_row=lines, tile=THREADS // lanes), ONE, ONE


def per_block(count: int, tile: int = 1) -> Grid:
    """A block for so many things of a fixed number."""
    return GridExtent(fixed=count, tile=tile), ONE, ONE


def lanes_for(width: int) -> int:
    """Threads of a row of so many values: a power of two, 64 at most."""
    return min(64, 1 << max(0, math.ceil(math.log2(max(1, width))) - 2))
