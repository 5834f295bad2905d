"""cuFile, NVIDIA's GPUDirect Storage: the disk writes device memory itself, where kernel and drivers are set up for it.

Where they are not, cuFile reads by POSIX calls as we do, only slower; so it is taken by itself only where
nvidia-fs or PCI peer-to-peer DMA is there. Its own statistics then tell which way the bytes went.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flatout.data.device.cuda_driver import CudaError, cuda_driver
from flatout.data.device.sinks import DeviceMemory
from flatout.data.files.file_rows import FileRows

from .load_report import CUFILE, CUFILE_POSIX, NVFS, P2P, Tally
from .slots import share_out

_PIECE = 16 * 2**20
_COUNTERS = {P2P: "n_p2p_reads", NVFS: "n_nvfs_reads", CUFILE_POSIX: "n_posix_reads"}


def unavailable() -> str:
    """Why cuFile cannot be used here or would bring nothing, or "" if it may."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed (pip install flatout[gpu])"
    try:
        # Asked first: without a GPU, opening cuFile's driver waits for ever (nvidia-cufile 1.19).
        cuda_driver()
    except CudaError as error:
        return str(error)
    if Path("/dev/nvidia-fs0").exists():
        return ""
    with contextlib.suppress(OSError):
        if "RMForceStaticBar1=1" in Path("/proc/driver/nvidia/params").read_text():
            return ""
    return (
        "neither nvidia-fs (/dev/nvidia-fs0) nor PCI peer-to-peer DMA (RMForceStaticBar1=1) is set up on this machine"
    )


def read(file: FileRows, memory: DeviceMemory, threads: int, tally: Tally) -> None:
    """Read a file into device memory."""
    cufile = _opened()
    before = _counts(cufile)
    with contextlib.ExitStack() as opened:
        description = cufile.Descr()
        description.type = cufile.FileHandleType.OPAQUE_FD
        description.handle.fd = _open_file(file.path)
        opened.callback(os.close, description.handle.fd)
        description.fs_ops = 0
        handle = cufile.handle_register(description.ptr)
        opened.callback(cufile.handle_deregister, handle)

        def worker(number: int, pieces: Iterator[tuple[int, int]]) -> None:
            with cuda_driver().in_context():
                for first, last in pieces:
                    with tally.timed("reading"):
                        while first < last:
                            count = cufile.read(handle, memory.pointer, last - first, first, first - file.offset)
                            if count <= 0:
                                raise OSError(f"{file.path} ended at byte {first:,}")
                            first += count

        share_out(_pieces(file), worker, threads, tally.memory.sample)
    after = _counts(cufile)
    counted = {path: after[path] - before[path] for path in after if before and after[path] > before[path]}
    # cuFile counts requests by path and bytes in all; requests are of one size but for the last.
    requests = counted or {CUFILE: 1}
    for path, count in requests.items():
        tally.add_bytes(path, round(file.nbytes * count / sum(requests.values())))


def _open_file(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _pieces(file: FileRows) -> Iterator[tuple[int, int]]:
    """Ranges of the file's bytes that meet at multiples of the piece size, so that all but two are aligned."""
    first, end = file.offset, file.offset + file.nbytes
    return itertools.pairwise([first, *range((first // _PIECE + 1) * _PIECE, end, _PIECE), end])


@functools.cache
def _opened() -> Any:
    from cuda.bindings import cufile

    with cuda_driver().in_context():
        cufile.driver_open()
    atexit.register(cufile.driver_close)
    # Libraries before 1.15 keep no such statistics; the report then says that cuFile did not say.
    with contextlib.suppress(Exception):
        cufile.set_stats_level(3)
        cufile.stats_start()
    return cufile


def _counts(cufile: Any) -> dict[str, int]:
    """Requests so far by path, over all GPUs; empty if the library does not count."""
    try:
        statistics = cufile.StatsLevel3()
        cufile.get_stats_l3(statistics.ptr)
        gpus = range(min(int(statistics.num_gpus), 16))
        return {
            path: sum(int(getattr(statistics.per_gpu_stats[gpu], counter)) for gpu in gpus)
            for path, counter in _COUNTERS.items()
        }
    except Exception:
        return {}
