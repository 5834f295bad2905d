"""The truth about a load: which way the bytes went, how fast, and what it cost in host memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from flatout.base.errors import Reason
from flatout.base.sizes import as_size
from flatout.data.files.page_cache import MemoryWatch

P2P = "GPUDirect, PCI peer to peer"
NVFS = "GPUDirect, nvidia-fs"
POSIX_DIRECT = "POSIX, O_DIRECT"
BUFFERED = "POSIX, page cache"
CUFILE_POSIX = "cuFile, POSIX by way of its own buffers"
CUFILE = "cuFile, which did not say how"
KVIKIO = "KvikIO, which does not say how"
DECODED = "Arrow, decoded on the host"
COLUMNS = "Arrow, plain columns put side by side on the host"


class Tally:
    """What reader threads count while they work, from any thread; of reasons with one code the first is kept."""

    def __init__(self) -> None:
        self.memory = MemoryWatch()
        self.paths: dict[str, int] = {}
        self.reasons: dict[str, Reason] = {}
        self.is_pinned = False
        self.threads = 0
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add_bytes(self, path: str, nbytes: int) -> None:
        with self._lock:
            self.paths[path] = self.paths.get(path, 0) + nbytes

    def add_reason(self, code: str, message: str) -> None:
        with self._lock:
            self.reasons.setdefault(code, Reason(code, message))

    @contextlib.contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        """Count the time of a `with` block as this activity's."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            with self._lock:
                self._seconds[activity] = self._seconds.get(activity, 0.0) + elapsed

    def share(self, activity: str, seconds: float) -> float:
        """The part of all threads' time that an activity took, of a run of so many seconds."""
        return min(self._seconds.get(activity, 0.0) / (seconds * self.threads), 1.0) if seconds * self.threads else 0.0


@dataclass(frozen=True)
class DirectReport:
    """What `load` did.

    Attributes:
        engine: `"posix"`, `"cufile"`, `"kvikio"` or `"arrow"`.
        nbytes: Of the array, as stored in the file.
        seconds: From the first to the last byte, allocation of the array included.
        paths: Bytes by the way they went; the names are this module's constants.
        threads: That read.
        is_pinned: Whether the slots were page-locked, so that the GPU fetched from them by itself.
        reading: Share of the threads' time spent in reads.
        copying: Share of it spent on copies into the array, or waiting for them.
        rss_growth: Resident bytes of the process afterwards beyond those before; includes an array in host memory.
        peak_rss_growth: The most that it grew in between.
        cached_before: Bytes of the files in the page cache before, or None if nobody can say.
        cached_after: The same, afterwards.
        reasons: Why faster ways were not taken.
    """

    engine: str
    nbytes: int
    seconds: float
    paths: dict[str, int]
    threads: int
    is_pinned: bool
    reading: float
    copying: float
    rss_growth: int
    peak_rss_growth: int
    cached_before: int | None
    cached_after: int | None
    reasons: tuple[Reason, ...] = ()

    @property
    def gb_per_second(self) -> float:
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0

    def explain(self) -> str:
        """The report in words, a line for each fact."""
        slots = "page-locked" if self.is_pinned else "pageable"
        lines = [
            f"{as_size(self.nbytes)} in {self.seconds:.2f} s, {self.gb_per_second:.2f} GB/s, by {self.engine} "
            f"with {self.threads} threads",
            *(f"  {as_size(nbytes):<12} {path}" for path, nbytes in self.paths.items() if nbytes),
            f"  threads      {self.reading:.0%} reading, {self.copying:.0%} copying; slots {slots}",
            f"  host memory  {_signed(self.peak_rss_growth)} at most, {_signed(self.rss_growth)} afterwards",
        ]
        if self.cached_before is not None and self.cached_after is not None:
            lines.append(
                f"  page cache   {as_size(self.cached_before)} before, {as_size(self.cached_after)} afterwards"
            )
        return "\n".join([*lines, *(f"  not taken    {why}" for why in self.reasons)])

    __str__ = explain


@dataclass(frozen=True)
class StreamReport:
    """What was decoded of so many files while a model ran: bytes of decoded rows, over all passes."""

    files: int
    nbytes: int

    @property
    def paths(self) -> dict[str, int]:
        """Bytes by the way they went, as `DirectReport.paths`."""
        return {DECODED: self.nbytes}

    def explain(self) -> str:
        """The report in words."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{as_size(self.nbytes)} of {files}: {DECODED}, ahead of the steps"

    __str__ = explain


def _signed(nbytes: int) -> str:
    return f"{'-' if nbytes < 0 else '+'}{as_size(abs(nbytes))}"
