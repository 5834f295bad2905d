"""An iterator pulled on one background thread, ahead of its consumer.

The order is the iterator's. How far the thread may run ahead is bounded in items and in bytes, an error of the user's
code is raised at the item that needed it, and nothing of it outlives `close`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

ITEMS_AHEAD = 64
BYTES_AHEAD = 256 * 2**20
# How long `close` waits for code of the user that is busy. It is left to end by itself after that.
PATIENCE = 2.0
# How long each `paused` waits for it. Longer, because what it draws meanwhile might be drawn twice; not for ever,
# because it may itself wait for the training to go on.
PATIENCE_IN_PAUSES = 20.0


class Background(Iterator[Any], contextlib.AbstractContextManager["Background"]):
    """Pulls an iterator on a thread of its own, and hands the items over in order.

    Nothing is pulled before an item is asked for. Unless `at_once`, the first alone is pulled then: Keras builds a
    model on the first batch and throws the rest away, which must not have drawn random numbers. From the second on the
    thread runs ahead.

    Args:
        iterator: What to pull. If it has a `close` method, the thread calls it at the end.
        items: Most items to hold ready. With 0 there is no thread: who asks for an item pulls it himself.
        at_once: Run ahead from the first item on.
        keeps: Items that can be taken back as long as no more were taken.
    """

    def __init__(self, iterator: Iterator[Any], *, items: int = ITEMS_AHEAD, at_once: bool = False, keeps: int = 0):
        self._shared = _Shared(iterator, items, at_once, keeps)
        self._thread: threading.Thread | None = None
        self._on_demand = items == 0
        # The thread knows only what is shared, so that it does not keep its consumer from being collected.
        self._finalizer = weakref.finalize(self, self._shared.close)
        self._finalizer.atexit = False

    @property
    def taken(self) -> int:
        """Items handed over so far."""
        return self._shared.taken

    @property
    def ready(self) -> int:
        """Items that are held ready."""
        return len(self._shared.ready)

    @property
    def is_stalled(self) -> bool:
        """Whether whoever takes an item now has to wait for it; False where nobody can tell before it is asked for."""
        return not self._on_demand and not self._shared.ready

    @property
    def is_waited_for(self) -> bool:
        """Whether the consumer has nothing to do until the next item comes: an item in hand should not grow further."""
        return self._shared.is_waited_for or self._shared.paused

    @property
    def limit(self) -> int | None:
        """Items that may be pulled ahead of being asked for, counted from the first one; None for any number."""
        return self._shared.limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        with self._shared.changed:
            self._shared.limit = limit
            self._shared.changed.notify_all()

    def __next__(self) -> Any:
        """Wait for the next item. What the iterator raised is raised in the place of its item."""
        shared = self._shared
        if self._on_demand:
            shared.pull_one()
        elif self._thread is None and not shared.ended:
            self._thread = threading.Thread(target=_pull, args=(shared,), name="flatout-background", daemon=True)
            self._thread.start()
        return shared.take()

    def take_back(self) -> None:
        """Have all items that were taken come again, if they were kept."""
        self._shared.take_back()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the thread from pulling anything meanwhile. Waits for the item in its hands, but not for ever."""
        shared = self._shared
        with shared.changed:
            shared.paused = True
            shared.changed.wait_for(lambda: not shared.is_pulling or shared.ended, PATIENCE_IN_PAUSES)
        try:
            yield
        finally:
            with shared.changed:
                shared.paused = False
                shared.changed.notify_all()

    def close(self) -> None:
        """End the thread. Code of the user that is busy gets `PATIENCE` seconds; its thread ends when it returns."""
        self._finalizer()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(PATIENCE)

    def unread(self) -> Iterator[Any]:
        """The items that were pulled and not taken, for use after `close`; refers to nothing else of this object."""
        return _unread(self._thread, self._shared.ready)

    def __exit__(self, *_: object) -> None:
        self.close()


class _Shared:
    """What the thread and its consumer share, guarded by `changed`."""

    def __init__(self, iterator: Iterator[Any], items: int, at_once: bool, keeps: int):
        self.iterator = iterator
        self.items = items
        self.ahead = items if at_once else 0
        self.limit: int | None = None
        # An RLock beneath: `close` may be called by the garbage collector while its thread holds the lock.
        self.changed = threading.Condition()
        self.ready: deque[tuple[Any, int]] = deque()
        self.ready_bytes = 0
        self.taken = 0
        self.keeps = keeps
        self.kept: list[tuple[Any, int]] = []
        self.is_waited_for = False
        self.ended = False
        self.closed = False
        self.paused = False
        self.is_pulling = False
        self.error: BaseException | None = None

    def take(self) -> Any:
        with self.changed:
            if self.taken:
                self.ahead = self.items
            self.is_waited_for = True
            self.changed.notify_all()
            try:
                self.changed.wait_for(lambda: self.ready or self.ended or self.closed)
            finally:
                self.is_waited_for = False
            if self.ready:
                item, size = self.ready.popleft()
                self.ready_bytes -= size
                self.taken += 1
                self.kept = [*self.kept, (item, size)] if self.taken <= self.keeps else []
                self.changed.notify_all()
                return item
            self.kept = []
            if self.error is not None:
                error, self.error = self.error, None
                raise error
            raise StopIteration

    def take_back(self) -> None:
        with self.changed:
            self.ready.extendleft(reversed(self.kept))
            self.ready_bytes += sum(size for _, size in self.kept)
            self.taken -= len(self.kept)
            self.kept = []

    def pull_one(self) -> None:
        if not (self.ready or self.ended or self.closed):
            try:
                self.ready.append((next(self.iterator), 0))
            except StopIteration:
                self.ended = True

    def has_room(self) -> bool:
        if not self.ready:
            return self.is_waited_for or (self.ahead > 0 and self._is_within_limit())
        return len(self.ready) < self.ahead and self.ready_bytes < BYTES_AHEAD and self._is_within_limit()

    def _is_within_limit(self) -> bool:
        return self.limit is None or self.taken + len(self.ready) < self.limit

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


def _pull(shared: _Shared) -> None:
    error: BaseException | None = None
    try:
        while True:
            with shared.changed:
                shared.changed.wait_for(lambda: shared.closed or (not shared.paused and shared.has_room()))
                if shared.closed:
                    return
                shared.is_pulling = True
            item = next(shared.iterator)
            size = size_of(item)
            with shared.changed:
                shared.ready.append((item, size))
                shared.ready_bytes += size
                shared.is_pulling = False
                shared.changed.notify_all()
            # The next one may take long to come; meanwhile nothing must keep this one alive.
            del item
    except StopIteration:
        pass
    except BaseException as raised:
        error = raised
    finally:
        if hasattr(shared.iterator, "close"):
            with contextlib.suppress(Exception):
                shared.iterator.close()
        with shared.changed:
            # An error that nobody waits for any more keeps frames of the user alive.
            shared.error = error
            shared.ended = True
            shared.changed.notify_all()


def _unread(thread: threading.Thread | None, ready: deque[tuple[Any, int]]) -> Iterator[Any]:
    if thread is not None:
        thread.join()
    while ready:
        yield ready.popleft()[0]


def size_of(item: Any) -> int:
    """Bytes of the arrays in a nest of tuples, lists and dicts."""
    if isinstance(item, dict):
        return sum(map(size_of, item.values()))
    if isinstance(item, (tuple, list)):
        return sum(map(size_of, item))
    return int(getattr(item, "nbytes", 0) or 0)
