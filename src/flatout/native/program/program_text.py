"""A program in words: the step as a numbered list of kernels, with its buffers, work and traffic."""

from __future__ import annotations

from collections.abc import Iterable

from .kernel_program import Buffer, Kernel, KernelProgram, StepName

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


def _buffer_lines(buffers: Iterable[Buffer]) -> list[str]:
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
