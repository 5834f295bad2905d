"""What `load` brings is what NumPy reads from the file, by every path; damaged files end in one clear error."""

from __future__ import annotations

import collections
import ctypes
import errno
import functools
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.base.errors import UnreadableFile
from flatout.data.device.sinks import DeviceMemory, HostSink
from flatout.data.direct import cufile_reader as direct_cufile
from flatout.data.direct import kvikio_reader as direct_kvikio
from flatout.data.direct import load as direct_load
from flatout.data.direct import posix_reader as direct_posix
from flatout.data.direct.load_report import BUFFERED, CUFILE, KVIKIO, POSIX_DIRECT
from flatout.data.direct.slots import share_out
from flatout.data.files.file_rows import open_rows
from flatout.data.files.page_cache import cached_bytes, drop_from_cache

pytestmark = pytest.mark.turns

DTYPES = ["u1", "i1", "?", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8", "<c8", ">f4", ">i8", "<U3", "<M8[s]"]


def save(path: Path, array: np.ndarray, version: int = 1, padding: int = 0) -> Path:
    """Like `np.save`, with a header of any version and length."""
    descr = np.lib.format.dtype_to_descr(array.dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {array.shape!r}}}" + " " * padding + "\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + array.tobytes())
    return path


def load(
    paths: Path | list[Path], make_sink: Any = HostSink, start: int = 0, stop: int | None = None, **settings: Any
) -> Any:
    """`load` of the rows `start` to `stop - 1` of .npy files."""
    files, parts, before = [open_rows(path) for path in ([paths] if isinstance(paths, Path) else paths)], [], 0
    for file in files:
        first, last = max(start - before, 0), file.shape[0] if stop is None else min(stop - before, file.shape[0])
        parts += [file.part(first, last)] if first < last else []
        before += file.shape[0]
    return direct_load.load(parts or [files[0].part(0, 0)], make_sink, **settings)


