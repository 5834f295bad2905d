"""From a file on disk to the device: GB/s, as a share of what the disk gives, and what it costs in host memory.

    KERAS_BACKEND=jax python benchmarks/direct.py [--bytes 4G] [--folder DIR] [--threads 8] [--cufile]

Writes a .npy file of that size, and measures in one run, each cold line after the file was dropped from the page cache:
the bare reads (the same threads and slots, into host memory), flatout's `load` into device memory, cold and warm, and
`np.load` followed by a copy to the device. Each is repeated: the first run and the best are shown, and the most memory
of all. The reports of the paths follow.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from flatout.base.errors import FlatoutError
from flatout.base.sizes import as_size
from flatout.data.device.sinks import DeviceMemory, Wait, nothing_to_wait_for
from flatout.data.direct import cufile_reader
from flatout.data.direct.load import load
from flatout.data.direct.load_report import DirectReport
from flatout.data.files.file_rows import open_rows
from flatout.data.files.page_cache import MemoryWatch, cached_bytes, drop_from_cache

ROW = 3072
SINKS = {"jax": "JaxSink", "torch": "TorchSink", "tensorflow": "TensorFlowSink"}


@dataclass
class Line:
    """One way to read the file, at its best."""

    name: str
    seconds: float
    first: float
    peak_rss: int
    report: DirectReport | None = None


class DiscardingSink:
    """Takes blocks and forgets them: what is left is the reading."""

    wants_pinned = False
    device_memory: DeviceMemory | None = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], page_offset: int = 0):
        pass

    def write(self, at: tuple[int, ...], block: np.ndarray) -> Wait:
        return nothing_to_wait_for

    def finish(self) -> None:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", default="4G", help="size of the file, such as 512M or 8G (default: 4G)")
    parser.add_argument("--folder", help="where to write it (default: the folder for temporary files)")
    parser.add_argument("--threads", type=int, default=8, help="reader threads (default: 8)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="runs of each line, of which the best counts (default: 3)"
    )
    parser.add_argument("--cufile", action="store_true", help="also read through cuFile, whatever way it takes (torch)")
    arguments = parser.parse_args()
    rows = max(size_of(arguments.bytes) // ROW, 1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder, "rows.npy")
        write(path, rows)
        lines = measure(path, arguments)
    show(lines, rows * ROW)


def size_of(text: str) -> int:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(float(text[:-1]) * units[text[-1].upper()]) if text[-1].upper() in units else int(text)


def write(path: Path, rows: int) -> None:
    """Bytes that are not all alike, without holding them in memory."""
    piece = np.random.default_rng(0).integers(0, 256, (min(rows, 16384), ROW), dtype="u1")
    header = np.lib.format.header_data_from_array_1_0(piece) | {"shape": (rows, ROW)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, rows, len(piece)):
            file.write(piece[: rows - first].data)
        os.fsync(file.fileno())


def measure(path: Path, arguments: argparse.Namespace) -> list[Line]:
    backend = keras.config.backend()
    sink = getattr(importlib.import_module(f"flatout.engines.{backend}.sink"), SINKS[backend])
    file, threads, repeats = open_rows(path), arguments.threads, arguments.repeats

    def into(make_sink: Any) -> Callable[[], DirectReport]:
        def run() -> DirectReport:
            array, report = load([file], make_sink, threads=threads)
            del array
            return report

        return run

    def by_cufile() -> DirectReport:
        """Whatever way it takes: also where it is of no use."""
        with patch.object(cufile_reader, "unavailable", cufile_reader.cannot_run):
            report = into(sink)()
        if report.engine != "cufile":
            raise FlatoutError(f"cuFile did not read the file. {report.reasons[0]}")
        return report

    # Starts the backend, compiles and locks the slots: what a process pays once.
    load([file.part(0, min(50_000, file.shape[0]))], sink, threads=threads)
    ways: list[tuple[str, bool, Callable[[], Any]]] = [
        ("bare reads, O_DIRECT, cold", True, into(DiscardingSink)),
        ("bare reads, buffered, cold", True, lambda: buffered_reads(path, threads)),
        (f"flatout to {backend}, cold", True, into(sink)),
        ("bare reads, warm", False, into(DiscardingSink)),
        (f"flatout to {backend}, warm", False, into(sink)),
        ("np.load + copy, cold", True, lambda: stock(path)),
        ("np.load + copy, warm", False, lambda: stock(path)),
    ]
    if arguments.cufile and cufile_starts():
        ways.append(("cuFile, cold", True, by_cufile))
    lines = []
    for name, is_cold, run in ways:
        try:
            runs = [timed(path, name, is_cold, run) for _ in range(repeats)]
        except FlatoutError as error:
            print(f"{name}: {error}")
            continue
        best = min(runs, key=lambda line: line.seconds)
        best.first, best.peak_rss = runs[0].seconds, max(line.peak_rss for line in runs)
        lines.append(best)
    return lines


def cufile_starts() -> bool:
    """Tried in a process of its own: where it cannot start, cuFile may wait for ever."""
    code = "from flatout.data.direct.cufile_reader import _opened, cannot_run; print(cannot_run()); _opened()"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        print("cuFile: did not start within a minute")
        return False
    if done.returncode:
        print("cuFile:", done.stdout.strip() or done.stderr.strip().splitlines()[-1])
    return done.returncode == 0


def timed(path: Path, name: str, is_cold: bool, run: Callable[[], Any]) -> Line:
    if is_cold:
        drop(path)
    elif (cached_bytes(path) or 0) < path.stat().st_size:
        with path.open("rb", buffering=0) as file:
            while file.read(2**24):
                pass
    watch, start = MemoryWatch(), time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    watch.sample()
    report = result if isinstance(result, DirectReport) else None
    return Line(name, seconds, seconds, report.peak_rss_growth if report else watch.peak_growth, report)


def drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    drop_from_cache(descriptor)
    os.close(descriptor)
    left = cached_bytes(path)
    if left:
        print(f"note: {as_size(left)} of the file would not leave the page cache")


def buffered_reads(path: Path, threads: int) -> None:
    """What `dd` without O_DIRECT does, with as many threads as flatout's reader has."""
    from flatout.data.direct.slots import share_out

    piece, size = 8 * 2**20, path.stat().st_size
    with path.open("rb", buffering=0) as file:

        def worker(number: int, offsets: Any) -> None:
            memory = bytearray(piece)
            for offset in offsets:
                os.preadv(file.fileno(), [memory], offset)

        share_out(range(0, size, piece), worker, threads, lambda: None)


