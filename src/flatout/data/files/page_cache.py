"""How much of a file is in the page cache, and how much memory this process holds."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PAGE = mmap.PAGESIZE

# cachestat(2), Linux 6.5: the same number on every architecture.
_CACHESTAT = 451
# Without it, mincore(2) looks at this many windows of this many pages, spread over the file.
_WINDOWS, _WINDOW_PAGES = 256, 64
_OWN_GROUPS = Path("/proc/self/cgroup")
# Control groups of version 2 and of version 1: where they are, the files of limit and use, how statistics are called.
_GROUPS = {
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def cached_bytes(path: str | os.PathLike[str]) -> int | None:
    """Bytes of a file that are in the page cache, by `cachestat(2)` or by `mincore(2)` for a sample of its pages.

    None where the kernel does not say: on other systems than Linux, and for files that this user may neither own nor
    write (`mincore` then calls every page cached).
    """
    if sys.platform != "linux":
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(descriptor)
        if status.st_size == 0:
            return 0
        cached = _by_cachestat(descriptor)
        if cached is None and (status.st_uid == os.geteuid() or os.access(path, os.W_OK)):
            cached = _by_mincore(descriptor, status.st_size)
        return None if cached is None else min(cached, status.st_size)
    finally:
        os.close(descriptor)


def _by_cachestat(descriptor: int) -> int | None:
    # Offset and length, 0 for the whole file; pages that are cached, dirty, written back, evicted, recently evicted.
    where, pages = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    failed = ctypes.CDLL(None).syscall(ctypes.c_long(_CACHESTAT), ctypes.c_uint(descriptor), where, pages, 0)
    return None if failed else pages[0] * PAGE


def _by_mincore(descriptor: int, size: int) -> int:
    pages = -(-size // PAGE)
    step = max(_WINDOW_PAGES, pages // _WINDOWS)
    looked_at = found = 0
    with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as mapped:
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        for first in range(0, pages, step):
            count = min(_WINDOW_PAGES, pages - first)
            flags = np.zeros(count, np.uint8)
            start, length = ctypes.c_void_p(address + first * PAGE), ctypes.c_size_t(count * PAGE)
            ctypes.CDLL(None).mincore(start, length, ctypes.c_void_p(flags.ctypes.data))
            looked_at += count
            found += int((flags & 1).sum())
    return round(size * found / looked_at)


def drop_from_cache(descriptor: int, offset: int = 0, length: int = 0) -> None:
    """Take clean pages of a file out of the page cache; a length of 0 means up to its end."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def memory_status() -> dict[str, int]:
    """The `Vm*` and `Rss*` lines of /proc/self/status in bytes; empty on other systems than Linux."""
    pairs = (line.split(":", 1) for line in _lines(Path("/proc/self/status")) if line.startswith(("Vm", "Rss")))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def available_memory() -> int | None:
    """Bytes that this process may still take: of the machine's, of its control groups', of its own limit (`ulimit`)."""
    amounts = [_available_in_machine(), *_available_in_groups(), _available_below_limit()]
    return min((amount for amount in amounts if amount is not None), default=None)


def _lines(path: Path) -> list[str]:
    """Of one of Linux' files; none on other systems."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _available_in_machine() -> int | None:
    lines = _lines(Path("/proc/meminfo"))
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _available_in_groups() -> Iterator[int]:
    """What each control group of this process leaves, its own and those around it."""
    for _, controllers, name in (line.split(":", 2) for line in _lines(_OWN_GROUPS)):
        root, limit, used, prefix = _GROUPS.get(controllers, ("", "", "", ""))
        inner = Path(name.lstrip("/"))
        for folder in (Path(root, part) for part in (inner, *inner.parents) if root):
            with contextlib.suppress(OSError, ValueError, KeyError):
                # No such group here, or one without a limit ("max").
                most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                # Pages of files are given up when memory is needed.
                of_files = sum(int(statistics[f"{prefix}{kind}_file"]) for kind in ("inactive", "active"))
                yield max(most - taken + of_files, 0)


def _available_below_limit() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else max(limit - memory_status().get("VmSize", 0), 0)


class MemoryWatch:
    """What this process' resident memory does from here on."""

    def __init__(self) -> None:
        before = memory_status()
        self._start = before.get("VmRSS", 0)
        self._highest_ever = before.get("VmHWM", 0)
        self._now = self._peak = self._start

    def sample(self) -> None:
        """Look now. The kernel's own high-water mark counts too, as soon as it rises."""
        status = memory_status()
        self._now = status.get("VmRSS", 0)
        highest = status.get("VmHWM", 0)
        self._peak = max(self._peak, self._now, highest if highest > self._highest_ever else 0)

    @property
    def growth(self) -> int:
        """Resident bytes at the last sample beyond those at the start."""
        return self._now - self._start

    @property
    def peak_growth(self) -> int:
        """The most that was seen beyond the start."""
        return self._peak - self._start
