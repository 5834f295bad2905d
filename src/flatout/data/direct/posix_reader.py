"""The reader that works everywhere: threads, each with two slots of host memory.

While the copy of one slot into the array is under way, the other is filled. Files that are not in the page cache are
read past it (O_DIRECT), so that host memory stays flat; files that are in it are read from it, which is faster.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from flatout.base.errors import UnreadableFile
from flatout.data.device.pinned_memory import view
from flatout.data.device.sinks import Sink
from flatout.data.files.file_rows import Block, FileRows, blocks
from flatout.data.files.page_cache import PAGE, cached_bytes, drop_from_cache

from .load_report import BUFFERED, POSIX_DIRECT, Tally
from .slots import SLOTS_PER_THREAD, FillSlot, pass_through

# O_DIRECT wants offsets, lengths and addresses to be multiples of this; no file system in use wants more.
ALIGNMENT = max(PAGE, 4096)
# A file with at least this share in the page cache is read from there.
_WARM_SHARE = 0.5
# Small files are cut finer than a slot, so that every thread gets some of them, but not finer than this.
_SMALLEST_BLOCK = 2**20


def read(files: Sequence[FileRows], sink: Sink, threads: int, slot_bytes: int, tally: Tally) -> None:
    """Read files into a sink; `UnreadableFile` if one cannot be read, or shrinks meanwhile."""
    # A page before and one after the data, which O_DIRECT reads along.
    itemsize = max((file.dtype.itemsize for file in files), default=1)
    payload = max(slot_bytes - 2 * ALIGNMENT, 1)
    total = sum(file.nbytes for file in files)
    most_bytes = max(min(payload, max(-(-total // (SLOTS_PER_THREAD * threads)), _SMALLEST_BLOCK)), itemsize)
    tasks: list[tuple[_OpenFile, Block]] = []
    starts = itertools.accumulate((file.shape[0] for file in files), initial=0)
    for file, start in zip(files, starts, strict=False):
        pieces = list(blocks(file, start, most_bytes))
        opened = _OpenFile(file, len(pieces), tally)
        tasks += [(opened, piece) for piece in pieces]
    tally.threads = min(threads, max(len(tasks), 1))
    try:
        pass_through(tasks, _fills, sink, _round_up(most_bytes) + 2 * ALIGNMENT, tally)
    finally:
        for opened, _ in tasks:
            opened.close()


def _fills(tasks: Iterator[tuple[_OpenFile, Block]]) -> Iterator[FillSlot]:
    for opened, block in tasks:
        yield functools.partial(opened.fill, block)
        opened.one_done()


class _OpenFile:
    """A file that is opened for its first block and closed after its last."""

    def __init__(self, file: FileRows, blocks: int, tally: Tally):
        self._file, self._left, self._tally = file, blocks, tally
        self._buffered: int | None = None
        self._direct: int | None = None
        self._is_cold = False
        self._lock = threading.Lock()

    def fill(self, block: Block, slot: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
        """Fill a slot with a block, in native byte order."""
        values = self._read(block, slot)
        if block.file.is_swapped:
            values = values.byteswap(inplace=True).view(block.file.native_dtype)
        return block.at, values

    def _read(self, block: Block, slot: np.ndarray) -> np.ndarray:
        try:
            buffered, direct = self._open()
            lead = block.offset % ALIGNMENT
            if direct is not None and self._read_direct(direct, block, slot, lead):
                self._tally.add_bytes(POSIX_DIRECT, block.nbytes)
                return view(slot, lead, block.shape, block.file.dtype)
            self._fill(buffered, slot[: block.nbytes], block.offset, block.nbytes)
            if self._is_cold:
                drop_from_cache(buffered, block.offset, block.nbytes)
        except OSError as error:
            raise UnreadableFile(f"{self._file.path} cannot be read: {error.strerror}.") from error
        self._tally.add_bytes(BUFFERED, block.nbytes)
        return view(slot, 0, block.shape, block.file.dtype)

    def one_done(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self.close()

    def close(self) -> None:
        with self._lock:
            descriptors = [descriptor for descriptor in (self._buffered, self._direct) if descriptor is not None]
            # The first and last page of each block were only partly its own, and so still cached.
            if self._is_cold and self._buffered is not None:
                drop_from_cache(self._buffered)
            self._buffered = self._direct = None
        for descriptor in descriptors:
            os.close(descriptor)

    def _open(self) -> tuple[int, int | None]:
        with self._lock:
            if self._buffered is None:
                path = self._file.path
                cached = cached_bytes(path)
                self._buffered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                size = os.fstat(self._buffered).st_size
                self._is_cold = cached is None or cached < size * _WARM_SHARE
                self._direct = self._open_direct()
            return self._buffered, self._direct

    def _open_direct(self) -> int | None:
        file, say = self._file, self._tally.add_reason
        if not self._is_cold:
            say("warm", "O_DIRECT was left out: the page cache holds the file, which is faster.")
        elif file.offset % file.dtype.alignment:
            say("unaligned", f"O_DIRECT was left out: data at byte {file.offset} are not aligned for {file.dtype}.")
        elif not hasattr(os, "O_DIRECT"):
            say("o_direct", "This system has no O_DIRECT.")
        else:
            try:
                return os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            except OSError as error:
                say("o_direct", f"The file system refused O_DIRECT: {error.strerror}.")
        return None

    def _read_direct(self, descriptor: int, block: Block, slot: np.ndarray, lead: int) -> bool:
        needed = lead + block.nbytes
        try:
            self._fill(descriptor, slot[: _round_up(needed)], block.offset - lead, needed)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            self._tally.add_reason("o_direct", f"The file system refused an O_DIRECT read: {error.strerror}.")
            return False
        return True

    def _fill(self, descriptor: int, memory: np.ndarray, offset: int, needed: int) -> None:
        got = 0
        while got < needed:
            count = os.preadv(descriptor, [memory[got:].data], offset + got)
            if count == 0:
                raise UnreadableFile(
                    f"{self._file.path} shrank while it was read. Received: its end at byte {offset + got:,}. "
                    f"Expected at least {offset + needed:,} bytes. Do not write to a file that is being loaded."
                )
            got += count


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