def stock(path: Path) -> None:
    """What people write today: the whole array in host memory, then on the device."""
    array = np.load(path)
    backend = keras.config.backend()
    if backend == "jax":
        import jax

        jax.device_put(array, may_alias=False).block_until_ready()
    elif backend == "torch":
        import torch
        from keras.src.backend.torch.core import get_device

        torch.from_numpy(array).to(get_device(), copy=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    else:
        import tensorflow as tf

        tf.identity(tf.constant(array))


def show(lines: list[Line], nbytes: int) -> None:
    bare = {"cold": lines[0].seconds, "warm": next(line.seconds for line in lines if line.name == "bare reads, warm")}
    print(f"\n{as_size(nbytes)}, Keras on {keras.config.backend()}, {os.cpu_count()} cores")
    print(f"{'':<30}{'first':>9}{'best':>9}{'GB/s':>8}{'of bare':>9}{'RSS at most':>13}")
    for line in lines:
        share = bare[line.name.split(", ")[-1]] / line.seconds
        print(
            f"{line.name:<30}{line.first:>7.2f} s{line.seconds:>7.2f} s{nbytes / line.seconds / 1e9:>8.2f}{share:>9.0%}"
            f"{'+' + as_size(max(line.peak_rss, 0)):>13}"
        )
    for line in lines:
        if line.report is not None:
            print(f"\n{line.name}: {line.report}")


if __name__ == "__main__":
    main()
