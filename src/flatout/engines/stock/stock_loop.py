"""Prediction batch by batch with Keras' own step, for what no engine can compile: same interface, flat memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flatout.base.errors import Reason
from flatout.data.sources.description import ArraySource
from flatout.data.stream.chunks import RowReader, leaves_of, packed
from flatout.data.workers.background import Background
from flatout.engines.contract import StepProgram
from flatout.seam import stock_methods as stock
from flatout.seam.epoch_iterators import iterator_class, passes
from flatout.seam.keras_names import is_of_keras
from flatout.seam.trainers import strategy_arguments, trainer_module

# Makes the batches of the steps from one on, and before another.
Batches = Callable[[int, int | None], Iterator[Any]]


class StockProgram(StepProgram):
    """One batch at a time, as the data are."""

    engine = "stock"
    longest: int | None = 1
    reasons: tuple[Reason, ...] = ()

    def __init__(self, model: Any):
        self._model = model
        self._batch: Any = None
        self._takes_inputs_alone = is_of_keras(type(model).predict_step)

    def replace(self, data: Any, rows: int, batch_size: int) -> None:
        self._batch = data

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        from keras.utils import unpack_x_y_sample_weight

        if self._takes_inputs_alone:
            return [self._model.predict_on_batch(unpack_x_y_sample_weight(self._batch)[0])]
        # A step of the user's may look at the whole batch, of which `predict_on_batch` would pass on the inputs alone.
        batch = tuple(self._batch) if isinstance(self._batch, (list, tuple)) else (self._batch,)
        alone = (only for only in [batch])
        return [stock.original("predict")(self._model, alone, steps=1, verbose=0)]


class StockBatches:
    """Gives a `StockProgram` one batch after the other; `batches` makes them from `first_step` to `stop_step`."""

    placement = "host"
    runs_user_code = False
    is_exhausted = False
    loads = ()
    iterator = None

    def __init__(self, program: StockProgram, batches: Batches, steps: int | None):
        self.steps = self.end = steps
        self.first_step = 0
        self.stop_step: int | None = None
        self._program = program
        self._make = batches
        self._batches: Iterator[Any] = iter(())
        self._held = -1

    def reset(self) -> None:
        pass

    def begin_epoch(self) -> None:
        self.end = self.steps if self.stop_step is None else self.stop_step
        self._batches = self._make(self.first_step, self.end)
        self._held = self.first_step - 1

    def draw_ahead(self) -> None:
        pass

    def ready(self, step: int) -> tuple[int, int] | None:
        """As `ResidentFeed.ready`."""
        if step > self._held:
            batch = next(self._batches, None)
            if batch is None:
                self.end = step
                return None
            self._program.replace(batch, 1, 1)
            self._held = step
        return 0, 1

    def end_epoch(self, steps: int, finished: bool) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self._batches, "close"):
            self._batches.close()


def batches_of_rows(source: ArraySource, reader: RowReader) -> Batches:
    """Batches of arrays, read ahead in chunks, from any step on."""

    def batches(first: int, stop: int | None) -> Iterator[Any]:
        assert stop is not None
        with Background(reader.chunks(None, first, stop), items=1, at_once=True) as chunks:
            for chunk in chunks:
                leaves = leaves_of(chunk.data)
                for begin in range(0, chunk.steps * chunk.batch_size, chunk.batch_size):
                    yield packed(source.inputs, [leaf[begin : begin + chunk.batch_size] for leaf in leaves])

    return batches


def batches_of_keras(
    model: Any, backend: str, x: Any, batch_size: int | None, steps: int | None
) -> tuple[Batches, int | None]:
    """Batches as stock Keras makes them of anything it takes, and how many there are, if known."""
    strategy = strategy_arguments(model)
    iterator = iterator_class(trainer_module(backend))(x=x, batch_size=batch_size, steps_per_epoch=steps, **strategy)

    def batches(first: int, stop: int | None) -> Iterator[Any]:
        for _, _, source in passes(iterator):
            batch = None
            with iterator.catch_stop_iteration():
                batch = next(source)
            if batch is None:
                return
            yield batch

    return batches, iterator.num_batches
