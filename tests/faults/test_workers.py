"""Scripts whose worker processes fail, die or are interrupted end at once, say why, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parents[2] / "src"

_SCRIPT = """
import os, signal, sys, time
import keras
import numpy as np
from flatout.data.feed import feed


class Images(keras.utils.PyDataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        if index == 7:
            self.fail(index)
        return np.full((8, 4), index, "float32"), np.zeros((8, 1), "float32")

    def fail(self, index):
        {failure}


model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
source = feed(Images(workers=2, use_multiprocessing=True))
started = []


class Tell(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if not started:
            started.append(time.monotonic())
            print("workers", *[worker.process.pid for worker in source._source._pool._workers], flush=True)


try:
    if {by_batches}:
        for _ in source.batches():
            Tell().on_train_batch_end(0)
    else:
        model.fit(source, epochs=2, verbose=0, callbacks=[Tell()])
except Exception as error:
    print("after", time.monotonic() - started[0], flush=True)
    # TensorFlow reports errors of the source as its own.
    raise source.error from None
"""


def script(failure: str, by_batches: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(_SOURCES)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT.format(failure=failure, by_batches=by_batches)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("workers"):
            return [int(word) for word in line.split()[1:]]
    pytest.fail(f"the script ended early: {process.stderr.read() if process.stderr else ''}")


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
def _shared_memory_is_as_before() -> object:
    before = set(Path("/dev/shm").iterdir())
    yield
    assert {
        path for path in Path("/dev/shm").iterdir() if path not in before and path.name.startswith("flatout")
    } == set()


def test_the_traceback_of_an_error_shows_the_users_line() -> None:
    process = script('raise KeyError("no such image")')
    workers = workers_of(process)
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 1
    assert errors.strip().splitlines()[-2:][0] == "KeyError: 'no such image'"
    assert ", in fail\n" in errors
    assert ", in __getitem__\n" in errors
    assert "which made batch 7" in errors
    assert all_end(workers, 10)


def test_a_killed_worker_is_named_within_five_seconds() -> None:
    process = script("os.kill(os.getpid(), signal.SIGKILL)")
    workers = workers_of(process)
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 1
    assert float(output.split()[-1]) < 5
    message = errors.strip().splitlines()[-1]
    assert message.startswith("flatout.data.workers.WorkerDied: A worker process of the PyDataset `Images` died.")
    assert "was killed by SIGKILL while it made batch 7" in message
    assert any(f"process {pid} " in message for pid in workers)
    assert all_end(workers, 10)


def test_a_worker_that_exits_is_named_too() -> None:
    process = script("os._exit(3)")
    workers_of(process)
    _, errors = process.communicate(timeout=90)
    assert "ended with exit code 3 while it made batch 7" in errors.strip().splitlines()[-1]


def test_ctrl_c_leaves_no_worker(backend: str) -> None:
    # In stock `fit` on tensorflow the main thread waits inside TensorFlow, which does not look at signals.
    process = script("time.sleep(600)", by_batches=backend == "tensorflow")
    workers = workers_of(process)
    time.sleep(0.5)
    # As a terminal does: to the whole process group.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    assert all_end(workers, 10)


def test_workers_do_not_outlive_a_parent_that_was_killed() -> None:
    process = script("time.sleep(600)")
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=30)
    assert all_end(workers, 15)
