"""Programs that run step after step from Python: the replay of a captured step, and the model's own step as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from keras.src import backend, tree

from flatout.base.errors import Reason
from flatout.data.stream.chunks import packed
from flatout.engines.contract import Structure, Task
from flatout.engines.torch.capture.captured_step import STEP_NAMES, CapturedStep, leaves_of


class Rows:
    """The placed data, and which rows each step of a pass takes."""

    def __init__(self, data: Structure, rows: int, batch_size: int) -> None:
        self.replace(data)
        self.rows = rows
        self.batch_size = batch_size
        self._order: torch.Tensor | None = None

    def replace(self, data: Structure) -> None:
        """Take other rows of the same shapes."""
        self.structure, self.leaves = data, leaves_of(data)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._order = None
        if order is not None:
            self._order = torch.as_tensor(np.ascontiguousarray(order, dtype=np.int64), device=self.leaves[0].device)

    def take(self, step: int, copy: bool = True) -> list[torch.Tensor]:
        """The leaves of a step's batch; without `copy` they may be views of the data."""
        first = step * self.batch_size
        count = min(self.batch_size, self.rows - first)
        if self._order is None:
            parts = [leaf.narrow(0, first, count) for leaf in self.leaves]
            return [part.clone() for part in parts] if copy else parts
        index = self._order.narrow(0, first, count)
        return [leaf.index_select(0, index) for leaf in self.leaves]

    def batch(self, step: int) -> Structure:
        """A step's batch, in the structure that Keras passes to `train_step`."""
        return packed(self.structure, self.take(step))


class Loop:
    """What all loops share: the rows, the captured step, and the shape of the results.

    Attributes:
        full: The step for whole batches, if there are any and it was captured.
        last: The step for a smaller last batch, likewise.
        steps_to_come: How many the caller will want in all, from the next on; 0 if nobody can say.
        output_size: Bytes of a step's outputs, if they are known.
        is_for_one_step: Whether a quicker loop may be had when a step has run.
    """

    unit = 1
    is_for_one_step = False
    steps_to_come = 0

    def __init__(
        self,
        model: Any,
        task: Task,
        rows: Rows,
        full: CapturedStep | None = None,
        last: CapturedStep | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        self.model, self.task, self.rows = model, task, rows
        self.full, self.last, self._reasons = full, last, reasons
        captured = full or last
        self.output_size = captured.output_size if captured is not None else None
        self.whole_batches = rows.rows // rows.batch_size

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why no quicker loop was taken, and what else is to be told."""
        return self._reasons

    @property
    def runs_beside_others(self) -> bool:
        """Whether the device takes its steps beside those of other models."""
        return False

    def holds(self) -> bool:
        """Whether the step is still what was captured: nothing that its Python reads has changed."""
        return all(captured.reads.hold() for captured in (self.full, self.last) if captured is not None)

    def replace(self, data: Structure) -> None:
        """Take other rows of the same shapes."""
        self.rows.replace(data)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self.rows.begin_pass(order)

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        if self.task != "predict":
            return self._run(start, stop, every_step)
        return [tree.map_structure(backend.convert_to_numpy, result) for result in self._run(start, stop, True)]

    def _run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        """The results of each step, or of the last one alone; the steps work on the variables themselves."""
        results = [self._step(i, every_step or i == stop - 1) for i in range(start, stop)]
        return results if every_step else results[-1:]

    def _step(self, step: int, is_wanted: bool) -> Any:
        raise NotImplementedError


class ReplayLoop(Loop):
    """Replays a captured step: one Python function of ATen calls for each batch."""

    def _run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            return super()._run(start, stop, every_step)

    def _step(self, step: int, is_wanted: bool) -> Any:
        captured = self.full if step < self.whole_batches else self.last
        assert captured is not None
        batch = self.rows.take(step, copy=captured.changes_inputs)
        if is_wanted:
            return captured.pack(captured.step(*batch))
        return captured.quiet_step(*batch)


class EagerLoop(Loop):
    """Calls the model's own step on rows that are in place: exact for any Python, without DataLoader and callbacks."""

    def _step(self, step: int, is_wanted: bool) -> Any:
        with torch.set_grad_enabled(self.task == "train"):
            outputs = getattr(self.model, STEP_NAMES[self.task])(self.rows.batch(step))
        if self.output_size is None:
            self.output_size = sum(leaf.nbytes for leaf in tree.flatten(outputs) if isinstance(leaf, torch.Tensor))
        return tree.map_structure(_frozen, outputs) if is_wanted else None


def _frozen(item: Any) -> Any:
    """A result that later steps cannot change."""
    item = getattr(item, "value", item)
    if not isinstance(item, torch.Tensor):
        return item
    # Only a leaf can be a variable; other results are fresh.
    return item.detach().clone() if item.is_leaf else item.detach()
