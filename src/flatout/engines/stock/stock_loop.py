"""Prediction batch by batch with Keras' own step, for what no engine can compile: same interface, flat memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flatout.base.errors import Reason
from flatout.data.stream.chunks import leaves_of, packed
from flatout.engines.contract import StepProgram
from flatout.seam import stock_methods as stock
from flatout.seam.epoch_iterators import iterator_class, passes
from flatout.seam.keras_names import is_of_keras
from flatout.seam.trainers import strategy_arguments, trainer_module


class StockProgram(StepProgram):
    """Keras' own step, on one batch of the rows held at a time."""

    engine = "stock"
    longest: int | None = 1
    reasons: tuple[Reason, ...] = ()

    def __init__(self, model: Any):
        self._model = model
        self._takes_inputs_alone = is_of_keras(type(model).predict_step)

    def replace(self, data: Any, rows: int, batch_size: int, filled: int | None = None) -> None:
        self._data, self._rows, self._batch_size = data, rows, batch_size

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        return [self._predict(self._batch(step)) for step in range(start, stop)]

    def _batch(self, step: int) -> Any:
        if self._rows == self._batch_size:
            return self._data
        rows = slice(step * self._batch_size, (step + 1) * self._batch_size)
        return packed(self._data, [leaf[rows] for leaf in leaves_of(self._data)])

    def _predict(self, batch: Any) -> Any:
        from keras.utils import unpack_x_y_sample_weight

        if self._takes_inputs_alone:
            return self._model.predict_on_batch(unpack_x_y_sample_weight(batch)[0])
        # A step of the user's may look at the whole batch, of which `predict_on_batch` would pass on the inputs alone.
        batch = tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)
        alone = (only for only in [batch])
        return stock.original("predict")(self._model, alone, steps=1, verbose=0)


class StockBatches:
    """Gives a `StockProgram` one batch after the other, as stock Keras makes them of anything that it takes."""

    placement = "host"
    runs_user_code = False
    is_exhausted = False
    loads = ()
    iterator = None

    def __init__(
        self, program: StockProgram, model: Any, backend: str, x: Any, batch_size: int | None, steps: int | None
    ):
        self._iterator = iterator_class(trainer_module(backend))(
            x=x, batch_size=batch_size, steps_per_epoch=steps, **strategy_arguments(model)
        )
        self.steps = self.end = self._iterator.num_batches
        self._program = program
        self._batches: Iterator[Any] = iter(())
        self._held = -1

    def reset(self) -> None:
        pass

    def begin_epoch(self) -> None:
        self._batches = self._all_batches()

    def _all_batches(self) -> Iterator[Any]:
        for _, _, source in passes(self._iterator):
            batch = None
            with self._iterator.catch_stop_iteration():
                batch = next(source)
            if batch is None:
                return
            yield batch

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
