"""Programs that run step after step from Python: the replay of a captured step, and the model's own step as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from keras.src import backend, tree

from flatout.base.errors import Reason
from flatout.data.stream.chunks import packed
from flatout.engines.contract import Structure, Task
from flatout.engines.torch.capture.captured_step import STEP_NAMES, CapturedStep, leaves_of
from flatout.engines.torch.graph.step_graph import refs_in


class Rows:
    """The placed data, and which rows each step of a pass takes."""

    def __init__(self, data: Structure, rows: int, batch_size: int) -> None:
        self.structure = data
        self.leaves = leaves_of(data)
        self.rows = rows
        self.batch_size = batch_size
        self._order: torch.Tensor | None = None

    def replace(self, data: Structure) -> None:
        """Take other rows of the same shapes."""
        self.structure, self.leaves = data, leaves_of(data)

    def begin_pass(self, order: np.ndarray | None) -> None:
        if order is None:
            self._order = None
        else:
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
    """What all loops share: the rows, and the shape of the results.

    Attributes:
        output_size: Bytes of a step's outputs, if they are known.
    """

    unit = 1
    pays = True
    output_size: int | None = None

    def __init__(self, model: Any, task: Task, rows: Rows) -> None:
        self.model = model
        self.task = task
        self.rows = rows
        self.reasons: tuple[Reason, ...] = ()

    def replace(self, data: Structure) -> None:
        """Take other rows of the same shapes."""
        self.rows.replace(data)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self.rows.begin_pass(order)

    def end_pass(self) -> None:
        """The steps work on the variables themselves."""

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        every_step = every_step or self.task == "predict"
        results = [self._step(i, every_step or i == stop - 1) for i in range(start, stop)]
        results = results if every_step else results[-1:]
        if self.task == "predict":
            return [tree.map_structure(backend.convert_to_numpy, result) for result in results]
        return results

    def _step(self, step: int, is_wanted: bool) -> Any:
        raise NotImplementedError


class ReplayLoop(Loop):
    """Replays a captured step: one Python function of ATen calls for each batch.

    Attributes:
        full: The step for whole batches, or None if there are none.
        last: The step for a smaller last batch, or None.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        rows: Rows,
        full: CapturedStep | None,
        last: CapturedStep | None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        super().__init__(model, task, rows)
        self.reasons = reasons
        self.full = full
        self.last = last
        self.output_size = size_of_outputs(full or last)
        self._whole_batches = rows.rows // rows.batch_size

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            return super().run(start, stop, every_step)

    def _step(self, step: int, is_wanted: bool) -> Any:
        captured = self.full if step < self._whole_batches else self.last
        assert captured is not None
        batch = self.rows.take(step, copy=captured.changes_inputs)
        if is_wanted:
            return captured.pack(captured.step(*batch))
        return captured.quiet_step(*batch)


class EagerLoop(Loop):
    """Calls the model's own step on rows that are in place: exact for any Python, without DataLoader and callbacks.

    Attributes:
        reasons: Why the step was not captured.
    """

    def __init__(self, model: Any, task: Task, rows: Rows, why: Reason) -> None:
        super().__init__(model, task, rows)
        self.reasons = (why,)
        self._name = STEP_NAMES[task]

    def _step(self, step: int, is_wanted: bool) -> Any:
        with torch.set_grad_enabled(self.task == "train"):
            outputs = getattr(self.model, self._name)(self.rows.batch(step))
        if self.output_size is None:
            self.output_size = sum(leaf.nbytes for leaf in tree.flatten(outputs) if isinstance(leaf, torch.Tensor))
        return tree.map_structure(_frozen, outputs) if is_wanted else None


def size_of_outputs(captured: CapturedStep | None) -> int | None:
    """Bytes of what a captured step returns."""
    if captured is None:
        return None
    outputs = [captured.graph.values[ref.index] for ref in refs_in(captured.graph.outputs)]
    return sum(math.prod(value.shape) * value.dtype.itemsize for value in outputs)


def _frozen(item: Any) -> Any:
    """A result that later steps cannot change."""
    item = getattr(item, "value", item)
    if not isinstance(item, torch.Tensor):
        return item
    # Only a leaf can be a variable; other results are fresh.
    return item.detach().clone() if item.is_leaf else item.detach()
