"""What a run needs at step 0: a built model, a compiled step, and what feeds it.

A model is built between planning, which changes nothing, and the choice of the engine, which looks at the built model:
what is not built yet, with the random numbers that stock Keras draws for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.base.when_used import tree
from flatout.data.direct.load_report import DirectReport
from flatout.data.order.row_order import Order, ResidentFeed
from flatout.data.sources.description import ArraySource
from flatout.data.stream.batch_stream import BatchStream
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import Chunk
from flatout.engines.contract import Engine, StepProgram
from flatout.engines.stock.stock_loop import StockBatches
from flatout.seam.first_reset import build_before_first_reset
from flatout.seam.trainers import build_on_batch, is_unbuilt
from flatout.training.planning.engine_choice import choose_instead, engine_named
from flatout.training.planning.plan import Plan

# Has the rows of each step in the program when they are needed, in the order in which stock Keras takes them.
StepFeed = ResidentFeed | ArrayStream | BatchStream | StockBatches


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Arrays that several calls share, and the numbers of the rows of them that this call takes; None for all.

    `place` puts them where the plan of a call says, or knows where they are; None if there is no room.
    """

    place: Callable[[Plan], Any]
    rows: np.ndarray | None = None

    def source(self, whole: ArraySource) -> ArraySource:
        """What the arrays are described as, of those rows."""
        return whole if self.rows is None else replace(whole, rows=len(self.rows))


@dataclass(eq=False)
class Prepared:
    """A run at step 0.

    Attributes:
        plan: What was decided; its engine is that of `program`.
        program: The compiled step.
        feed: What feeds it.
        loads: How the bytes of files came to the device before the first step.
        steps: Taken so far.
    """

    plan: Plan
    program: StepProgram
    feed: StepFeed
    loads: tuple[DirectReport, ...] = ()
    steps: int = 0

    @property
    def engine(self) -> Engine:
        """What is done around the steps, also those of stock Keras."""
        return engine_named(self.plan.engine if self.plan.accelerated else self.plan.facts.backend)


def compile_step(plan: Plan, model: Any, *data: Any, **limits: Any) -> tuple[Plan, StepProgram]:
    """Compile the step that a plan asks for, by the engine that the plan returned names; `Refusal` if no engine can.

    `data` and `limits` are those of `Engine.prepare`.
    """
    try:
        return plan, engine_named(plan.engine).prepare(model, plan.task, *data, **limits)
    except Refusal as refusal:
        other = choose_instead(plan, refusal.reason)
        if other is None:
            raise
    return other, engine_named(other.engine).prepare(model, other.task, *data, **limits)


def build_on_rows(model: Any, plan: Plan, source: ArraySource, order: Order) -> None:
    """Build on the first rows of arrays, whose order stock Keras may draw for that.

    Raises:
        Refusal: The model's Python cannot be traced; where stock Keras traces it too, the error is its own.
    """
    unbuilt, engine = is_unbuilt(model), engine_named(plan.engine)
    if unbuilt and engine.peeks_to_build:
        order.peek()
    _build(model, plan, engine.place(source.head(source.batch_size)) if unbuilt else ())


def build_on_chunk(model: Any, plan: Plan, chunk: Chunk) -> None:
    """Build on the first batch that was read, which is trained on later."""
    rows = slice(chunk.batch_size)
    _build(model, plan, tree.map_structure(lambda leaf: leaf[rows], chunk.data, none_is_leaf=False))


def _build(model: Any, plan: Plan, batch: Any) -> None:
    if engine_named(plan.engine).peeks_to_build:
        # Stock Keras builds in the same way here: an error is the user's to see.
        build_on_batch(model, batch)
        return
    try:
        build_before_first_reset(model, batch, plan.task)
    except Exception as error:
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
