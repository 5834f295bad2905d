"""Predictions to a file under a memory limit, killed in the middle, interrupted: flat memory, and the same bytes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import scripts

import flatout

pytestmark = pytest.mark.turns

_HEAD = """
import os, random, resource, signal, sys
import keras
import numpy as np
import flatout
from flatout.data.output import output_files as output
from flatout.data.files.page_cache import memory_status

os.chdir(sys.argv[1])
random.seed(1)  # Keras' function would import TensorFlow, too.
"""


def start(folder: Path, body: str) -> subprocess.Popen[str]:
    return scripts.start(_HEAD + body, str(folder), FLATOUT_FORCE="1")


def finished(folder: Path, body: str) -> str:
    process = start(folder, body)
    output, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    return output


def sparse_file(path: Path, rows: int, columns: int, every: int) -> None:
    """A large file that takes little: zeros, but for every so manyth row, which holds its own number."""
    with path.open("wb") as file:
        fields = {"shape": (rows, columns), "fortran_order": False, "descr": "<f4"}
        np.lib.format.write_array_header_1_0(file, fields)
        offset = file.tell()
        file.truncate(offset + rows * columns * 4)
    for row in range(0, rows, every):
        with path.open("r+b") as file:
            file.seek(offset + row * columns * 4)
            file.write(np.full(columns, row, "<f4").tobytes())


_UNDER_A_LIMIT = """
model = keras.Sequential([keras.layers.Input((1024,)), keras.layers.Dense(1, kernel_initializer="ones")])
# What libraries take at the first use of them shall not count.
flatout.predict(model, np.ones((2048, 1024), "float32"), out="small.npy", batch_size=256, verbose=0)
before = memory_status()
allowance = 330 * 2**20
limit = before["VmSize"] + allowance
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    np.load("x.npy", mmap_mode="r")
except OSError as error:
    print("cannot be mapped:", error.errno)
scores = flatout.predict(model, "x.npy", out="scores.npy", batch_size=256, verbose=0)
for row in (0, 1, 100_000, 200_000, 250_001):
    print(row, float(scores[row, 0]))
