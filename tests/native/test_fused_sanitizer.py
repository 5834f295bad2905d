"""No races in the fused kernel: a thread of the CPU for each thread of a cluster, under ThreadSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flatout.native.fused.fused_program import TRAIN
from flatout.native.launch.launcher import launches
from flatout.native.program.kernel_source import cpu_source
from flatout.native.run.rate_table import RateTable
from flatout.native.run.session import Session

from .cases import Block, Case
from .fused_cases import case_of, fused_session, hidden
from .test_kernels_sanitizer import sanitized, works

pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow, pytest.mark.usefixtures("works")]
__all__ = ["works"]

_CASE = case_of(shape=(60,), blocks=(Block(16, "relu", "inside", 0.0, 0.0),), rows=64)
_STEPS = 3


def _ready(launcher: Any, case: Case = _CASE) -> Session:
    """A session whose fused kernel can be launched."""
    session = fused_session(case, launcher)
    session.state("train").load()
    optimizer = session.program.network.optimizer
    assert optimizer is not None
    assert session.fused is not None
    table = RateTable(session.program.model.optimizer, optimizer).rows(0, _STEPS)
    session.buffers["scalars"].part((_STEPS, 2), 0).assign(table)
    session.fused._split()
    session.fused._buffers["fused/span"].assign(np.array([0, _STEPS], np.int32))
    return session


def _run(session: Session, source: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, np.ndarray]]:
    fused = session.fused
    assert fused is not None
    every = {**session.buffers, **fused._buffers}
    names = {parameter.buffer for parameter in fused.program.kernels[TRAIN].parameters}
    buffers = {name: buffer for name, buffer in every.items() if name in names}
    return sanitized(source, fused.program, buffers, launches(fused.program, [TRAIN], every, 1), 1, folder)


# Four hidden layers are the fewest of which two take turns with the same memory.
_STACK = case_of(shape=(30,), blocks=hidden(16, 16, 12, 16), rows=64, outputs=5)
_TWO_LAYERS = case_of(**{**vars(_STACK), "blocks": hidden(16, 16)})


@pytest.mark.parametrize(
    ("case", "buffers"),
    [(case_of(**{**vars(_CASE), "outputs": 5}), 2), (_STACK, 2), (_TWO_LAYERS, 1)],
    ids=["5 classes", "four layers", "two layers, one batch"],
)
def test_no_race_and_the_same_bits_as_fibers(emulated: Any, tmp_path: Path, case: Case, buffers: int) -> None:
    session = _ready(emulated, case)
    assert session.fused is not None
    done, found = _run(session, _with_buffers(cpu_source(session.fused.program), buffers), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    session.fused._launch([TRAIN], _CASE.batch_size)
    buffers = {**session.buffers, **session.fused._buffers}
    assert found["fused/failed"][0] == 0
    for name in ("weights", "momentum", "velocity", "fused/row_sums"):
        np.testing.assert_array_equal(found[name], buffers[name].numpy().reshape(-1), name)


def _with_buffers(source: str, count: int) -> str:
    """The kernel of a model that leaves room for so many batches of x."""
    assert "BUFFERS = 2;" in source
    return source.replace("BUFFERS = 2;", f"BUFFERS = {count};")


# Each of them keeps a reader from a writer of another lane, warp or block; without it the sanitizer must see the race.
@pytest.mark.parametrize(
    "needed",
    [
        "arrival_wait(logits_ready, slot);",
        "arrival_wait(x_ready, parity);",
        "block_barrier();  // the gradient of all rows",
    ],
)
def test_a_missing_wait_would_be_found(emulated: Any, tmp_path: Path, needed: str) -> None:
    # With few classes some lanes push nothing, and so are not ordered by what comes back.
    session = _ready(emulated, case_of(**{**vars(_CASE), "outputs": 5}))
    assert session.fused is not None
    source = cpu_source(session.fused.program)
    assert needed in source
    done, _ = _run(session, source.replace(needed, needed.partition(";")[2], 1), tmp_path)
    assert done.returncode != 0
    # The emulation may notice before the sanitizer does, that a barrier is used before the last phase of it is over.
    assert "data race" in done.stderr or "armed twice" in done.stderr


@pytest.mark.parametrize(
    ("needed", "buffers"),
    [
        ("cluster_wait();  // for the last step's end", 2),
        ("cluster_wait();  // for the others", 1),
    ],
)
def test_a_missing_wait_between_layers_would_be_found(emulated: Any, tmp_path: Path, needed: str, buffers: int) -> None:
    session = _ready(emulated, _TWO_LAYERS)
    assert session.fused is not None
    source = _with_buffers(cpu_source(session.fused.program), buffers)
    assert needed in source
    done, _ = _run(session, source.replace(needed, needed[needed.index(";") :], 1), tmp_path)
    # The sanitizer remembers four readers of a word: whether one that matters is among them depends on the threads.
    for _ in range(3):
        if done.returncode == 0:
            command = [tmp_path / name for name in ("program", "job", "out")]
            done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "data race" in done.stderr or "armed twice" in done.stderr
