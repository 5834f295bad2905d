"""No races: a thread for each thread of a GPU under ThreadSanitizer, and blocks that may run in any order."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.base import disk_cache
from flatout.native.launch import launch_cpu
from flatout.native.launch.launch_cpu import compile_source, compiler
from flatout.native.launch.launcher import Launch, launches
from flatout.native.program import kernel_source
from flatout.native.program.kernel_program import KernelProgram
from flatout.native.program.kernel_source import cpu_source
from flatout.native.run.rate_table import RateTable
from flatout.native.run.session import Session
from flatout.native.staged.staged_program import staged_program

from .cases import PLAIN, Block, Case

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

_MAIN = (Path(__file__).parent / "sanitized_main.cpp").read_text()
_SANITIZER = ("-fsanitize=thread", "-g", "-pthread")
_FIBERS = kernel_source._text("shim/fibers_cpu.h")
_THREADS = (Path(__file__).parent / "sanitized_threads.h").read_text()
_CASE = Case(
    **{
        **vars(PLAIN),
        "shape": (4, 3),
        "first": "dense",
        "blocks": (Block(40, "gelu", "norm", 0.0, 1e-2), Block(5, "softmax", "inside", 1e-3, 0.0)),
        "optimizer": "adamw",
        "clip": ("clipnorm", 0.5),
        "batch_size": 6,
        "rows": 24,
        "weighted": True,
    }
)


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler (g++ or clang++)")
    program = tmp_path_factory.mktemp("tsan") / "probe"
    try:
        compile_source("int main() { return 0; }", program, *_SANITIZER)
    except RuntimeError:
        pytest.skip(f"{compiler()} has no ThreadSanitizer")
    if subprocess.run([program], capture_output=True).returncode:
        pytest.skip("ThreadSanitizer does not run on this machine")


def sanitized(
    source: str, program: KernelProgram, buffers: dict[str, Any], step: list[Launch], repeat: int, folder: Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, np.ndarray]]:
    """Run launches by the source of a program under the sanitizer; also gives what is in the buffers afterwards."""
    numbers = {name: number for number, name in enumerate(program.kernels)}
    ranges = [(buffer.pointer, buffer.nbytes) for buffer in buffers.values()]
    parts = [struct.pack("i", len(buffers))]
    for buffer in buffers.values():
        parts += [struct.pack("i", buffer.nbytes), buffer.numpy().tobytes()]
    parts.append(struct.pack("2i", len(step), repeat))
    for launch in step:
        sizes = (*launch.grid, launch.threads, launch.cluster, launch.shared_bytes, launch.rows, len(launch.arguments))
        parts.append(struct.pack("9i", numbers[launch.kernel], *sizes))
        for argument in launch.arguments:
            found = (-1, 0)
            for number, (pointer, size) in enumerate(ranges):
                if argument is not None and pointer <= argument < pointer + size:
                    found = (number, argument - pointer)
            parts.append(struct.pack("2i", *found))
    (folder / "job").write_bytes(b"".join(parts))
    assert _FIBERS in source
    (folder / "program").symlink_to(_compiled(source.replace(_FIBERS, _THREADS) + _MAIN))
    done = subprocess.run([folder / name for name in ("program", "job", "out")], capture_output=True, text=True)
    content, begin, found_there = b"" if done.returncode else (folder / "out").read_bytes(), 0, {}
    for name, buffer in buffers.items() if content else ():
        found_there[name] = np.frombuffer(content, buffer.dtype, buffer.nbytes // buffer.dtype.itemsize, begin)
        begin += buffer.nbytes
    return done, found_there


def _compiled(source: str) -> Path:
    """Kept from the last run of the tests, as the kernels themselves are."""
    digest = hashlib.sha256("\n".join([source, *_SANITIZER, str(compiler())]).encode()).hexdigest()
    file = disk_cache.folder_for_now("kernels") / digest
    if not file.exists():
        compile_source(source, file, *_SANITIZER)
    return file


def _own(session: Session) -> dict[str, Any]:
    layout = session.program.layout
    return {name: one for name, one in session.buffers.items() if name not in layout or layout[name].arena is None}


def _step(session: Session) -> list[Launch]:
    program = session.program
    return launches(program, program.steps["train"], session.buffers, program.batch_size)


def _session(launcher: Any) -> Session:
    model, (x, y, weight) = _CASE.build(), _CASE.data()
    model._symbolic_build(data_batch=(x[:6], y[:6]))
    program = staged_program(model, "train", _CASE.batch_size, x.dtype.name, y.dtype.name, True)
    session = Session(program, launcher)
    session.bind(x, y, weight)
    session.state("train").load()
    session.buffers["scalars"].part((2, 2), 0).assign(RateTable(model.optimizer, program.network.optimizer).rows(0, 2))
    return session


@pytest.mark.slow
@pytest.mark.usefixtures("works")
def test_no_race_and_the_same_bits_as_fibers(emulated: Any, tmp_path: Path) -> None:
    session = _session(emulated)
    source = cpu_source(session.program)
    done, found = sanitized(source, session.program, _own(session), _step(session), 2, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    session._run(_step(session), 2)
    for name, values in found.items():
        np.testing.assert_array_equal(values, session.buffers[name].numpy().reshape(-1), err_msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("works")
def test_a_missing_barrier_would_be_found(emulated: Any, tmp_path: Path) -> None:
    session = _session(emulated)
    source = cpu_source(session.program)
    barrier = "        __syncthreads();\n#pragma unroll"
    assert barrier in source
    without = source.replace(barrier, "#pragma unroll")
    done, _ = sanitized(without, session.program, _own(session), _step(session), 1, tmp_path)
    assert done.returncode != 0
    assert "data race" in done.stderr


def test_blocks_may_run_in_any_order(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [_session(emulated), _session(emulated)]
    sessions[0]._run(_step(sessions[0]), 2)
    forward, backward = "for (int n = 0; n < blocks; n++)", "for (int n = blocks - 1; n >= 0; n--)"
    assert forward in cpu_source(sessions[1].program)
    monkeypatch.setattr(launch_cpu, "cpu_source", lambda program: cpu_source(program).replace(forward, backward))
    sessions[1]._run(_step(sessions[1]), 2)
    for name, buffer in sessions[0].buffers.items():
        np.testing.assert_array_equal(buffer.numpy(), sessions[1].buffers[name].numpy(), err_msg=name)
