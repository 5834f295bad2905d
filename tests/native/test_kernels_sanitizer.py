"""No races: a thread for each thread of a GPU under ThreadSanitizer, and blocks that may run in any order."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.native.launch.launch_cpu import CpuLauncher, compile_source, compiler
from flatout.native.launch.launcher import Launch, launches
from flatout.native.program.kernel_source import cpu_source
from flatout.native.run.rate_table import RateTable
from flatout.native.run.session import Session
from flatout.native.staged.staged_program import staged_program

from .cases import PLAIN, Block, Case

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]

_MAIN = (Path(__file__).parent / "sanitized_main.cpp").read_text()
_SANITIZER = ("-fsanitize=thread", "-g", "-DFLATOUT_THREADS")
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


def _job(session: Session, repeat: int) -> tuple[bytes, list[str]]:
    """The buffers and the launches of a training step, as `sanitized_main.cpp` reads them."""
    layout = session.program.layout
    own = [name for name in session.buffers if name not in layout or layout[name].arena is None]
    ranges = [(session.buffers[name].pointer, session.buffers[name].nbytes) for name in own]
    parts = [struct.pack("i", len(own))]
    for name in own:
        content = session.buffers[name].numpy().tobytes()
        parts += [struct.pack("i", len(content)), content]
    step = _step(session)
    parts.append(struct.pack("2i", len(step), repeat))
    numbers = {name: number for number, name in enumerate(session.program.kernels)}
    for launch in step:
        parts.append(
            struct.pack("7i", numbers[launch.kernel], *launch.grid, launch.threads, launch.rows, len(launch.arguments))
        )
        for argument in launch.arguments:
            found = (-1, 0)
            for number, (pointer, size) in enumerate(ranges):
                if argument is not None and pointer <= argument < pointer + size:
                    found = (number, argument - pointer)
            parts.append(struct.pack("2i", *found))
    return b"".join(parts), own


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
    job, own = _job(session, 2)
    (tmp_path / "job").write_bytes(job)
    compile_source(cpu_source(session.program) + _MAIN, tmp_path / "program", *_SANITIZER)
    done = subprocess.run([tmp_path / "program", tmp_path / "job", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    session._module.run(_step(session), 2)
    content, begin = (tmp_path / "out").read_bytes(), 0
    for name in own:
        buffer = session.buffers[name]
        found = np.frombuffer(content, buffer.dtype, int(np.prod(buffer.shape)), begin)
        np.testing.assert_array_equal(found, buffer.numpy().reshape(-1), err_msg=name)
        begin += buffer.nbytes


@pytest.mark.slow
@pytest.mark.usefixtures("works")
def test_a_missing_barrier_would_be_found(emulated: Any, tmp_path: Path) -> None:
    session = _session(emulated)
    source = cpu_source(session.program)
    barrier = "        __syncthreads();\n#pragma unroll"
    assert barrier in source
    compile_source(source.replace(barrier, "#pragma unroll") + _MAIN, tmp_path / "program", *_SANITIZER)
    (tmp_path / "job").write_bytes(_job(session, 1)[0])
    done = subprocess.run([tmp_path / "program", tmp_path / "job", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "data race" in done.stderr


def test_blocks_may_run_in_any_order(emulated: Any) -> None:
    sessions = [_session(launcher) for launcher in (emulated, CpuLauncher("-DFLATOUT_REVERSED"))]
    for session in sessions:
        session._module.run(_step(session), 2)
    for name, buffer in sessions[0].buffers.items():
        np.testing.assert_array_equal(buffer.numpy(), sessions[1].buffers[name].numpy(), err_msg=name)