print(flatout.explain()[-1].engine, flatout.explain()[-1].steps)
print("grown:", (memory_status()["VmHWM"] - before["VmHWM"]) // 2**20)
"""


@pytest.mark.backend("torch")
@pytest.mark.slow
def test_a_file_three_times_larger_than_the_address_space_left(tmp_path: Path) -> None:
    rows = 251_000
    sparse_file(tmp_path / "x.npy", rows, 1024, every=100_000)
    try:
        lines = finished(tmp_path, _UNDER_A_LIMIT).splitlines()
    finally:
        (tmp_path / "x.npy").unlink()
    assert lines[0] == "cannot be mapped: 12"
    assert lines[1:6] == ["0 0.0", "1 0.0", f"100000 {1e5 * 1024}", f"200000 {2e5 * 1024}", "250001 0.0"]
    assert lines[6] == f"torch {-(-rows // 256)}"
    assert int(lines[7].split()[1]) < 330
    assert np.load(tmp_path / "scores.npy", mmap_mode="r").shape == (rows, 1)


_PREDICT = """
class Pause(keras.callbacks.Callback):
    def on_predict_batch_end(self, batch, logs=None):
        # What is synced after this step is what the next one finds on disk.
        output.SECONDS_BETWEEN_SYNCS = 0.0 if batch == STOP_AT - 1 else 60.0
        if batch == STOP_AT:
            print("there", flush=True)
            signal.pause()

output.SECONDS_BETWEEN_SYNCS = 0.0
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
callbacks = [Pause()] if STOP_AT is not None else []
flatout.predict(model, "x-*.npy", out="out.npy", batch_size=4, verbose=0, callbacks=callbacks)
print(flatout.explain()[-1].steps)
"""
_STEPS = 1251


def script(stop_at: int | None = None) -> str:
    return f"STOP_AT = {stop_at}\n" + _PREDICT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Input in three files, and what comes of it: predicted in one go, by this process."""
    x = np.random.default_rng(1).standard_normal((5003, 16)).astype("float32")
    for number, part in enumerate(np.split(x, [1000, 3500])):
        np.save(tmp_path / f"x-{number}.npy", part)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    with flatout.options(force=True):
        flatout.predict(model, x, out=tmp_path / "whole.npy", batch_size=4, verbose=0)
    return tmp_path


# What is on disk is the same for all backends, and so is what goes on from it.
@pytest.mark.slow
@pytest.mark.backend("jax")
def test_killed_in_the_middle_it_goes_on_to_the_same_bytes(folder: Path) -> None:
    process = start(folder, script(stop_at=400))
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.kill()
    process.communicate(timeout=60)
    assert not (folder / "out.npy").exists()
    done = json.loads((folder / "out.npy.partial.json").read_text())
    # The outputs of the step in whose callback it died are not yet written.
    assert (done["steps"], done["files"][0]["rows"]) == (400, 1600)
    assert finished(folder, script()).split() == [f"{_STEPS - 400}"]
    assert (folder / "out.npy").read_bytes() == (folder / "whole.npy").read_bytes()
    assert not list(folder.glob("*partial*"))


@pytest.mark.backend("jax")
@pytest.mark.slow
def test_killed_and_interrupted_at_any_moment_it_goes_on_to_the_same_bytes(folder: Path) -> None:
    manifest = folder / "out.npy.partial.json"

    def steps() -> int:
        return int(json.loads(manifest.read_text())["steps"]) if manifest.exists() else 0

    reached = 0
    for wanted, how in ((1, signal.SIGKILL), (200, signal.SIGINT)):
        process = start(folder, script())
        while process.poll() is None and steps() < wanted:
            time.sleep(0.003)
        process.send_signal(how)
        process.communicate(timeout=60)
        assert steps() >= reached or process.returncode == 0
        reached = steps()
    if not (folder / "out.npy").exists():
        assert finished(folder, script()).split() == [f"{_STEPS - reached}"]
    assert (folder / "out.npy").read_bytes() == (folder / "whole.npy").read_bytes()


_TABLE_UNDER_A_LIMIT = """
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(1, kernel_initializer="ones")])
settings = {"batch_size": 4096, "verbose": 0}
# What libraries take at the first use of them shall not count.
flatout.predict(model, "small.parquet", out="small.npy", **settings)
before = memory_status()
limit = before["VmSize"] + 330 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
class Pause(keras.callbacks.Callback):
    def on_predict_batch_end(self, batch, logs=None):
        output.SECONDS_BETWEEN_SYNCS = 0.0 if batch == STOP_AT - 1 else 60.0
        if batch == STOP_AT:
            print("there", flush=True)
            signal.pause()

callbacks = [Pause()] if STOP_AT is not None else []
flatout.predict(model, "table.parquet", out="scores.npy", callbacks=callbacks, **settings)
report = flatout.explain()[-1]
print(report.engine, report.steps)
print("grown:", (memory_status()["VmHWM"] - before["VmHWM"]) // 2**20)
"""


@pytest.mark.backend("torch")
@pytest.mark.slow
def test_a_table_twice_as_large_as_the_address_space_left(tmp_path: Path) -> None:
    """660 MB once decoded, in one row group: killed in the middle, it goes on."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows, stop_at = 2_600_000, 300
    values = pa.array((np.arange(rows) % 1000).astype("f4"))
    table = pa.table({f"c{number}": values for number in range(64)})
    parquet.write_table(table, tmp_path / "table.parquet", row_group_size=rows)
    parquet.write_table(table.slice(0, 2048), tmp_path / "small.parquet")
    del table
    process = start(tmp_path, f"STOP_AT = {stop_at}\n" + _TABLE_UNDER_A_LIMIT)
    assert process.stdout is not None
    first_line = process.stdout.readline()
    process.kill()
    _, errors = process.communicate(timeout=60)
    assert first_line == "there\n", errors
    lines = finished(tmp_path, "STOP_AT = None\n" + _TABLE_UNDER_A_LIMIT).splitlines()
    assert lines[0] == f"torch {-(-rows // 4096) - stop_at}"
    assert int(lines[1].split()[1]) < 330
    scores = np.load(tmp_path / "scores.npy", mmap_mode="r")
    np.testing.assert_array_equal(scores[:, 0], (np.arange(rows) % 1000).astype("f4") * 64)
