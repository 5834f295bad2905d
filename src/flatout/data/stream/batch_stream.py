"""Sources that are read batch by batch: threads put batches together to chunks and send them while steps run.

`BatchStream` gives a program chunk after chunk to hold, with the interface of `ResidentFeed`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from flatout.base.when_used import keras
from flatout.data.batches.batch_checks import is_plain
from flatout.data.direct.load_report import StreamReport
from flatout.seam.adapters import as_numpy_batches
from flatout.seam.epoch_iterators import batches_of_pass, passes, steps_seen

from .chunk_stream import ChunkStream
from .chunks import Chunk, leaves_of, packed, steps_per_chunk
from .sender import Sender


class BatchStream(ChunkStream):
    """Steps over a source that gives batch after batch, of known length or not.

    The first epoch begins when `first_chunk` is asked for, before a program exists: nothing is read twice, and a
    program can be compiled for what comes, and is set then.

    Args:
        iterator: Keras' epoch iterator over a `Feed`.
        source: That `Feed`.
        group: The model's `steps_per_execution`.
        stretch: Chunks are of one group, `stretch` groups, `stretch**2` groups and so on.
        sender: Puts chunks on the device.
    """

    loads: tuple[StreamReport, ...] = ()
    runs_user_code = True

    def __init__(self, iterator: Any, source: Any, group: int, stretch: int, sender: Sender):
        super().__init__(sender, program=None)
        self.iterator = iterator
        self._source = source
        self._group = group
        self._stretch = stretch
        self._memory = sender.memory()
        self._enumerator: Any = None
        self._batches: Iterator[Any] = iter(())
        self._unused: list[Any] = []
        self._known: set[Any] = set()
        self._has_begun = False

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, as callbacks are told."""
        return self.iterator.num_batches

    @property
    def is_exhausted(self) -> bool:
        """Whether the source has given all that it ever will."""
        return bool(self._source.exhausted)

    def first_chunk(self) -> Chunk:
        """Begin the first epoch and read its first chunk."""
        self.iterator.reset()
        self._start()
        self._has_begun = True
        assert self._chunks is not None
        self._chunk = next(self._chunks)
        self._chunk.arrived()
        return self._chunk

    def unused(self) -> Iterator[Any]:
        """All batches, also those that were read, for somebody else: no program could be compiled for them."""
        self._drop()
        # Keras' torch backend makes lists of tuples, which Keras does not take from a generator.
        return (
            tuple(batch) if isinstance(batch, list) else batch for batch in itertools.chain(self._unused, self._batches)
        )

    def reset(self) -> None:
        if not self._has_begun:
            self._drop()
            self.iterator.reset()

    def begin_epoch(self) -> None:
        if not self._has_begun:
            self._start()
        elif self._chunk is not None:
            self._hold(self._chunk, 0)
        self._has_begun = False

    def _start(self) -> None:
        self._drop()
        self._ran_out = False
        self._enumerator = passes(self.iterator)
        _, _, self._batches = next(self._enumerator)
        iterator, group = self.iterator, self._group
        wanted, known = iterator.steps_per_epoch, batches_of_pass(iterator)
        most = wanted or known
        self.end = -(-most // group) * group if most else None
        if self.end is not None and known:
            self.end = min(self.end, known - (steps_seen(iterator) - group))
        # While a program is compiled for the first chunk nobody else may draw random numbers.
        self._chunks = self._sender.ahead(self._filled(itertools.islice(self._batches, self.end)), at_once=False)

    def _hold(self, chunk: Chunk, step: int) -> None:
        layout = (chunk.rows, chunk.batch_size, *(leaf.shape for leaf in leaves_of(chunk.data)))
        with contextlib.ExitStack() as paused:
            if layout not in self._known:
                # A step that is captured leaves the generators as they were: nobody else may draw meanwhile.
                for drawing in (self._chunks, self._source):
                    if drawing is not None:
                        paused.enter_context(drawing.paused())
            if self.program is not None:
                # The source may look at the weights.
                self.program.end_pass()
            super()._hold(chunk, step)
        self._known.add(layout)

    def draw_ahead(self) -> None:
        """Batches are fetched ahead all the time."""

    def end_epoch(self, steps: int, finished: bool) -> None:
        groups = -(-steps // self._group)
        for _ in range(groups if self._ran_out else groups - 1):
            next(self._enumerator, None)
        if self._ran_out:
            # Keras' own warning, and what it does with an iterator that has nothing more.
            with self.iterator.catch_stop_iteration():
                raise StopIteration
        if self._ran_out or not finished:
            self._enumerator.close()
        else:
            for _ in self._enumerator:
                pass
        self._drop()

    def close(self) -> None:
        self._drop()
        self._sender.close()
        self._memory.close()
        self._source.close()

    def _filled(self, batches: Iterator[Any]) -> Iterator[Chunk]:
        """Put batches together as long as the engine is busy and the source has more; else pass on what there is.

        A source may wait for the training to get as far as it got itself: nothing is held back while it does.
        """
        pending: list[_Batch] = []
        for structure in _on_host(batches):
            if self.program is None:
                self._unused.append(structure)
            elif self._unused:
                self._unused.clear()
            batch = _Batch(structure)
            if pending and pending[0].layout != batch.layout:
                yield from self._joined(pending)
                pending = []
            pending.append(batch)
            is_full = len(pending) == self._longest(steps_per_chunk(batch.nbytes, self._group))
            is_next = self._chunks is not None and (self._chunks.is_waited_for or not self._chunks.ready)
            if is_full or ((is_next or self._source.is_stalled) and len(pending) % self._group == 0):
                yield from self._joined(pending)
                pending = []
        yield from self._joined(pending)

    def _longest(self, steps: int) -> int:
        """The longest of the few lengths of chunks that is no longer than this, or the shortest."""
        length = self._group
        while length * self._stretch <= steps:
            length *= self._stretch
        return length

    def _joined(self, batches: list[_Batch]) -> Iterator[Chunk]:
        """Chunks of as few lengths as possible: a program is compiled for each."""
        start = 0
        while start < len(batches):
            room = self._longest(len(batches) - start)
            some = batches[start : start + room]
            start += len(some)
            first, length = some[0], some[0].length
            if room == 1:
                yield Chunk(first.structure, length, length, 1)
                continue
            arrays = self._memory([((room * length, *leaf.shape[1:]), leaf.dtype) for leaf in first.leaves])
            for number, batch in enumerate(some):
                for array, leaf in zip(arrays, batch.leaves, strict=True):
                    array[number * length : (number + 1) * length] = leaf
            yield Chunk(packed(first.structure, arrays), room * length, length, len(some))


class UnfitBatch(ValueError):
    """A batch that is no structure of number arrays with one row for each sample."""


class _Batch:
    """A batch in host memory; `UnfitBatch` if its rows cannot be put together with those of others."""

    def __init__(self, structure: Any):
        self.structure = structure
        self.leaves = leaves_of(structure)
        lengths = {leaf.shape[0] if _is_of_numbers(leaf) else None for leaf in self.leaves}
        if len(lengths) != 1 or None in lengths:
            kinds = ", ".join(f"{type(leaf).__name__} of shape {getattr(leaf, 'shape', '?')}" for leaf in self.leaves)
            raise UnfitBatch(
                f"A batch is not made of number arrays of one length. Received: {kinds}. Expected arrays with one row "
                "for each sample of the batch."
            )
        self.length = int(self.leaves[0].shape[0])
        self.layout = tuple((leaf.shape, leaf.dtype) for leaf in self.leaves)
        self.nbytes = sum(leaf.nbytes for leaf in self.leaves)


def _is_of_numbers(leaf: Any) -> bool:
    # bfloat16 and the like are of kind V.
    return isinstance(leaf, np.ndarray) and leaf.ndim > 0 and leaf.dtype.kind in "biufcV"


def _on_host(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches as NumPy arrays; Keras' torch backend would send tensors to the GPU first."""
    is_torch = keras.config.backend() == "torch"
    with keras.device("cpu") if is_torch else contextlib.nullcontext():
        for batch in batches:
            yield batch if is_plain(batch) else next(as_numpy_batches((batch,)))
