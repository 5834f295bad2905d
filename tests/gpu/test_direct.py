"""On a GPU the rows of a file arrive unchanged, from page-locked slots, and host memory stays flat."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from flatout.data.device.pinned_memory import borrowed
from flatout.data.direct import cufile_reader as direct_cufile
from flatout.data.direct import load as direct_load
from flatout.data.direct.load_report import POSIX_DIRECT
from flatout.data.files.file_rows import open_rows
from flatout.data.files.page_cache import drop_from_cache

pytestmark = [pytest.mark.gpu, pytest.mark.backend("jax", "torch")]

BIG_ROWS, BIG_ROW = 1024, 2**20


def load(path: Path, make_sink: Any, start: int = 0, stop: int | None = None, **settings: Any) -> Any:
    """`load` of the rows `start` to `stop - 1` of a .npy file."""
    file = open_rows(path)
    return direct_load.load([file.part(start, file.shape[0] if stop is None else stop)], make_sink, **settings)


def sink() -> Any:
    name = keras.config.backend()
    return getattr(
        importlib.import_module(f"flatout.engines.{name}.sink"), {"jax": "JaxSink", "torch": "TorchSink"}[name]
    )


def on_host(tensor: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor)


def make_cold(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    drop_from_cache(descriptor)
    os.close(descriptor)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 1 GB whose rows tell their number."""
    path = tmp_path_factory.mktemp("direct") / "big.npy"
    out = np.lib.format.open_memmap(path, "w+", "u1", (BIG_ROWS, BIG_ROW))
    pattern = np.random.default_rng(0).integers(0, 256, BIG_ROW, dtype="u1")
    for row in range(BIG_ROWS):
        out[row] = pattern + np.uint8(row % 256)
    out.flush()
    return path


@pytest.mark.parametrize("dtype", ["u1", "?", "i2", "i4", "f2", "f4", "c8", ">f4"])
@pytest.mark.parametrize("slot_bytes", [20_000, 8 * 2**20])
def test_tensors_hold_the_rows_of_the_file(tmp_path: Path, dtype: str, slot_bytes: int) -> None:
    array = np.random.default_rng(0).integers(0, 100, (2001, 3, 70)).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    for is_cold in (True, False):
        if is_cold:
            make_cold(tmp_path / "x.npy")
        tensor, report = load(tmp_path / "x.npy", sink(), start=3, stop=1990, slot_bytes=slot_bytes)
        np.testing.assert_array_equal(on_host(tensor), array[3:1990])
        assert report.is_pinned, report
        assert "cuda" in str(tensor.device).lower()


def test_shards_and_long_rows_arrive(tmp_path: Path) -> None:
    arrays = [np.random.default_rng(seed).normal(size=(2 + seed, 5, 9000)).astype("f4") for seed in range(3)]
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"{number}.npy", array)
    paths = [tmp_path / f"{number}.npy" for number in range(3)]
    tensor, _ = direct_load.load([open_rows(path) for path in paths], sink(), slot_bytes=30_000)
    np.testing.assert_array_equal(on_host(tensor), np.concatenate(arrays))


def test_values_are_cast_on_the_way(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(3000, 50))
    np.save(tmp_path / "x.npy", array)
    tensor, _ = load(tmp_path / "x.npy", functools.partial(sink(), cast_to="float32"))
    np.testing.assert_array_equal(on_host(tensor), array.astype("float32"))


def test_host_memory_stays_flat_and_the_page_cache_empty(big: Path) -> None:
    # Loads the backend's kernels and locks the slab.
    load(big, sink(), stop=64)
    make_cold(big)
    tensor, report = load(big, sink())
    assert report.nbytes == BIG_ROWS * BIG_ROW
    assert report.is_pinned, report
    assert report.peak_rss_growth < 300e6, report
    if not {"o_direct", "warm"} & {why.code for why in report.reasons}:
        assert report.paths == {POSIX_DIRECT: report.nbytes}, report
        assert report.cached_after == 0, report
    expected = np.load(big, mmap_mode="r")
    for first in range(0, BIG_ROWS, 256):
        np.testing.assert_array_equal(on_host(tensor[first : first + 256]), expected[first : first + 256])


def test_every_load_of_many_is_right(big: Path) -> None:
    """Slots are used again some hundred times; one that is refilled too early would show."""
    expected = np.load(big, mmap_mode="r")[:128]
    for _ in range(20):
        tensor, _ = load(big, sink(), stop=128, slot_bytes=2**20)
        np.testing.assert_array_equal(on_host(tensor), expected)


def test_the_slab_is_page_locked_as_torch_and_cuda_see_it() -> None:
    keras.ops.zeros(3)
    with borrowed(2**20, pin=True) as slab:
        assert slab.is_pinned, slab.why_not
        if keras.config.backend() == "torch":
            import torch

            assert torch.from_numpy(slab.memory).is_pinned()


_READ_BY_CUFILE = """
import sys
import numpy as np
from flatout.data.direct import cufile_reader
from flatout.data.direct.load import load
from flatout.data.files.file_rows import open_rows
from flatout.engines.torch.sink import TorchSink
cufile_reader.unavailable = lambda: ""
file = open_rows(sys.argv[1])
tensor, report = load([file.part(5, file.shape[0])], TorchSink)
if report.engine != "cufile":
    sys.exit(f"cannot read these files: {report}")
expected = np.load(sys.argv[1])[5:]
np.testing.assert_array_equal(tensor.cpu().numpy(), expected)
assert abs(sum(report.paths.values()) - expected.nbytes) < 4, report
print(report)
"""


@pytest.mark.backend("torch")
def test_cufile_reads_the_same_bytes_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GPUDirect Storage cuFile reads by POSIX calls, which must be right all the same."""
    array = np.random.default_rng(0).integers(0, 256, (3001, 9000), dtype="u1")
    np.save(tmp_path / "x.npy", array)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", lambda path: True)  # Also nvidia-fs, without which cuFile still runs.
        why = direct_cufile.unavailable()
    if why:
        pytest.skip(why)
    # In a process of its own: where it cannot start, cuFile may wait for ever.
    source = str(Path(direct_cufile.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", _READ_BY_CUFILE, str(tmp_path / "x.npy")]
    try:
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("cuFile does not start here")
    if "cannot read these files" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
