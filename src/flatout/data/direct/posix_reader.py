"""The reader that works everywhere: threads, each with two slots of host memory.

While the copy of one slot into the array is under way, the other is filled. Files that are not in the page cache are
read past it (O_DIRECT), so that host memory stays flat; files that are in it are read from it, which is faster.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator, Sequence

import numpy as np

from flatout.base.errors import UnreadableFile
from flatout.data.device.pinned_memory import view
from flatout.data.device.sinks import Sink
from flatout.data.files.file_rows import Block, FileRows, blocks, identity_of, is_cold
from flatout.data.files.page_cache import PAGE, drop_from_cache

from .load_report import BUFFERED, POSIX_DIRECT, Tally
from .slots import SLOTS_PER_THREAD, FillSlot, pass_through

# O_DIRECT wants offsets, lengths and addresses to be multiples of this; no file system in use wants more.
ALIGNMENT = max(PAGE, 4096)
# Small files are cut finer than a slot, so that every thread gets some of them, but not finer than this.
_SMALLEST_BLOCK = 2**20


def read(files: Sequence[FileRows], sink: Sink, threads: int, slot_bytes: int, tally: Tally) -> None:
    """Read files into a sink; `UnreadableFile` if one cannot be read, or shrinks meanwhile."""
    # A page before and one after the data, which O_DIRECT reads along.
    itemsize = max((file.dtype.itemsize for file in files), default=1)
    payload = max(slot_bytes - 2 * ALIGNMENT, 1)
    total = sum(file.nbytes for file in files)
    most_bytes = max(min(payload, max(-(-total // (SLOTS_PER_THREAD * threads)), _SMALLEST_BLOCK)), itemsize)
    tasks: list[tuple[Block, bool]] = []
    # Once for each file, which may hold thousands of record batches.
    is_cold_path = functools.cache(functools.partial(is_cold, if_unknown=True))
    starts = itertools.accumulate((file.shape[0] for file in files), initial=0)
    for file, start in zip(files, starts, strict=False):
        tasks += [(block, is_cold_path(file.path)) for block in blocks(file, start, most_bytes)]
    tally.threads = min(threads, max(len(tasks), 1))

    def fills(mine: Iterator[tuple[Block, bool]]) -> Iterator[FillSlot]:
        for block, cold in mine:
            yield functools.partial(_fill, block, cold, tally)

    pass_through(tasks, fills, sink, _round_up(most_bytes) + 2 * ALIGNMENT, tally)
    # The header, and the first and last page of each block, which were only partly its own, are still cached.
    for path in {block.file.path for block, cold in tasks if cold}:
        with path.open("rb") as opened:
            drop_from_cache(opened.fileno())


def _fill(block: Block, is_cold: bool, tally: Tally, slot: np.ndarray) -> tuple[tuple[int, ...], np.ndarray]:
    """Fill a slot with a block, in native byte order."""
    try:
        values = _read_direct(block, is_cold, tally, slot)
        if values is None:
            values = _read_buffered(block, is_cold, tally, slot)
    except OSError as error:
        raise UnreadableFile(f"{block.file.path} cannot be read: {error.strerror}.") from error
    if block.file.is_swapped:
        values = values.byteswap(inplace=True).view(block.file.native_dtype)
    return block.at, values


def _read_direct(block: Block, is_cold: bool, tally: Tally, slot: np.ndarray) -> np.ndarray | None:
    """Read a block past the page cache; None, with the reason in the tally, where that is not done."""
    file, lead = block.file, block.offset % ALIGNMENT
    if not is_cold:
        tally.add_reason("warm", "O_DIRECT was left out: the page cache holds the file, which is faster.")
    elif file.offset % file.dtype.alignment:
        where = f"data at byte {file.offset} are not aligned for {file.dtype}"
        tally.add_reason("unaligned", f"O_DIRECT was left out: {where}.")
    elif not hasattr(os, "O_DIRECT"):
        tally.add_reason("o_direct", "This system has no O_DIRECT.")
    else:
        try:
            with _opened(file, os.O_DIRECT) as descriptor:
                needed = lead + block.nbytes
                _read_into(slot[: _round_up(needed)], file, descriptor, block.offset - lead, needed)
        except OSError as error:
            tally.add_reason("o_direct", f"The file system refused O_DIRECT: {error.strerror}.")
            return None
        tally.add_bytes(POSIX_DIRECT, block.nbytes)
        return view(slot, lead, block.shape, file.dtype)
    return None


def _read_buffered(block: Block, is_cold: bool, tally: Tally, slot: np.ndarray) -> np.ndarray:
    with _opened(block.file) as descriptor:
        _read_into(slot[: block.nbytes], block.file, descriptor, block.offset, block.nbytes)
        if is_cold:
            drop_from_cache(descriptor, block.offset, block.nbytes)
    tally.add_bytes(BUFFERED, block.nbytes)
    return view(slot, 0, block.shape, block.file.dtype)


@contextlib.contextmanager
def _opened(file: FileRows, flags: int = 0) -> Iterator[int]:
    """A file, opened for each block: of ten thousand files none stays open."""
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        if identity_of(os.fstat(descriptor))[:2] != file.identity[:2]:
            raise UnreadableFile(f"{file.path} was replaced while it was read. Do not write to a file being loaded.")
        yield descriptor
    finally:
        os.close(descriptor)


def _read_into(memory: np.ndarray, file: FileRows, descriptor: int, offset: int, needed: int) -> None:
    got = 0
    while got < needed:
        count = os.preadv(descriptor, [memory[got:].data], offset + got)
        if count == 0:
            raise UnreadableFile(
                f"{file.path} shrank while it was read. Received: its end at byte {offset + got:,}. "
                f"Expected at least {offset + needed:,} bytes. Do not write to a file that is being loaded."
            )
        got += count


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
