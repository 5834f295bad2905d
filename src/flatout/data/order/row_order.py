"""The order of samples, asked of the installed Keras' own data adapter.

Keras draws its permutations from a different generator on each backend, some more often than it uses them, and
the next release changes all of it. So we hand Keras an array of row numbers, let its own iterators run in the call
order of stock `fit`, and read the numbers back. The generators end in stock's state. We draw ourselves only where a
trial of the installed Keras has shown that it draws the same, and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flatout.base.when_used import keras, tf
from flatout.data.direct.load_report import StreamReport
from flatout.seam.adapters import adapter_class_drawing_ahead
from flatout.seam.epoch_iterators import iterator_class, passes, plain_iterator_class, read_by, steps_seen

from .drawn_ahead import DrawnAhead, NumPyDrawnAhead, are_same


class Order:
    """The passes over the rows, and the steps of each epoch, counted in groups of `steps_per_execution`.

    With `steps_per_epoch` an epoch goes on where the last one stopped. The iterator class comes from Keras' trainer
    module of the backend; TensorFlow's wants the distribution strategy.

    Attributes:
        iterator: Keras' own epoch iterator over row numbers.
        rows_of_pass: The row numbers of the current pass, or None for 0, 1, 2, ...
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        shuffle: Any,
        steps_per_epoch: int | None,
        steps_per_execution: int,
        trainer_module: Any,
        strategy: Any = None,
    ):
        self._drawn_ahead = _drawn_ahead_of(trainer_module, shuffle)
        adapter = _index_adapter(rows, batch_size, shuffle, self._drawn_ahead)
        extra = {} if strategy is None else {"distribute_strategy": strategy}
        self.iterator = _iterator_over_numbers(trainer_module, shuffle)(
            x=adapter, steps_per_epoch=steps_per_epoch, steps_per_execution=steps_per_execution, **extra
        )
        # Every epoch is a pass of its own, whose order is all that it draws: Keras' iterator need not be asked for it.
        # Steps of an epoch may be limited by Keras' configuration, too.
        is_jax = trainer_module.__name__.endswith("jax.trainer")
        is_plain = shuffle in (True, False) and self.iterator.steps_per_epoch is None and rows > 0
        self._is_known = is_jax and is_plain and _draws_alike()
        self._rows = rows
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._group = steps_per_execution
        self._batches = adapter.num_batches
        self._pass: Any = None
        self._enumerator: Any = None
        self.rows_of_pass: np.ndarray | None = None

    @property
    def steps(self) -> int:
        """Steps of an epoch, as callbacks are told."""
        return self.iterator.num_batches

    def peek(self) -> None:
        """Draw what stock Keras draws when it builds a model on the first batch."""
        for _, _, batches in passes(self.iterator):
            _next_numbers(batches)
            break

    def reset(self) -> None:
        self.iterator.reset()
        self._pass = None

    def begin_epoch(self) -> tuple[int, int, bool]:
        """Start an epoch: its first step within the pass, the number of steps, and whether `rows_of_pass` is new."""
        if self._is_known:
            self.rows_of_pass = self._drawn() if self._shuffle else None
            return 0, self._batches, True
        self._enumerator = passes(self.iterator)
        _, _, batches = next(self._enumerator)
        begins = batches is not self._pass
        self._pass = batches
        first = steps_seen(self.iterator) - self._group
        # Groups are never cut: an epoch of 5 steps in groups of 3 takes 6, if there are as many.
        wanted = -(-(self.iterator.steps_per_epoch or self._batches) // self._group) * self._group
        count = min(wanted, self._batches - first)
        if self._shuffle == "batch":
            # Drawn batch by batch, so no further than this epoch goes.
            earlier = [] if begins or self.rows_of_pass is None else [self.rows_of_pass[: first * self._batch_size]]
            numbers = np.concatenate([*earlier, *(_next_numbers(batches) for _ in range(count))])
            self.rows_of_pass = np.resize(numbers, self._rows).astype(np.int32, copy=False)
            return first, count, True
        if self._shuffle and begins:
            self.rows_of_pass = _next_numbers(batches).astype(np.int32, copy=False)
        return first, count, begins

    def _drawn(self) -> np.ndarray:
        order = self._drawn_ahead.take(self._rows)
        return (np.random.permutation(self._rows) if order is None else order).astype(np.int32, copy=False)

    def draw_ahead(self) -> None:
        """Draw the order of the next pass, as far as it can be foreseen."""
        if self._shuffle:
            self._drawn_ahead.look(self._rows)

    def draw_by(self, drawn: DrawnAhead) -> bool:
        """Have all orders from now on drawn by something else; False where only Keras' iterator knows them."""
        if self._is_known:
            self._drawn_ahead = drawn
        return self._is_known

    def close(self) -> None:
        """Have nothing left over of what was foreseen."""
        self._drawn_ahead.close()

    def end_epoch(self, steps: int, finished: bool) -> None:
        """Bring Keras' iterator to where stock Keras would have left it after so many steps."""
        if self._is_known:
            return
        if finished:
            for _ in self._enumerator:
                pass
        else:
            for _ in range(-(-steps // self._group) - 1):
                next(self._enumerator)
            self._enumerator.close()


class FileOrder:
    """The order in which the rows lie, for a single pass of `predict`: nothing of it grows with their number."""

    iterator = None
    rows_of_pass = None

    def __init__(self, rows: int, batch_size: int, steps: int | None, steps_per_execution: int):
        batches = -(-rows // batch_size)
        self.steps = steps or batches
        self.count = min(-(-self.steps // steps_per_execution) * steps_per_execution, batches)

    def reset(self) -> None:
        pass

    def begin_epoch(self) -> tuple[int, int, bool]:
        """As `Order.begin_epoch`."""
        return 0, self.count, True

    def draw_ahead(self) -> None:
        pass

    def close(self) -> None:
        pass

    def end_epoch(self, steps: int, finished: bool) -> None:
        pass


class RowFeed:
    """What feeds of rows that have numbers share: steps over them in Keras' order.

    Attributes:
        runs_user_code: Whether Python of the user may run from one step to the next.
        generators: Entered while an order is drawn, by whoever has random generators of its own for it.
    """

    is_exhausted = False
    runs_user_code = False
    generators: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def __init__(self, order: Order | FileOrder):
        self._order = order

    @property
    def loads(self) -> tuple[StreamReport, ...]:
        """What was decoded from files while the steps ran."""
        return ()

    @property
    def iterator(self) -> Any:
        """Keras' own epoch iterator."""
        return self._order.iterator

    @property
    def steps(self) -> int:
        """Steps of an epoch, as callbacks are told."""
        return self._order.steps

    def reset(self) -> None:
        self._order.reset()

    def draw_ahead(self) -> None:
        with self.generators():
            self._order.draw_ahead()

    def draw_by(self, drawn: DrawnAhead) -> bool:
        """As `Order.draw_by`."""
        return isinstance(self._order, Order) and self._order.draw_by(drawn)

    def end_epoch(self, steps: int, finished: bool) -> None:
        with self.generators():
            self._order.end_epoch(steps, finished)

    def close(self) -> None:
        """End what runs in the background."""
        self._order.close()


class ResidentFeed(RowFeed):
    """Steps over rows that a program holds: all are on the device, and only the order of an epoch goes there.

    Attributes:
        placement: How the rows came to be there: `"resident"`, or `"direct"` from files.
        end: Steps of the current epoch.

    With `rows`, those are the rows that the order is an order of.
    """

    def __init__(self, order: Order, program: Any, placement: str = "resident", rows: np.ndarray | None = None):
        super().__init__(order)
        self.placement = placement
        self._rows = None if rows is None else rows.astype(np.int32)
        self.end = self._first = 0
        self._program = program

    def begin_epoch(self) -> None:
        begins, numbers = self.draw_epoch()
        if begins:
            self._program.begin_pass(numbers)

    def draw_epoch(self) -> tuple[bool, np.ndarray | None]:
        """Begin an epoch for whoever runs its steps: whether a new pass begins, and the numbers of its rows."""
        with self.generators():
            self._first, self.end, begins = self._order.begin_epoch()
        return begins, self._numbers()

    def _numbers(self) -> np.ndarray | None:
        numbers = self._order.rows_of_pass
        if self._rows is None or numbers is None:
            return self._rows if numbers is None else numbers
        return self._rows[numbers]

    def ready(self, step: int) -> tuple[int, int] | None:
        """Have the rows of a step of the epoch in the program.

        Returns:
            The step's number within the program's rows, and how many steps from it on are there; None at the end.
        """
        return None if step >= self.end else (self._first + step, self.end - step)


def _next_numbers(batches: Any) -> np.ndarray:
    # Keras' torch backend would send the numbers to the GPU, from where we would have to fetch them.
    with keras.device("cpu") if keras.config.backend() == "torch" else contextlib.nullcontext():
        batch = next(batches)
    (numbers,) = batch if isinstance(batch, (tuple, list)) else (batch,)
    return np.asarray(numbers)


def _iterator_over_numbers(trainer_module: Any, shuffle: Any) -> Any:
    """Keras' epoch iterator: the backend's own, but for jax.

    That of jax differs from the plain one in sending batches to the device, one ahead of their use. The draws are the
    same, but for `shuffle="batch"`, which draws for every batch.
    """
    if trainer_module.__name__.endswith("jax.trainer") and shuffle != "batch":
        return plain_iterator_class()
    kind = iterator_class(trainer_module)
    return _begun_when_asked(kind) if trainer_module.__name__.endswith("tensorflow.trainer") else kind


def _begun_when_asked(kind: Any) -> Any:
    """TensorFlow's epoch iterator, which begins a pass over the numbers when the first ones are asked for.

    To begin one takes 15 ms and draws nothing. Keras begins one more than it uses in every epoch, and of rows in their
    order none is asked.
    """

    def begun(numbers: Any) -> Iterator[Any]:
        yield from numbers

    return read_by(kind, lambda _, begin: begun(begin()))


def _drawn_ahead_of(trainer_module: Any, shuffle: Any) -> DrawnAhead:
    """What draws orders ahead of time, where that can be done."""
    is_foreseeable, backend = shuffle and shuffle != "batch", trainer_module.__name__
    if is_foreseeable and backend.endswith("jax.trainer") and _draws_alike():
        return NumPyDrawnAhead()
    if is_foreseeable and backend.endswith("torch.trainer"):
        from .torch_order import TorchDrawnAhead

        return TorchDrawnAhead()
    return DrawnAhead()


@functools.cache
def _draws_alike() -> bool:
    """Whether the installed Keras draws one of NumPy's permutations for an epoch, as we do, and nothing else.

    Two epochs are tried, as Keras' iterator takes them, from the first step to the last.
    """
    iterator = plain_iterator_class()(x=_index_adapter(100, 10, True, DrawnAhead()))
    iterator.steps_per_epoch = None

    before, orders = np.random.get_state(), []
    try:
        for _ in range(2):
            for first, _, batches in passes(iterator):
                if first == 0:
                    orders.append(_next_numbers(batches))
        left = np.random.get_state()
        np.random.set_state(before)
        alike = all(np.array_equal(order, np.random.permutation(len(order))) for order in orders)
        return alike and are_same(np.random.get_state(), left)
    finally:
        np.random.set_state(before)


def _index_adapter(rows: int, batch_size: int, shuffle: Any, drawn_ahead: DrawnAhead) -> Any:
    """Keras' array adapter over row numbers, which counts batches of `batch_size` but yields each pass whole.

    A full permutation does not depend on the batch size, and one batch of all rows spares Keras' Python loop
    over thousands of small ones. `shuffle="batch"` does depend on it.
    """

    class IndexAdapter(adapter_class_drawing_ahead()):  # type: ignore[misc]
        _loader: Any = None

        @property
        def num_batches(self) -> int:
            return -(-rows // batch_size)

        def get_tf_dataset(self) -> Any:
            # Row numbers are quick to draw. TensorFlow's tuning of the pipeline gains nothing here, and now and then
            # takes a second to end with the pass.
            options = tf.data.Options()
            options.autotune.enabled = False
            return super().get_tf_dataset().with_options(options)

        def get_torch_dataloader(self) -> Any:
            from .torch_order import in_one_piece

            # Keras makes one for each pass, which takes half a millisecond and draws nothing.
            if self._loader is None:
                self._loader = in_one_piece(super().get_torch_dataloader(), drawn_ahead)
            return self._loader

        def drawn_batches(self) -> Any:
            numbers = drawn_ahead.take(rows)
            return None if numbers is None else [(numbers,)]

    numbers = np.arange(rows, dtype=np.int32 if rows < 2**31 else np.int64)
    return IndexAdapter(numbers, batch_size=batch_size if shuffle == "batch" else rows, shuffle=shuffle)
