"""The workers of a `PyDataset`: threads or processes that are started once and make batches in a given order.

Processes write each batch into a slot of shared memory that is used again and again; what goes through a socket is a
few numbers. The arrays that come out are views of the slot and good for as long as anything refers to them: a slot is
written again only when the last view of it is gone. Slots have no name (`memfd_create`), so that none can be left
behind in /dev/shm. (Longer than our other files, because both ends of each message should be read together.)
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import mmap
import multiprocessing
import os
import pickle
import queue
import signal
import socket
import tempfile
import threading
import traceback
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np

from ..errors import FlatoutError
from .background import PATIENCE

# Arrays begin at multiples of this: jax on a CPU takes aligned memory as it is, without a copy.
ALIGNMENT = 64
# Larger arrays of a dataset without epoch hooks are taken for unchanged if they are where they were.
LARGE = 16 * 2**20


class WorkerDied(FlatoutError, RuntimeError):
    """A worker process ended without being asked to, such as one that the kernel killed for its memory."""


class InOrder:
    """Batches of given numbers in the order of the numbers, whoever makes them and however long each takes.

    As in `Background`, the first `take` orders one batch, and later ones run ahead.

    Args:
        pool: `Threads` or `Processes`.
        numbers: Which batches to make. A number is asked for when its batch is ordered.
        ahead: Most batches to have ordered.
        finish: Applied to each batch as it is taken.
    """

    def __init__(
        self, pool: Any, numbers: Iterator[int], ahead: int, finish: Callable[[Any], Any] = lambda batch: batch
    ):
        self.limit: int | None = None
        self.taken = 0
        self._pool = pool
        self._numbers = numbers
        self._ahead = ahead
        self._finish = finish
        self._tickets: deque[Any] = deque()
        self._finalizer = weakref.finalize(self, _discard, pool, self._tickets)
        self._finalizer.atexit = False

    def take(self, most: int = 1) -> list[Any]:
        """Wait for a batch, and return it with all others that are ready, `most` at most; `[]` at the end."""
        if most < 1:
            raise ValueError(f"Invalid value for argument `most`. Received: most={most}. Expected 1 or more.")
        ahead = self._ahead if self.taken else 1
        self._order(ahead, at_least=1)
        items: list[Any] = []
        while self._tickets and len(items) < most:
            if items and not self._pool.has_made(self._tickets[0]):
                break
            try:
                items.append(self._pool.result(self._tickets.popleft()))
            except WorkerDied:
                # Closed by another thread while this one waited, it is an end like any other.
                if self._finalizer.alive:
                    raise
                break
            self.taken += 1
        if ahead > 1:
            self._order(ahead, at_least=0)
        return [self._finish(item) for item in items]

    def _order(self, ahead: int, at_least: int) -> None:
        if self.limit is not None:
            ahead = max(at_least, min(ahead, self.limit - self.taken))
        while self._finalizer.alive and len(self._tickets) < ahead:
            number = next(self._numbers, None)
            if number is None:
                return
            self._tickets.append(self._pool.order(number))

    def __iter__(self) -> Iterator[Any]:
        while items := self.take():
            yield from items

    def close(self) -> None:
        self._finalizer()


def _discard(pool: Any, tickets: deque[Any]) -> None:
    while tickets:
        pool.discard(tickets.popleft())


class Threads:
    """Makes batches of a dataset on threads of this process."""

    def __init__(self, dataset: Any, count: int):
        self._dataset = dataset
        self._count = count
        self._threads: list[threading.Thread] = []
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._finalizer = weakref.finalize(self, _dismiss, self._orders, count)
        self._finalizer.atexit = False

    def order(self, number: int) -> Future[Any]:
        if not self._threads:
            self._start()
        future: Future[Any] = Future()
        self._orders.put((future, number))
        return future

    def has_made(self, future: Future[Any]) -> bool:
        return future.done() and future.exception() is None

    def result(self, future: Future[Any]) -> Any:
        return future.result()

    def discard(self, future: Future[Any]) -> None:
        future.cancel()

    def refresh(self) -> None:
        """Threads see the dataset itself."""

    def _start(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("The workers of this dataset have been closed. Make a new feed of it.")
        self._threads = [
            threading.Thread(target=_serve, args=(self._dataset, self._orders), name=f"flatout-worker-{i}", daemon=True)
            for i in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the threads; one that is busy in the user's code ends when that returns."""
        self._finalizer()
        for thread in self._threads:
            # The garbage collector may call this on one of them.
            if thread is not threading.current_thread():
                thread.join(PATIENCE)
        self._threads = []


