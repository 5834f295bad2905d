"""KvikIO, RAPIDS' reader, for those who have it: taken by itself only where GPUDirect Storage is there.

Elsewhere its fallback waits for each copy before the next read (rapidsai/kvikio#520), which our own reader does not.
"""

from __future__ import annotations

import importlib.util

from flatout.data.device.sinks import DeviceMemory
from flatout.data.files.file_rows import FileRows, is_cold

from .load_report import KVIKIO, Tally

_TASK = 16 * 2**20


def unavailable() -> str:
    """Why KvikIO would bring nothing here, or "" if it may."""
    if importlib.util.find_spec("kvikio") is None:
        return "KvikIO is not installed"
    try:
        import kvikio.cufile_driver

        if kvikio.cufile_driver.get("is_gds_available"):
            return ""
    except Exception as error:
        # Without libcuda.so.1 the import itself fails, with an error of the C++ library's.
        return f"KvikIO cannot be used: {type(error).__name__}: {error}"
    return "KvikIO finds no GPUDirect Storage, and without it our own reader is faster"


def read(file: FileRows, memory: DeviceMemory, threads: int, tally: Tally) -> None:
    """Read a file into device memory."""
    import kvikio
    import kvikio.defaults

    # Its pool has one thread by default.
    settings = {
        "num_threads": threads,
        "task_size": _TASK,
        "auto_direct_io_read": is_cold(file.path, if_unknown=True),
    }
    with kvikio.defaults.set(settings), kvikio.CuFile(file.path, "r") as opened, tally.timed("reading"):
        count = opened.pread(memory, file.nbytes, file.offset, _TASK).get()
    if count != file.nbytes:
        raise OSError(f"{file.path} gave {count:,} bytes instead of {file.nbytes:,}")
    tally.add_bytes(KVIKIO, count)
