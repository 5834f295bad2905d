"""Whether an interrupted prediction is of the same computation: steps of it, computed again and compared.

A hash of layers and weights does not see what a layer's Python reads: attributes, globals, closures. The rows show it;
and rows that come out the same are right, whatever was changed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.data.columnar.table_rows import TableRows
from flatout.data.output.output_files import OutputFiles
from flatout.data.sources.description import ArraySource
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import leaves_of
from flatout.engines.rewind import Snapshot, generators_kept
from flatout.seam.layers import all_layers, plain_attributes
from flatout.seam.variable_state import global_seeds

from .passes import predict_pass
from .preparing.prepared import Prepared

# After that long no more is begun: little beside what going on spares, and enough for the whole of a small prediction.
SECONDS = 2.0
_FIRST_GROUPS = 4
_FEWEST_GROUPS = 8
_GOLDEN_RATIO = (5**0.5 - 1) / 2
# A device that does not give the same bits twice may be off by so many times the difference of two runs, if that is as
# small as errors of rounding are.
_RUNS_APART = 4.0
_ROUNDING = 1e-3
# Larger variables are weights, which a prediction leaves alone.
_ELEMENTS_OF_STATE = 2**16

Outputs = list[Any]


class ComputedAgain:
    """Steps of an interrupted prediction, computed by the model as it is now; the model is the same afterwards."""

    def __init__(self, model: Any, call: dict[str, Any], prepared: Prepared, source: ArraySource, files: OutputFiles):
        assert isinstance(prepared.feed, ArrayStream)
        self._model, self._prepared, self._feed, self._files = model, prepared, prepared.feed, files
        self._call = {**call, "callbacks": None, "verbose": 0}
        self._rows, self._batch_size = source.rows, source.batch_size
        # A table is decoded from its beginning, or that of a row group.
        self._is_read_anywhere = not any(isinstance(leaf, TableRows) for leaf in leaves_of(source.inputs))

    def difference(self) -> str | None:
        """What the model does not compute as it did, or None."""
        steps, group = self._files.steps, self._model.steps_per_execution
        if set(self._files.rows) != {self._end(steps)}:
            return "its outputs have not one row for each row of x"
        began, done = time.perf_counter(), 0
        for first, stop in _spans(steps, group, self._is_read_anywhere):
            odd = self._first_odd_part(first, stop)
            if odd is not None and not self._is_as_two_runs(*odd):
                rows = f"{self._end(odd[0])} to {self._end(odd[0] + len(odd[1])) - 1}"
                return f"the model does not give the outputs any more that it gave for the rows {rows}"
            done += stop - first
            if done >= _FEWEST_GROUPS * group and time.perf_counter() - began > SECONDS:
                break
        return None

    def _first_odd_part(self, first: int, stop: int) -> tuple[int, Outputs] | None:
        """The first of these steps whose outputs are not, bit for bit, what the files have."""
        step = first
        odd: tuple[int, Outputs] | None = None

        def compare(outputs: Outputs) -> None:
            nonlocal step, odd
            if odd is None:
                pairs = self._pairs(step, outputs)
                if pairs is None or not all(itertools.starmap(_are_same, pairs)):
                    odd = (step, outputs)
            step += len(outputs)

        self._compute(first, stop, compare)
        return odd

    def _is_as_two_runs(self, first: int, outputs: Outputs) -> bool:
        """Whether outputs are off from what the files have by no more than two runs on this device are."""
        again: Outputs = []
        # In groups of their own: loops of other lengths may be compiled to other sums.
        group, stop = self._model.steps_per_execution, first + len(outputs)
        for begin in range(first, stop, group):
            self._compute(begin, min(begin + group, stop), again.extend)
        pairs, others = self._pairs(first, outputs), self._pairs(first, again)
        if pairs is None or others is None:
            return False
        return all(_are_close(*pair, other) for pair, (_, other) in zip(pairs, others, strict=True))

    def _compute(self, first: int, stop: int, take: Callable[[Outputs], None]) -> None:
        self._feed.first_step, self._feed.stop_step = first, stop
        with _put_back(self._model, self._prepared):
            predict_pass(self._model, self._call, self._prepared, first, take)
        self._feed.first_step, self._feed.stop_step, self._prepared.steps = 0, None, 0

    def _pairs(self, first: int, outputs: Outputs) -> list[tuple[np.ndarray, np.ndarray]] | None:
        return self._files.beside(outputs, self._end(first), self._end(first + len(outputs)))

    def _end(self, step: int) -> int:
        return min(step * self._batch_size, self._rows)


def _spans(steps: int, group: int, anywhere: bool) -> Iterator[tuple[int, int]]:
    """Whole groups of steps: the last ones first, then more and more from all over, at the end all."""
    length = _FIRST_GROUPS * group
    yield max(0, (steps - length) // group * group), steps
    for number in itertools.count(1):
        if length >= steps:
            return
        length = min(2 * length, steps)
        first = int((steps - length) * (number * _GOLDEN_RATIO % 1 if anywhere else 1)) // group * group
        yield first, first + length if anywhere and length < steps else steps


def _are_same(kept: np.ndarray, again: np.ndarray) -> bool:
    if (kept.shape, kept.dtype) != (again.shape, again.dtype):
        return False
    return kept.tobytes() == again.tobytes()


def _are_close(kept: np.ndarray, one: np.ndarray, other: np.ndarray) -> bool:
    if _are_same(kept, one) or _are_same(kept, other):
        return True
    if not kept.shape == one.shape == other.shape or kept.dtype != one.dtype or kept.dtype.kind not in "fc":
        return False
    with np.errstate(invalid="ignore"):
        apart, off = np.abs(one - other).max(), np.abs(kept - one).max()
    return bool(apart <= _ROUNDING * np.abs(one).max() and off <= _RUNS_APART * apart)


@contextlib.contextmanager
def _put_back(model: Any, prepared: Prepared) -> Iterator[None]:
    """Leave no trace of a prediction: started anew, it must find the model and the random numbers as stock would."""
    state = [*model.non_trainable_variables, *global_seeds()]
    with generators_kept(prepared.engine):
        saved = Snapshot(model, prepared.engine, [one for one in state if math.prod(one.shape) <= _ELEMENTS_OF_STATE])
        # Such as the number of calls that a layer counts.
        attributes = [(vars(layer), plain_attributes(layer)) for layer in all_layers(model)]
        try:
            yield
        finally:
            saved.restore()
            for held, values in attributes:
                held.update(values)
