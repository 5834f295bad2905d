"""A worker process, and the end of it that the training process holds: both sides of each message.

To the worker go `(slot, number)`, the order of a batch, or `(None, sizes)` and memory with changed attributes of the
dataset. Back comes `(outcome, brings_memory)` for each order, with new memory behind the slot if the batch did not fit.

In the memory are the parts of a batch: a pickle of its structure, which leaves the arrays out, then the arrays. It has
no name (`memfd_create`), so that none can be left behind in /dev/shm; another process maps it by a file descriptor.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np

from .background import PATIENCE
from .remote_errors import Raised, described

# Arrays begin at multiples of this: jax on a CPU takes aligned memory as it is, without a copy.
ALIGNMENT = 64


@dataclass(eq=False)
class Ticket:
    """A batch that was ordered."""

    number: int
    worker: Worker
    slot: int
    # Sizes of the parts of the batch in the slot, or what was raised in its place.
    outcome: list[int] | Raised | None = None
    is_discarded: bool = False


@dataclass(eq=False)
class Worker:
    """What the training process knows of a worker: its orders, oldest first, and its slots."""

    process: Any
    connection: Connection
    tickets: deque[Ticket] = field(default_factory=deque)
    slots: dict[int, mmap.mmap] = field(default_factory=dict)
    # Slots that nothing refers to; the garbage collector appends to it, from any thread.
    free: deque[int] = field(default_factory=deque)
    count: int = 0

    def order(self, number: int) -> Ticket:
        try:
            slot = self.free.popleft()
        except IndexError:
            slot = self.count = self.count + 1
        self.tickets.append(Ticket(number, self, slot))
        return self.tickets[-1]

    def send(self, message: Any, handle: int | None = None) -> None:
        self.connection.send(message)
        if handle is not None:
            send_handle(self.connection, handle, self.process.pid)

    def receive(self) -> None:
        """Read the outcome of the oldest order."""
        outcome, brings_memory = self.connection.recv()
        ticket = self.tickets.popleft()
        if brings_memory:
            handle = recv_handle(self.connection)
            self.slots[ticket.slot] = mmap.mmap(handle, 0)
            os.close(handle)
        ticket.outcome = outcome
        if ticket.is_discarded:
            self.free.append(ticket.slot)

    def how_it_died(self) -> str:
        self.process.join(PATIENCE)
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        return f"{how} while it {f'made batch {self.tickets[0].number}' if self.tickets else 'waited for work'}"


def start(context: Any, number: int, dataset: Any) -> Worker:
    """Start a worker process by a start method's `multiprocessing` context."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, dataset), name=f"flatout-worker-{number}", daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def end(workers: list[Worker], owner: int) -> None:
    """End the workers, unless this is a fork of their owner: idle ones at once, busy ones after `PATIENCE` seconds."""
    if os.getpid() != owner:
        return
    for worker in workers:
        # Closing would not do: workers that were forked later hold this end of the connection, too.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(worker.connection.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
    # The connection is shut: first a worker is left to end after the batch that it makes.
    for ask in (lambda process: None, multiprocessing.Process.terminate, multiprocessing.Process.kill):
        alive = [worker.process for worker in workers if worker.process.is_alive()]
        for process in alive:
            ask(process)
        for process in alive:
            process.join(PATIENCE / len(alive))
    for worker in workers:
        worker.connection.close()
    workers.clear()


def dump(value: Any) -> list[Any]:
    """The parts of a batch, or of anything else that can be pickled."""
    arrays: list[pickle.PickleBuffer] = []
    structure = io.BytesIO()
    _Pickler(structure, protocol=5, buffer_callback=arrays.append).dump(value)
    return [structure.getbuffer(), *(array.raw() for array in arrays)]


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        # Pickle leaves out only arrays that are in one piece.
        if type(value) is np.ndarray and not value.flags.forc and not value.dtype.hasobject:
            return np.ascontiguousarray(value).__reduce_ex__(5)
        return NotImplemented


def room_for(parts: list[Any]) -> int:
    """Bytes that the parts take, each aligned."""
    return _offsets([part.nbytes for part in parts])[-1]


def write(memory: mmap.mmap, parts: list[Any]) -> list[int]:
    """Write the parts one after another, and return their sizes."""
    sizes = [part.nbytes for part in parts]
    for part, offset in zip(parts, _offsets(sizes), strict=False):
        memory[offset : offset + part.nbytes] = part
    return sizes


def load(memory: Any, sizes: list[int]) -> Any:
    """What was written; its arrays are views of the memory."""
    structure, *arrays = [memory[offset : offset + size] for offset, size in zip(_offsets(sizes), sizes, strict=False)]
    return pickle.loads(structure, buffers=arrays)


def _offsets(sizes: list[int]) -> list[int]:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
    return offsets


def new_memory(size: int) -> tuple[mmap.mmap, int]:
    """Memory without a name, and the file descriptor by which another process can map it."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("flatout")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return mmap.mmap(handle, size), handle


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


def _make(dataset: Any, number: int, slots: dict[int, mmap.mmap], slot: int) -> tuple[list[int] | Raised, int | None]:
    """Make a batch and write it into a slot, with new memory behind it if it does not fit."""
    handle = None
    try:
        parts = dump(dataset[number])
        if slot not in slots or len(slots[slot]) < room_for(parts):
            slots[slot], handle = new_memory(room_for(parts))
        return write(slots[slot], parts), handle
    except BaseException as error:
        return described(error, skip=1), None


def _update(dataset: Any, handle: int, sizes: list[int]) -> None:
    with mmap.mmap(handle, 0) as memory:
        # Copied, since the attributes live longer than this memory.
        changed, removed = load(np.frombuffer(memory[:], np.uint8).copy(), sizes)
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
