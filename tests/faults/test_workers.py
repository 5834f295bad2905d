"""Scripts whose worker processes fail, die or are interrupted end at once, say why, and leave nothing behind.

To start a script takes seconds, so that one of them has several faults one after another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import scripts

_HEAD = """
import os, signal, sys, time
import keras
import numpy as np
from flatout.data.batches.feed import feed


class Images(keras.utils.PyDataset):
    def __init__(self, how):
        super().__init__(workers=2, use_multiprocessing=True)
        self.how = how

    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 7:
            self.fail(index)
        return np.full((8, 4), index, "float32"), np.zeros((8, 1), "float32")

    def fail(self, index):
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "ended":
            os._exit(3)
        if self.how == "blocked":
            time.sleep(600)
        raise KeyError("no such image")


def train(how):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    source = feed(Images(how))
    started = []

    class Tell(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if not started:
                started.append(time.monotonic())
                print(how, os.getpid(), *[worker.process.pid for worker in source._source._pool._workers], flush=True)

    try:
        model.fit(source, epochs=2, verbose=0, callbacks=[Tell()])
    except Exception:
        print("after", time.monotonic() - started[0], flush=True)
        # TensorFlow reports errors of the source as its own.
        raise source.error from None
"""


def start(body: str) -> subprocess.Popen[str]:
    return scripts.start(_HEAD + body, PYTHONWARNINGS="ignore")


def exists(pid: int) -> bool:
    """Whether a process lives; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def all_end(pids: list[int], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(exists, pids))


@pytest.fixture(autouse=True)
def _shared_memory_is_as_before() -> Iterator[None]:
    before = set(Path("/dev/shm").iterdir())
    yield
    assert {
        path for path in Path("/dev/shm").iterdir() if path not in before and path.name.startswith("flatout")
    } == set()


@pytest.mark.backend("jax")
@pytest.mark.slow
def test_dead_workers_are_named_within_five_seconds_and_errors_show_the_users_line() -> None:
    process = start("""
for how in ("killed", "ended"):
    try:
        train(how)
    except RuntimeError as error:
        print(f"{type(error).__module__}.{type(error).__name__}: {error}", flush=True)

train("raised")
""")
    output, errors = process.communicate(timeout=150)
    lines = output.strip().splitlines()
    assert len(lines) == 8, errors
    pids = [[int(word) for word in lines[number].split()[2:]] for number in (0, 3, 6)]
    seconds = [float(lines[number].split()[1]) for number in (1, 4, 7)]
    assert max(seconds) < 5

    assert lines[2].startswith("flatout.base.errors.WorkerDied: A worker process of the PyDataset `Images` died.")
    assert "was killed by SIGKILL while it made batch 7" in lines[2]
    assert any(f"process {pid} " in lines[2] for pid in pids[0])
    assert "ended with exit code 3 while it made batch 7" in lines[5]
    assert any(f"process {pid} " in lines[5] for pid in pids[1])

    assert process.returncode == 1
    assert errors.strip().splitlines()[-2] == "KeyError: 'no such image'"
    assert ", in fail\n" in errors
    assert ", in __getitem__\n" in errors
    assert "which made batch 7" in errors
    assert all_end([pid for workers in pids for pid in workers], 10)


# The processes are the same on all backends, and stock `fit` on tensorflow waits where it does not look at signals.
@pytest.mark.slow
@pytest.mark.backend("jax")
def test_workers_end_with_a_script_that_is_interrupted_or_killed() -> None:
    # Forked before a backend has started any thread.
    process = start("""
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        train("blocked")
for _ in range(2):
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
""")
    assert process.stdout is not None
    (interrupted, *first), (killed, *second) = (
        [int(word) for word in process.stdout.readline().split()[1:]] for _ in range(2)
    )
    assert len(first) == len(second) == 2
    time.sleep(0.5)
    try:
        # As a terminal does: to the whole process group.
        os.killpg(interrupted, signal.SIGINT)
        assert process.stdout.readline() == f"{-signal.SIGINT}\n"
        assert all_end(first, 10)
    finally:
        os.kill(killed, signal.SIGKILL)
    assert all_end(second, 15)
    output, errors = process.communicate(timeout=30)
    assert output == f"{-signal.SIGKILL}\n"
    assert errors.strip().splitlines()[-1] == "KeyboardInterrupt"