def _serve(dataset: Any, orders: queue.SimpleQueue[Any]) -> None:
    while (order := orders.get()) is not None:
        future, number = order
        del order
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(dataset[number])
            except BaseException as error:
                future.set_exception(error)
        del future


def _dismiss(orders: queue.SimpleQueue[Any], count: int) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            orders.get_nowait()[0].cancel()
    for _ in range(count):
        orders.put(None)


@dataclass(eq=False)
class _Ticket:
    number: int
    worker: _Worker
    slot: int
    # Sizes of the parts of the batch in the slot, or what was raised in its place.
    outcome: list[int] | _Raised | None = None
    is_discarded: bool = False


@dataclass(eq=False)
class _Worker:
    process: Any
    connection: Connection
    tickets: deque[_Ticket] = field(default_factory=deque)
    slots: dict[int, mmap.mmap] = field(default_factory=dict)
    # Slots that nothing refers to; the garbage collector appends to it, from any thread.
    free: deque[int] = field(default_factory=deque)
    count: int = 0

    def slot(self) -> int:
        with contextlib.suppress(IndexError):
            return self.free.popleft()
        self.count += 1
        return self.count


class Processes:
    """Makes batches of a dataset in processes that live until `close`.

    The start method is the user's (`multiprocessing.set_start_method`), or Python's default. When an epoch begins,
    `refresh` brings the workers the attributes of the dataset that have changed, where stock Keras starts new workers.

    Example:
        >>> import keras, numpy as np
        >>> from flatout.data.workers import InOrder, Processes
        >>> class Squares(keras.utils.PyDataset):
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, index):
        ...         return (np.full(3, index**2),)
        >>> workers = Processes(Squares(), count=2)
        >>> [int(batch[0][0]) for batch in InOrder(workers, iter(range(4)), ahead=3)]
        [0, 1, 4, 9]
        >>> workers.close()
    """

    def __init__(self, dataset: Any, count: int):
        self._dataset = dataset
        self._count = count
        self._workers: list[_Worker] = []
        self._state: dict[str, Any] = {}
        self._finalizer = weakref.finalize(self, _end, self._workers, os.getpid())
        self._finalizer.atexit = False

    def order(self, number: int) -> _Ticket:
        if not self._workers:
            self._start()
        worker = min(self._workers, key=lambda worker: len(worker.tickets))
        ticket = _Ticket(number, worker, worker.slot())
        worker.tickets.append(ticket)
        self._send(worker, (ticket.slot, number))
        return ticket

    def has_made(self, ticket: _Ticket) -> bool:
        if ticket.outcome is None:
            self._receive(timeout=0)
        return isinstance(ticket.outcome, list)

    def result(self, ticket: _Ticket) -> Any:
        while ticket.outcome is None:
            self._receive(timeout=None)
        if isinstance(ticket.outcome, _Raised):
            ticket.worker.free.append(ticket.slot)
            error = _rebuilt(ticket.outcome)
            error.add_note(f"Raised in worker process {ticket.worker.process.pid}, which made batch {ticket.number}.")
            raise error
        whole = np.frombuffer(ticket.worker.slots[ticket.slot], np.uint8)
        weakref.finalize(whole, ticket.worker.free.append, ticket.slot).atexit = False
        return _load(whole, ticket.outcome)

    def discard(self, ticket: _Ticket) -> None:
        ticket.is_discarded = True
        if ticket.outcome is not None:
            ticket.worker.free.append(ticket.slot)

    def refresh(self) -> None:
        """Bring the workers what has changed in the dataset since they last heard of it."""
        if not self._workers:
            return
        state = _state_of(self._dataset)
        changed = [name for name in state if name not in self._state or state[name] != self._state[name]]
        removed = [name for name in self._state if name not in state]
        if not changed and not removed:
            return
        try:
            parts = _dump(({name: vars(self._dataset)[name] for name in changed}, removed))
        except Exception:
            # What cannot be sent can be inherited, or else fails as it does with stock Keras.
            while any(worker.tickets for worker in self._workers):
                self._receive(timeout=None)
            _end(self._workers, os.getpid())
            return
        memory, handle = _new_memory(_room_for(parts))
        sizes = _write(memory, parts)
        for worker in self._workers:
            self._send(worker, (None, sizes), handle)
        os.close(handle)
        self._state = state

    def close(self) -> None:
        """End the processes: idle ones at once, busy ones after `PATIENCE` seconds."""
        self._finalizer()

    def _start(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("The workers of this dataset have been closed. Make a new feed of it.")
        method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        context: Any = multiprocessing.get_context(method)
        self._state = _state_of(self._dataset)
        for number in range(self._count):
            ours, theirs = context.Pipe()
            name = f"flatout-worker-{number}"
            process = context.Process(target=_work, args=(theirs, self._dataset), name=name, daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))

    def _send(self, worker: _Worker, message: Any, handle: int | None = None) -> None:
        try:
            worker.connection.send(message)
            if handle is not None:
                send_handle(worker.connection, handle, worker.process.pid)
        except OSError:
            raise self._death_of(worker) from None

    def _receive(self, timeout: float | None) -> None:
        waited_for = [*(worker.connection for worker in self._workers), *(w.process.sentinel for w in self._workers)]
        if not wait(waited_for, timeout):
            return
        for worker in self._workers:
            try:
                while worker.connection.poll():
                    self._read(worker)
            except (EOFError, OSError):
                raise self._death_of(worker) from None
            if not worker.process.is_alive():
                raise self._death_of(worker)

    def _read(self, worker: _Worker) -> None:
        outcome, brings_memory = worker.connection.recv()
        ticket = worker.tickets.popleft()
        if brings_memory:
            handle = recv_handle(worker.connection)
            worker.slots[ticket.slot] = mmap.mmap(handle, 0)
            os.close(handle)
        ticket.outcome = outcome
        if ticket.is_discarded:
            worker.free.append(ticket.slot)

    def _death_of(self, worker: _Worker) -> WorkerDied:
        worker.process.join(PATIENCE)
        code = worker.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        doing = f"made batch {worker.tickets[0].number}" if worker.tickets else "waited for work"
        return WorkerDied(
            f"A worker process of the PyDataset `{type(self._dataset).__name__}` died. Received: process "
            f"{worker.process.pid} ({worker.process.name}, of {self._count}) {how} while it {doing}. If the machine "
            "ran out of memory, use fewer `workers` or a smaller `max_queue_size`; with `workers=0` a crash shows its "
            "own traceback."
        )


