"""A process that raises, is killed or stopped ends its group within 30 s, by name; a group may begin again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import group_cases as cases
import keras
import numpy as np
import pytest
from scripts import start

import flatout

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_device"), pytest.mark.turns]


def fit(folder: Path, accident: str, restarts: int = 0, callbacks: Any = (), epochs: int = 4) -> Any:
    model = cases.network()
    data = cases.Batches(folder, accident, in_epoch=2)
    with flatout.options(launcher="local"):
        flatout.fit(model, data, epochs=epochs, shuffle=False, verbose=0, workers=2, restarts=restarts,
                    callbacks=list(callbacks))  # fmt: skip
    return model


def assert_nobody_is_left(folder: Path) -> None:
    processes = [int(note.name.partition("-")[2]) for note in folder.glob("process-*")]
    assert len(processes) >= 2
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.parametrize(
    ("accident", "says"),
    [
        ("raise", "ValueError: row 47 is broken"),
        pytest.param("SIGKILL", "It was killed by SIGKILL", marks=pytest.mark.cluster),
        pytest.param("SIGSTOP", "Nothing has been heard of it", marks=pytest.mark.cluster),
    ],
)
def test_who_is_lost_is_named_and_nobody_is_left(tmp_path: Path, accident: str, says: str) -> None:
    with pytest.raises(flatout.GroupFailed, match=says) as raised:
        fit(tmp_path, accident)
    assert raised.value.rank == 1
    assert time.time() - float((tmp_path / "had it").read_text()) < 30
    assert_nobody_is_left(tmp_path)


@pytest.mark.parametrize("keeps", ["BackupAndRestore", pytest.param("ModelCheckpoint", marks=pytest.mark.cluster)])
def test_a_group_that_begins_again_ends_as_if_nothing_had_happened(
    tmp_path: Path, keeps: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if keeps == "BackupAndRestore":
        keeper = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    else:
        keeper = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", save_weights_only=True)
    model = fit(tmp_path, "SIGKILL", restarts=1, callbacks=[keeper])
    assert "Worker 1 of 2" in capfd.readouterr().err
    assert (tmp_path / "had it").exists()
    assert model.history.epoch in ([1, 2, 3], [2, 3])  # Batches are read ahead of the epoch that they are for.
    undisturbed = cases.network()
    flatout.fit(undisturbed, cases.Batches(), epochs=4, shuffle=False, verbose=0)
    for ours, expected in zip(model.get_weights(), undisturbed.get_weights(), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    assert_nobody_is_left(tmp_path)


_INTERRUPTED = """
import os, sys
import keras, numpy as np, flatout

class Told(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("epoch", os.getpid(), flush=True)

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
before = model.get_weights()[0].copy()
try:
    with flatout.options(launcher="local"):
        flatout.fit(model, np.ones((40, 4)), np.ones(40), epochs=10**6, verbose=0, workers=int(sys.argv[1]),
                    callbacks=[Told()])
except KeyboardInterrupt:
    print("learned", bool((model.get_weights()[0] != before).any()), len(model.history.epoch) > 0)
"""


def _in_training(workers: int) -> tuple[Any, int]:
    """A script that trains, and the first of its worker processes."""
    script = start(_INTERRUPTED, str(workers), XLA_FLAGS="")
    assert script.stdout is not None
    for line in script.stdout:
        if line.startswith("epoch"):
            return script, int(line.split()[1])
    raise AssertionError(script.communicate()[1])


def _runs(process: int) -> bool:
    try:
        # Whoever is its parent now may leave it as a zombie.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_end_with_the_process_of_the_user() -> None:
    script, worker = _in_training(2)
    script.kill()
    script.communicate()
    until = time.monotonic() + 20
    while _runs(worker):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.cluster
def test_warnings_of_others_are_told_once(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="In another worker process: UserWarning: row 47 is odd") as told:
        fit(tmp_path, "warn", epochs=3)
    assert len([one for one in told if "row 47" in str(one.message)]) == 1


@pytest.mark.cluster
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_leaves_what_was_learned_in_the_model(workers: int) -> None:
    script, _ = _in_training(workers)
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=60)
    assert out.splitlines()[-1] == "learned True True", err
