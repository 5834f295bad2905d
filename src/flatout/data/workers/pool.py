"""The workers of a `PyDataset`: threads or processes that are started once and make batches in a given order.

Processes write each batch into a slot of shared memory that is used again and again; what goes through a socket is a
few numbers. The arrays that come out are views of the slot and good for as long as anything refers to them: a slot is
written again only when the last view of it is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import pickle
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from flatout.base.errors import WorkerDied
from flatout.base.when_used import keras

from .background import PATIENCE
from .remote_errors import Raised, rebuilt
from .worker_process import Ticket, Worker, dump, end, load, new_memory, room_for, start, write

# Larger arrays of a dataset without epoch hooks are taken for unchanged if they are where they were.
_LARGE = 16 * 2**20


class InOrder(Iterator[Any]):
    """Batches of given numbers in the order of the numbers, whoever makes them and however long each takes.

    As in `Background`, whoever asks for the first batch orders no other, and later ones run ahead: at most `ahead` are
    ordered. A number is asked for when its batch is ordered; `finish` is applied to each batch as it is taken.
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

    @property
    def is_stalled(self) -> bool:
        """Whether whoever takes a batch now has to wait for it, or will be told that there is none."""
        try:
            return not self._pool.has_made(self._tickets[0])
        except (IndexError, WorkerDied):
            return True

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is to be kept from running: workers draw from generators of their own, or in no order at all."""
        return contextlib.nullcontext()

    def __next__(self) -> Any:
        """Wait for the next batch."""
        ahead = self._ahead if self.taken else 1
        self._order(ahead, at_least=1)
        if not self._tickets:
            raise StopIteration
        try:
            batch = self._pool.result(self._tickets.popleft())
        except WorkerDied:
            # Closed by another thread while this one waited, it is an end like any other.
            if self._finalizer.alive:
                raise
            raise StopIteration from None
        self.taken += 1
        if ahead > 1:
            self._order(ahead, at_least=0)
        return self._finish(batch)

    def _order(self, ahead: int, at_least: int) -> None:
        if self.limit is not None:
            ahead = max(at_least, min(ahead, self.limit - self.taken))
        while self._finalizer.alive and len(self._tickets) < ahead:
            number = next(self._numbers, None)
            if number is None:
                return
            self._tickets.append(self._pool.order(number))

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


class Processes:
    """Makes batches of a dataset in processes that live until `close`.

    The start method is the user's (`multiprocessing.set_start_method`), or Python's default. When an epoch begins,
    `refresh` brings the workers the attributes of the dataset that have changed, where stock Keras starts new workers.
    """

    def __init__(self, dataset: Any, count: int):
        self._dataset = dataset
        self._count = count
        self._workers: list[Worker] = []
        self._state: dict[str, Any] = {}
        self._finalizer = weakref.finalize(self, end, self._workers, os.getpid())
        self._finalizer.atexit = False

    def order(self, number: int) -> Ticket:
        if not self._workers:
            self._start()
        worker = min(self._workers, key=lambda worker: len(worker.tickets))
        ticket = worker.order(number)
        self._send(worker, (ticket.slot, number))
        return ticket

    def has_made(self, ticket: Ticket) -> bool:
        if ticket.outcome is None:
            self._receive(timeout=0)
        return isinstance(ticket.outcome, list)

    def result(self, ticket: Ticket) -> Any:
        while ticket.outcome is None:
            self._receive(timeout=None)
        if isinstance(ticket.outcome, Raised):
            ticket.worker.free.append(ticket.slot)
            error = rebuilt(ticket.outcome)
            error.add_note(f"Raised in worker process {ticket.worker.process.pid}, which made batch {ticket.number}.")
            raise error
        whole = np.frombuffer(ticket.worker.slots[ticket.slot], np.uint8)
        weakref.finalize(whole, ticket.worker.free.append, ticket.slot).atexit = False
        return load(whole, ticket.outcome)

    def discard(self, ticket: Ticket) -> None:
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
            parts = dump(({name: vars(self._dataset)[name] for name in changed}, removed))
        except Exception:
            # What cannot be sent can be inherited, or else fails as it does with stock Keras.
            while any(worker.tickets for worker in self._workers):
                self._receive(timeout=None)
            end(self._workers, os.getpid())
            return
        memory, handle = new_memory(room_for(parts))
        sizes = write(memory, parts)
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
            self._workers.append(start(context, number, self._dataset))

    def _send(self, worker: Worker, message: Any, handle: int | None = None) -> None:
        try:
            worker.send(message, handle)
        except OSError:
            raise self._death_of(worker) from None

    def _receive(self, timeout: float | None) -> None:
        waited_for = [*(worker.connection for worker in self._workers), *(w.process.sentinel for w in self._workers)]
        if not wait(waited_for, timeout):
            return
        for worker in self._workers:
            try:
                while worker.connection.poll():
                    worker.receive()
            except (EOFError, OSError):
                raise self._death_of(worker) from None
            if not worker.process.is_alive():
                raise self._death_of(worker)

    def _death_of(self, worker: Worker) -> WorkerDied:
        return WorkerDied(
            f"A worker process of the PyDataset `{type(self._dataset).__name__}` died. Received: process "
            f"{worker.process.pid} ({worker.process.name}, of {self._count}) {worker.how_it_died()}. If the machine "
            "ran out of memory, use fewer `workers` or a smaller `max_queue_size`; with `workers=0` a crash shows its "
            "own traceback."
        )


def _state_of(dataset: Any) -> dict[str, Any]:
    """By attribute, a value that compares equal as long as the attribute is unchanged."""
    hooks = ("on_epoch_begin", "on_epoch_end")
    has_hooks = any(
        getattr(getattr(dataset, name), "__func__", None) is not getattr(keras.utils.PyDataset, name) for name in hooks
    )
    return {name: _fingerprint(value, has_hooks) for name, value in vars(dataset).items()}


def _fingerprint(value: Any, has_hooks: bool) -> Any:
    arrays: list[pickle.PickleBuffer] = []
    try:
        digest = hashlib.sha256(pickle.dumps(value, protocol=5, buffer_callback=arrays.append))
    except Exception:
        # Unlike anything else if it may have changed unseen, else like itself, which lives as long as its number.
        return object() if has_hooks else (id(value), value)
    for array in arrays:
        memory = np.frombuffer(array.raw(), np.uint8)
        if memory.nbytes > _LARGE and not has_hooks:
            digest.update(f"{memory.ctypes.data}:{memory.nbytes}".encode())
        else:
            digest.update(memory.data)
    return digest.digest()
