"""A step that was traced once, looped over placed rows: what jax and TensorFlow share."""

from __future__ import annotations

import operator
from abc import abstractmethod
from typing import Any

import numpy as np
from keras import tree

from flatout.base.errors import Reason, Refusal, reason
from flatout.seam.trainers import step_function

from .contract import StepProgram, Structure, Task, in_short, steps_per_piece
from .kept_functions import Functions


class LoopedProgram(StepProgram):
    """Full batches run in loops, what is left over step by step; the arguments are those of `Engine.prepare`.

    Attributes:
        data: The rows, on the device.
        batch_size: Rows of a full batch.
        full: How many there are.
        rest: Rows of the last one, if it has fewer.
    """

    reasons: tuple[Reason, ...] = ()
    longest: int | None = None

    def __init__(
        self, model: Any, task: Task, data: Structure, rows: int, batch_size: int, any_length: bool, output_bytes: int
    ):
        self._model, self._task, self._output_bytes = model, task, output_bytes
        # As stock Keras' data set sees it: batches of 32 from 20 rows are of unknown length.
        self._length = None if any_length or rows % batch_size else min(batch_size, rows)
        self._functions = Functions(model, task)
        # Whether nobody has traced the step yet, and whether a step was taken here.
        self._is_first = self._functions.is_untouched
        self._has_begun = False
        self._loops = True
        self._is_in_order = False
        self._order: Any = None
        self._rest_order: Any = None
        self._hold(data, rows, batch_size)
        try:
            self._trace()
        except Exception as error:
            self.renew()
            raise Refusal(reason("untraceable", f"{task}_step", in_short(error))) from error

    @abstractmethod
    def _trace(self) -> None:
        """Trace a step: one that cannot be compiled fails here, before step 0."""

    @abstractmethod
    def _run_loop(self, start: int, stop: int, keeps_all: bool) -> Any:
        """Run steps of full batches; the outputs of the last, or those of all, stacked."""

    @abstractmethod
    def _run_step(self, step: int) -> Any: ...

    @abstractmethod
    def _put(self, numbers: np.ndarray) -> Any:
        """Put row numbers on the device."""

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        self.data = data
        self.batch_size = min(batch_size, rows)
        self.full, self.rest = divmod(rows, self.batch_size)

    def _limit_outputs(self, nbytes: int) -> None:
        """Let outputs of this size in each step leave the device in pieces."""
        self.longest = steps_per_piece(nbytes, self._output_bytes, self._model.steps_per_execution, self.unit)

    def _looped(self, start: int, stop: int) -> int:
        """How many steps from `start` on go into a loop."""
        return max(0, min(stop, self.full) - start) // self.unit * self.unit if self._loops else 0

    def renew(self) -> None:
        if self._has_begun:
            return
        if self._is_first:
            getattr(self._model, f"make_{self._task}_function")(force=True)
        else:
            self._functions.forget_fresh()

    def _begin(self) -> None:
        """From here on what is traced counts; stock Keras would trace in its first step."""
        was_tried = not self._is_for_good
        self._has_begun = True
        if step_function(self._model, self._task) is not self._functions.owner:
            # It was made anew, to read the model's Python again.
            self.end_pass()
            self._functions = Functions(self._model, self._task)
            self._trace()
        elif was_tried and self._functions.forget_fresh():
            self._trace()

    @property
    def _is_for_good(self) -> bool:
        """Whether to trace in stock Keras' own function, which reads the model's Python once, whoever runs it again.

        Not to try whether a step can be traced: what others have traced there cannot be told from what is traced now.
        """
        return self._is_first or self._has_begun

    def replace(self, data: Structure, rows: int, batch_size: int, filled: int | None = None) -> None:
        before = (self.full, self.rest, self.batch_size)
        self._hold(data, rows, batch_size)
        if (self.full, self.rest, self.batch_size) != before or not self._is_in_order:
            self.begin_pass(None)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._is_in_order = order is None
        cut = self.full * self.batch_size
        if order is None:
            order = np.arange(cut + self.rest, dtype=np.int32)
        self._order = self._put(order[:cut].reshape(self.full, self.batch_size))
        self._rest_order = self._put(order[cut:]) if self.rest else None

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        self._begin()
        keeps_all = every_step or self._task == "predict"
        results: list[Any] = []
        if looped := self._looped(start, stop):
            outputs = self._run_loop(start, start + looped, keeps_all)
            results = _unstacked(outputs, looped) if keeps_all else [outputs]
        for step in range(start + looped, stop):
            outputs = self._run_step(step)
            results = [*results, outputs] if keeps_all else [outputs]
        if self._task == "predict":
            results = [tree.map_structure(np.asarray, output) for output in results]
        return results


def _unstacked(outputs: Any, count: int) -> list[Any]:
    columns = tree.map_structure(np.asarray, outputs, none_is_leaf=False)
    return [tree.map_structure(operator.itemgetter(n), columns, none_is_leaf=False) for n in range(count)]