def _end(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        return
    for worker in workers:
        # Closing would not do: workers that were forked later hold this end of the connection, too.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(worker.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
    for ask in (_wait_for, multiprocessing.Process.terminate, multiprocessing.Process.kill):
        alive = [worker.process for worker in workers if worker.process.is_alive()]
        for process in alive:
            ask(process)
        for process in alive:
            process.join(PATIENCE / len(alive))
    for worker in workers:
        worker.connection.close()
    workers.clear()


def _wait_for(process: Any) -> None:
    """The connection is shut: a worker ends after the batch that it makes."""


# In the worker process.


def _work(connection: Connection, dataset: Any) -> None:
    # Ctrl-C reaches the whole process group; the training process decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    slots: dict[int, mmap.mmap] = {}
    with contextlib.suppress(EOFError, OSError):
        while True:
            slot, number = connection.recv()
            if slot is None:
                _update(dataset, recv_handle(connection), sizes=number)
                continue
            outcome, handle = _make(dataset, number, slots, slot)
            connection.send((outcome, handle is not None))
            if handle is not None:
                send_handle(connection, handle, os.getppid())
                os.close(handle)


def _make(dataset: Any, number: int, slots: dict[int, mmap.mmap], slot: int) -> tuple[list[int] | _Raised, int | None]:
    """Make a batch and write it into a slot, with new memory behind it if it does not fit."""
    handle = None
    try:
        parts = _dump(dataset[number])
        if slot not in slots or len(slots[slot]) < _room_for(parts):
            slots[slot], handle = _new_memory(_room_for(parts))
        return _write(slots[slot], parts), handle
    except BaseException as error:
        return _described(error, skip=1), None


def _update(dataset: Any, handle: int, sizes: list[int]) -> None:
    with mmap.mmap(handle, 0) as memory:
        # Copied, since the attributes live longer than this memory.
        changed, removed = _load(np.frombuffer(memory[:], np.uint8).copy(), sizes)
    os.close(handle)
    vars(dataset).update(changed)
    for name in removed:
        vars(dataset).pop(name, None)


def _die_with_parent(parent: int) -> None:
    process = multiprocessing.parent_process()
    assert process is not None
    # The sentinel alone is not enough: processes forked later hold it open.
    while os.getppid() == parent and not wait([process.sentinel], timeout=0.5):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


# A batch as parts of memory: a pickle of its structure, which leaves the arrays out, then the arrays.


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle leaves out only arrays that are in one piece.
        if type(value) is np.ndarray and not value.flags.forc and not value.dtype.hasobject:
            return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


def _dump(value: Any) -> list[Any]:
    arrays: list[pickle.PickleBuffer] = []
    structure = io.BytesIO()
    _Pickler(structure, protocol=5, buffer_callback=arrays.append).dump(value)
    return [structure.getbuffer(), *(array.raw() for array in arrays)]


def _offsets(sizes: list[int]) -> list[int]:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
    return offsets


def _room_for(parts: list[Any]) -> int:
    return _offsets([part.nbytes for part in parts])[-1]


def _write(memory: mmap.mmap, parts: list[Any]) -> list[int]:
    sizes = [part.nbytes for part in parts]
    for part, offset in zip(parts, _offsets(sizes), strict=False):
        memory[offset : offset + part.nbytes] = part
    return sizes


def _load(memory: Any, sizes: list[int]) -> Any:
    structure, *arrays = [memory[offset : offset + size] for offset, size in zip(_offsets(sizes), sizes, strict=False)]
    return pickle.loads(structure, buffers=arrays)


def _new_memory(size: int) -> tuple[mmap.mmap, int]:
    """Memory without a name, and the file descriptor by which another process can map it."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flatout")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return mmap.mmap(handle, size), handle


# What the dataset is like, to tell whether it has changed.


def _state_of(dataset: Any) -> dict[str, Any]:
    has_hooks = _has_hooks(dataset)
    return {name: _fingerprint(value, has_hooks) for name, value in vars(dataset).items()}


def _has_hooks(dataset: Any) -> bool:
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDataset

    names = ("on_epoch_begin", "on_epoch_end")
    return any(getattr(getattr(dataset, name), "__func__", None) is not getattr(PyDataset, name) for name in names)


def _fingerprint(value: Any, has_hooks: bool) -> Any:
    arrays: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.sha256(pickle.dumps(value, protocol=5, buffer_callback=arrays.append))
    except Exception:
        # Unlike anything else if it may have changed unseen, else like itself.
        return object() if has_hooks else _Identity(value)
    for array in arrays:
        memory = np.frombuffer(array.raw(), np.uint8)
        if memory.nbytes > LARGE and not has_hooks:
            digest.update(f"{memory.ctypes.data}:{memory.nbytes}".encode())
        else:
            digest.update(memory.data)
    return digest.digest()


@dataclass(frozen=True, eq=False)
class _Identity:
    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


# An exception that crosses processes with the frames of the user's code.


@dataclass(frozen=True)
class _Raised:
    pickled: bytes | None
    text: str
    frames: list[tuple[str, str, int, int, int, int]]
    cause: _Raised | None
    context: _Raised | None
    hides_context: bool


def _described(error: BaseException, skip: int = 0) -> _Raised:
    frames = [
        (
            frame.filename,
            frame.name,
            frame.lineno or 1,
            frame.end_lineno or frame.lineno or 1,
            frame.colno or 0,
            frame.end_colno or 0,
        )
        for frame in traceback.extract_tb(error.__traceback__)[skip:]
    ]
    pickled: bytes | None
    try:
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is not type(error):
            pickled = None
    except Exception:
        pickled = None
    return _Raised(
        pickled,
        "".join(traceback.format_exception_only(error)).strip(),
        frames,
        None if error.__cause__ is None else _described(error.__cause__),
        None if error.__context__ is None else _described(error.__context__),
        error.__suppress_context__,
    )


def _rebuilt(raised: _Raised) -> BaseException:
    error: BaseException
    if raised.pickled is None:
        error = RuntimeError(raised.text)
    else:
        error = pickle.loads(raised.pickled)
    error.__cause__ = None if raised.cause is None else _rebuilt(raised.cause)
    error.__context__ = None if raised.context is None else _rebuilt(raised.context)
    error.__suppress_context__ = raised.hides_context
    below: types.TracebackType | None = None
    for frame in reversed(raised.frames):
        below = _traceback_entry(frame, below)
    return error.with_traceback(below)


def _traceback_entry(
    frame: tuple[str, str, int, int, int, int], below: types.TracebackType | None
) -> types.TracebackType:
    """A traceback entry that shows a line of the user's file, as if it had run here."""
    filename, name, line, end_line, column, end_column = frame
    place = {"lineno": line, "end_lineno": end_line, "col_offset": column, "end_col_offset": end_column}
    statement = ast.Raise(exc=ast.Name("error", ctx=ast.Load(), **place), cause=None, **place)
    code = compile(ast.Module([statement], type_ignores=[]), filename, "exec").replace(co_name=name)
    try:
        exec(code, {"error": StopAsyncIteration})
    except StopAsyncIteration as error:
        here = error.__traceback__ and error.__traceback__.tb_next
    assert here is not None
    return types.TracebackType(below, here.tb_frame, here.tb_lasti, here.tb_lineno)