def make_cold(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    drop_from_cache(descriptor)
    os.close(descriptor)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Every byte pattern that the dtype has a use for."""
    generator = np.random.default_rng(len(shape))
    kind = np.dtype(dtype)
    if kind.kind == "U":
        return generator.choice(["", "a", "bcd"], shape).astype(kind)
    if kind.kind in "?b":
        return generator.integers(0, 2, shape).astype(kind)
    return generator.integers(-100, 100, shape).astype(kind)


@pytest.fixture
def sink_of_backend(backend: str) -> Any:
    name = {"jax": "JaxSink", "torch": "TorchSink", "tensorflow": "TensorFlowSink"}[backend]
    return getattr(importlib.import_module(f"flatout.engines.{backend}.sink"), name)


@settings(max_examples=80, deadline=None)
@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple),
    scale=st.sampled_from([1, 50]),
    dtype=st.sampled_from(DTYPES),
    version=st.integers(1, 3),
    padding=st.integers(0, 300),
    slot_pages=st.integers(1, 5),
    threads=st.integers(1, 8),
    shards=st.lists(st.floats(0, 1), max_size=3),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    is_cold=st.booleans(),
)
def test_rows_equal_what_numpy_reads(
    shape, scale, dtype, version, padding, slot_pages, threads, shards, bounds, is_cold
) -> None:
    array = numbers((shape[0] * scale, *shape[1:]), dtype)
    cuts = [0, *sorted(round(share * len(array)) for share in shards), len(array)]
    start, stop = sorted(round(share * len(array)) for share in bounds)
    # Reading the header alone warms up a file as small as these.
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(direct_posix, "is_cold", lambda path, if_unknown: is_cold),
    ):
        paths = []
        for number, (first, last) in enumerate(itertools.pairwise(cuts)):
            paths.append(save(Path(folder, f"{number}.npy"), array[first:last], version, padding))
        slot_bytes = slot_pages * direct_posix.ALIGNMENT
        rows, report = load(paths, start=start, stop=stop, threads=threads, slot_bytes=slot_bytes)
        expected = np.concatenate([np.load(path) for path in paths])[start:stop]
    np.testing.assert_array_equal(rows, expected)
    assert rows.dtype == expected.dtype.newbyteorder("=")
    assert sum(report.paths.values()) == report.nbytes == expected.nbytes


@pytest.mark.parametrize("shape", [(3, 70_000), (2, 3, 9000), (40_000,), (1, 1, 1, 20_000)])
def test_rows_longer_than_a_slot_are_read_in_parts(
    tmp_path: Path, shape: tuple[int, ...], sink_of_backend: Any
) -> None:
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    np.save(tmp_path / "x.npy", array)
    for make_sink in (HostSink, sink_of_backend):
        rows, _ = load(tmp_path / "x.npy", make_sink, slot_bytes=4 * direct_posix.ALIGNMENT)
        np.testing.assert_array_equal(np.asarray(rows), array)


def test_a_single_value_may_be_larger_than_a_slot(tmp_path: Path) -> None:
    array = np.frombuffer(np.random.default_rng(0).bytes(3 * 2_000_001), "V2000001")
    np.save(tmp_path / "x.npy", array)
    rows, _ = load(tmp_path / "x.npy", slot_bytes=10_000)
    assert rows.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["u1", "i1", "?", "i2", "i4", "f2", "f4", "c8", ">f4", "u2", "u4"])
def test_tensors_hold_the_rows_of_the_file(tmp_path: Path, dtype: str, sink_of_backend: Any, backend: str) -> None:
    array = numbers((501, 3, 7), dtype)
    np.save(tmp_path / "x.npy", array)
    make_cold(tmp_path / "x.npy")
    tensor, report = load(tmp_path / "x.npy", sink_of_backend, start=3, stop=490, slot_bytes=20_000, threads=3)
    np.testing.assert_array_equal(np.asarray(tensor), array[3:490])
    assert type(tensor).__module__.startswith(("jax", "torch", "tensorflow"))
    assert report.nbytes == array[3:490].nbytes
    if not (backend == "torch" and dtype in ("u2", "u4")):  # which Keras widens on torch
        assert np.asarray(tensor).dtype == array.dtype.newbyteorder("=")


def test_tensors_are_cast_as_they_arrive(tmp_path: Path, sink_of_backend: Any) -> None:
    array = np.random.default_rng(0).normal(size=(300, 5))
    np.save(tmp_path / "x.npy", array)
    tensor, _ = load(tmp_path / "x.npy", functools.partial(sink_of_backend, cast_to="float32"), slot_bytes=20_000)
    np.testing.assert_array_equal(np.asarray(tensor), array.astype("float32"))
    assert np.asarray(tensor).dtype == np.float32


def test_tensors_do_not_alias_the_slots(tmp_path: Path, sink_of_backend: Any) -> None:
    first, second = np.full((64, 4096), 1, "u1"), np.full((64, 4096), 2, "u1")
    np.save(tmp_path / "1.npy", first)
    np.save(tmp_path / "2.npy", second)
    tensor, _ = load(tmp_path / "1.npy", sink_of_backend)
    load(tmp_path / "2.npy", sink_of_backend)
    np.testing.assert_array_equal(np.asarray(tensor), first)


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.zeros(2, "M8[s]"), np.zeros(2, "i4,f4")], ids=str)
def test_what_is_no_number_is_refused_by_tensors(tmp_path: Path, array: np.ndarray, sink_of_backend: Any) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(UnreadableFile, match=r"cannot become a .* tensor. Received: dtype"):
        load(tmp_path / "x.npy", sink_of_backend)


def test_rows_go_into_a_memory_map(tmp_path: Path) -> None:
    array = numbers((400, 30), "<f4")
    np.save(tmp_path / "x.npy", array)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", "float32", array.shape)
    rows, _ = load(tmp_path / "x.npy", functools.partial(HostSink, out=out))
    assert rows is out
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array)


# Damaged and unfit files


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, is_cold: bool) -> None:
    path = save(tmp_path / "x.npy", np.zeros((4000, 100), "float32"))
    if is_cold:
        make_cold(path)

    class Truncating(HostSink):
        def write(self, at: tuple[int, ...], block: np.ndarray) -> Callable[[], None]:
            os.truncate(path, 300)
            return super().write(at, block)

    with pytest.raises(UnreadableFile, match="shrank while it was read"):
        load(path, Truncating, threads=1, slot_bytes=30_000)
    assert not reader_threads()


def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", np.zeros((4000, 100), "float32"))
    other = save(tmp_path / "other.npy", np.ones((4000, 100), "float32"))

    class Replacing(HostSink):
        def write(self, at: tuple[int, ...], block: np.ndarray) -> Callable[[], None]:
            if other.exists():
                other.replace(path)
            return super().write(at, block)

    with pytest.raises(UnreadableFile, match="was replaced while it was read"):
        load(path, Replacing, threads=1, slot_bytes=30_000)
    assert not reader_threads()


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    file = open_rows(save(tmp_path / "x.npy", np.zeros(3)))
    file.path.unlink()
    with pytest.raises(UnreadableFile, match=r"x.npy cannot be read: No such file"):
        direct_load.load([file])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", np.zeros(3))
    path.chmod(0)
    with pytest.raises(UnreadableFile, match="cannot be read: Permission denied"):
        load(path)


# The paths


def test_cold_files_are_read_past_the_page_cache_and_warm_ones_from_it(tmp_path: Path) -> None:
    array = np.ones((3000, 1000), "u1")
    np.save(tmp_path / "x.npy", array)
    files = [open_rows(tmp_path / "x.npy")]
    _, warm = direct_load.load(files)
    assert warm.paths == {BUFFERED: array.nbytes}
    assert [why.code for why in warm.reasons] == ["warm"]
    make_cold(tmp_path / "x.npy")
    _, cold = direct_load.load(files)
    assert cold.paths == {POSIX_DIRECT: array.nbytes}
    assert cold.reasons == ()
    assert (cold.cached_before, cold.cached_after) == (0, 0)
    assert str(cold).startswith("3.0 MB in ")


@pytest.mark.parametrize("refused", ["open", "read"])
def test_a_refused_o_direct_is_read_buffered_and_leaves_no_cache(
    tmp_path: Path, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = numbers((3000, 1000), "u1")
    np.save(tmp_path / "x.npy", array)
    make_cold(tmp_path / "x.npy")
    really_open, really_read = os.open, os.preadv
    direct = set()

    def open_(path: Any, flags: int, *rest: Any) -> int:
        if flags & os.O_DIRECT and refused == "open":
            raise OSError(errno.EINVAL, "Invalid argument")
        descriptor = really_open(path, flags, *rest)
        (direct.add if flags & os.O_DIRECT else direct.discard)(descriptor)
        return descriptor

    def preadv(descriptor: int, *rest: Any) -> int:
        if descriptor in direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return really_read(descriptor, *rest)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "preadv", preadv)
    rows, report = load(tmp_path / "x.npy")
    np.testing.assert_array_equal(rows, array)
    assert report.paths == {BUFFERED: array.nbytes}
    assert [why.code for why in report.reasons] == ["o_direct"]
    assert report.cached_after is not None
    # Some pages may be read ahead after they were dropped.
    assert report.cached_after < array.nbytes / 2


def test_data_that_the_header_leaves_unaligned_are_read_buffered(tmp_path: Path) -> None:
    array = numbers((3000, 100), "<f8")
    path = save(tmp_path / "x.npy", array)
    if path.stat().st_size % 8 == 0:
        save(path, array, padding=1)
    make_cold(path)
    rows, report = load(path)
    np.testing.assert_array_equal(rows, array)
    assert [why.code for why in report.reasons] == ["unaligned"]


def test_an_error_of_the_disk_is_named_and_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "x.npy", np.zeros((4000, 100), "float32"))

    def preadv(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(UnreadableFile, match="cannot be read: Input/output error"):
        load(path, slot_bytes=30_000)
    assert not reader_threads()


def test_no_thread_and_no_open_file_is_left(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{number}.npy", np.zeros((100, 10))) for number in range(20)]
    load(paths)
    assert not reader_threads()
    targets = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [target for target in targets if str(tmp_path) in target]


def test_an_interruption_ends_the_threads() -> None:
    entered = threading.Event()

    def worker(number: int, tasks: Any) -> None:
        for _ in tasks:
            entered.set()

    def look() -> None:
        assert entered.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share_out(iter(int, 1), worker, 3, look)
    assert not reader_threads()


def test_the_first_failure_in_time_is_raised() -> None:
    def worker(number: int, tasks: Any) -> None:
        if number == 0:
            collections.deque(tasks, maxlen=0)  # Until the other one has failed.
        raise RuntimeError(f"of thread {number}")

    with pytest.raises(RuntimeError, match="of thread 1"):
        share_out(iter(int, 1), worker, 2, lambda: None)


def reader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("flatout-direct")]


# GPUDirect engines, with host memory in the place of the device's


class AddressedSink(HostSink):
    """A sink whose memory engines may write by its address."""

    wants_pinned = True

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0):
        super().__init__(shape, dtype)
        self.device_memory = DeviceMemory(self._array.ctypes.data, self._array.nbytes)


def put(path: Path, address: int, nbytes: int, offset: int) -> int:
    content = path.read_bytes()[offset : offset + nbytes]
    ctypes.memmove(address, content, len(content))
    return len(content)


class FakeKvikio:
    """As much of KvikIO as we call."""

    def __init__(self, has_gds: bool):
        self.asked: list[dict[str, Any]] = []
        fake = self

        class Defaults:
            @staticmethod
            def set(values: dict[str, Any]) -> Any:
                fake.asked.append(values)
                return tempfile.SpooledTemporaryFile()

        class Driver:
            @staticmethod
            def get(name: str) -> bool:
                return {"is_gds_available": has_gds}[name]

        class CuFile:
            def __init__(self, path: Path, flags: str):
                self.path = path

            def __enter__(self) -> CuFile:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def pread(self, memory: Any, size: int, offset: int, task: int) -> Any:
                address, _ = memory.__cuda_array_interface__["data"]
                count = put(self.path, address, size, offset)
                return type("Future", (), {"get": lambda self: count})()

        self.defaults, self.cufile_driver, self.CuFile = Defaults, Driver, CuFile

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(direct_kvikio.importlib.util, "find_spec", lambda name: name == "kvikio" or None)
        for name, module in (("", self), (".defaults", self.defaults), (".cufile_driver", self.cufile_driver)):
            monkeypatch.setitem(sys.modules, f"kvikio{name}", module)


@pytest.mark.parametrize("has_gds", [True, False])
def test_kvikio_is_taken_where_it_has_gpu_direct_storage(
    tmp_path: Path, has_gds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeKvikio(has_gds)
    fake.install(monkeypatch)
    arrays = [numbers((50 + number, 7), "<i4") for number in range(3)]
    paths = [save(tmp_path / f"{number}.npy", array) for number, array in enumerate(arrays)]
    rows, report = load(paths, AddressedSink, start=10, stop=120, threads=4)
    np.testing.assert_array_equal(rows, np.concatenate(arrays)[10:120])
    codes = [why.code for why in report.reasons]
    if has_gds:
        assert (report.engine, report.paths) == ("kvikio", {KVIKIO: rows.nbytes})
        assert all(asked["num_threads"] == 4 for asked in fake.asked)
        assert codes == ["cufile"]
    else:
        assert report.engine == "posix"
        assert codes[:2] == ["cufile", "kvikio"]


class FakeCuFile:
    """As much of cuda.bindings.cufile as we call."""

    class FileHandleType:
        OPAQUE_FD = 1

    def __init__(self, fails_at: int | None):
        self.fails_at, self.open_handles, self.files = fails_at, 0, 0

    def Descr(self) -> Any:
        return type("Descr", (), {"handle": type("Handle", (), {})(), "ptr": property(lambda self: self)})()

    def handle_register(self, description: Any) -> int:
        self.open_handles += 1
        self.files += 1
        return description.handle.fd

    def handle_deregister(self, handle: int) -> None:
        self.open_handles -= 1

    def read(self, handle: int, base: int, size: int, file_offset: int, memory_offset: int) -> int:
        if self.files == self.fails_at:
            raise RuntimeError("INVALID_FILE_OPEN_FLAG (5009)")
        return put(Path(f"/proc/self/fd/{handle}").readlink(), base + memory_offset, min(size, 70_000), file_offset)


class FakeDriver:
    in_context = staticmethod(tempfile.SpooledTemporaryFile)


@pytest.mark.parametrize("fails_at", [None, 1, 2])
def test_cufile_reads_past_the_host_or_gives_way_to_our_reader(
    tmp_path: Path, fails_at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeCuFile(fails_at)
    monkeypatch.setattr(direct_cufile, "unavailable", lambda: "")
    monkeypatch.setattr(direct_cufile, "cuda_driver", FakeDriver)
    monkeypatch.setattr(direct_cufile, "_opened", lambda: fake)
    monkeypatch.setattr(direct_cufile, "_PIECE", 100_000)
    arrays = [numbers((5000 + number, 17), "<i4") for number in range(2)]
    paths = [save(tmp_path / f"{number}.npy", array) for number, array in enumerate(arrays)]
    rows, report = load(paths, AddressedSink, start=10)
    np.testing.assert_array_equal(rows, np.concatenate(arrays)[10:])
    assert fake.open_handles == 0
    if fails_at:
        assert report.engine == "posix"
        assert report.paths == {BUFFERED: rows.nbytes}
        assert "INVALID_FILE_OPEN_FLAG" in str(report)
    else:
        assert (report.engine, report.paths) == ("cufile", {CUFILE: rows.nbytes})


def test_an_array_without_an_address_is_read_by_way_of_the_host(tmp_path: Path) -> None:
    class Pinned(HostSink):
        wants_pinned = True

    array = numbers((3, 4), "<f8")
    _, report = load(save(tmp_path / "x.npy", array), Pinned)
    assert report.engine == "posix"
    why = "The array has no device memory that may be written by its address."
    assert [(one.code, one.message) for one in report.reasons][:2] == [("cufile", why), ("kvikio", why)]


# Host memory

_MEASURE = """
import sys
import numpy as np
from flatout.data.direct.load import load
from flatout.data.files.file_rows import open_rows

class Counting:
    wants_pinned, device_memory = False, None
    def __init__(self, shape, dtype, page_offset):
        self.sums = np.zeros(shape[0], "int64")
    def write(self, at, block):
        self.sums[at[0] : at[0] + len(block)] = block[:, ::4096].sum(axis=1)
        return lambda: None
    def finish(self):
        return self.sums

sums, report = load([open_rows(sys.argv[1])], Counting)
print(report, file=sys.stderr)
print(int(sums.sum()), report.peak_rss_growth, report.cached_after)
"""


@pytest.mark.parametrize("is_cold", [True, False])
def test_host_memory_stays_flat(tmp_path: Path, is_cold: bool) -> None:
    path, rows = tmp_path / "x.npy", 512
    out = np.lib.format.open_memmap(path, "w+", "u1", (rows, 2**20))
    for row in range(rows):
        out[row] = row % 251
    del out
    if is_cold:
        make_cold(path)
    source = str(Path(direct_posix.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    total, growth, cached = map(int, done.stdout.split())
    assert total == sum(row % 251 for row in range(rows)) * 256
    assert growth < 300e6, done.stderr
    if is_cold:
        assert cached == cached_bytes(path) == 0
