"""The kernels of a program as one source file, for CUDA or, over the other back end of the shim, for a CPU."""

from __future__ import annotations

import functools
from pathlib import Path

from .kernel_program import Kernel, KernelProgram

_FOLDER = Path(__file__).parents[1] / "kernels"
_COMMON = "shim/common.cuh"
# The shared device code of the staged form, in the order in which it builds up, and how calls of it begin; what has no
# such mark is always wanted.
_PARTS: dict[str, tuple[str, ...]] = {
    "gather": (),
    "affine": ("affine_",),
    "dense": ("dense_",),
    "activation": ("activation_", "softmax_"),
    "dropout": ("dropout<",),
    "batch_norm": ("batch_norm_",),
    "loss": (),
    "metrics": (),
    "optimizer": (),
}
# The same of the fused form; then its kernel, for one hidden layer or for several.
_FUSED_PARTS = ("numbers", "layout", "forward", "softmax", "backward", "update", "state")
_FUSED_STACK = ("fused_stack_layout", "fused_stack_exchange", "fused_stack")


@functools.cache
def _text(name: str) -> str:
    return (_FOLDER / name).read_text()


def shared_code(declarations: list[str], kernels: list[Kernel]) -> str:
    """The parts of the device code that these kernels use, and the types made for this network."""
    bodies = "".join(kernel.body for kernel in kernels)
    wanted = [name for name, marks in _PARTS.items() if not marks or any(mark in bodies for mark in marks)]
    return "\n".join([_text(_COMMON), *(_text(f"staged/{name}.cuh") for name in wanted), *declarations])


def fused_code(declarations: list[str], is_stack: bool) -> str:
    """The device code of the fused form, for one hidden layer or for several."""
    parts = (*(f"fused_{name}" for name in _FUSED_PARTS), *(_FUSED_STACK if is_stack else ("fused",)), "fused_data")
    return "\n".join([_text(_COMMON), *(_text(f"fused/{name}.cuh") for name in parts), *declarations])


def _shims(program: KernelProgram, end: str, *more: str) -> str:
    names = ("shim", *more, *(["cluster"] if program.form == "fused" else []))
    return "\n".join(_text(f"shim/{name}_{end}") for name in names)


def _body(program: KernelProgram) -> str:
    return "\n".join([program.prelude, *(kernel.code for kernel in program.kernels.values())])


def cuda_source(program: KernelProgram) -> str:
    """For NVRTC or nvcc; needs no header."""
    return "\n".join([_shims(program, "cuda.cuh"), _body(program)])


def cpu_source(program: KernelProgram) -> str:
    """For a C++17 compiler: the same kernels, with a table of them that `flatout_run` walks through."""
    calls, rows = [], []
    for name, kernel in program.kernels.items():
        values = [
            f"({parameter.declaration.rpartition(' ')[0]})a[{n}]" if parameter.buffer else f"*(int*)a[{n}]"
            for n, parameter in enumerate(kernel.parameters)
        ]
        calls.append(f"static void call_{name}(void** a) {{ {name}({', '.join(values)}); }}")
        rows.append(f'    {{"{name}", call_{name}, {"cluster" if kernel.cluster > 1 else "flatout"}_launch}},')
    table = "\n".join([*calls, "const FlatoutKernel flatout_kernels[] = {", *rows, "};"])
    return "\n".join([_shims(program, "cpu.h", "fibers"), _body(program), table, ""])
