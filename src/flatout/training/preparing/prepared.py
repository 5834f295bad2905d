"""What a run needs at step 0: a built model, a compiled step, and what feeds it.

A model is built between planning, which changes nothing, and the choice of the engine, which looks at the built model:
what is not built yet, with the random numbers that stock Keras draws for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flatout.base.errors import Refusal, reason
from flatout.data.direct.load_report import DirectReport
from flatout.data.order.row_order import Order, ResidentFeed
from flatout.data.sources.description import ArraySource
from flatout.data.stream.batch_stream import BatchStream
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import Chunk
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, Engine, StepProgram
from flatout.engines.stock.stock_loop import StockBatches
from flatout.seam.first_reset import build_before_first_reset
from flatout.seam.trainers import build_on_batch, is_unbuilt
from flatout.training.planning.engine_choice import choose_instead, engine_named
from flatout.training.planning.plan import Plan

# Has the rows of each step in the program when they are needed, in the order in which stock Keras takes them.
StepFeed = ResidentFeed | ArrayStream | BatchStream | StockBatches


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


def compile_step(
    plan: Plan,
    model: Any,
    data: Any,
    rows: int,
    batch_size: int,
    any_length: bool = False,
    output_bytes: int | None = None,
) -> tuple[Plan, StepProgram]:
    """Compile the step that a plan asks for, by the engine that the plan returned names; `Refusal` if no engine can."""
    limits = (any_length, OUTPUT_BYTES_PER_CHUNK if output_bytes is None else output_bytes)
    try:
        return plan, engine_named(plan.engine).prepare(model, plan.task, data, rows, batch_size, *limits)
    except Refusal as refusal:
        other = choose_instead(plan, refusal.reason)
        if other is None:
            raise
    return other, engine_named(other.engine).prepare(model, other.task, data, rows, batch_size, *limits)


def build_on_rows(model: Any, engine: Engine, source: ArraySource, order: Order) -> None:
    """Build on the first rows of arrays, whose order stock Keras may draw for that.

    Raises:
        Refusal: The model's Python cannot be traced; where stock Keras traces it too, the error is its own.
    """
    unbuilt = is_unbuilt(model)
    if unbuilt and engine.peeks_to_build:
        order.peek()
    _build(model, engine, engine.place(source.head(source.batch_size)) if unbuilt else ())


def build_on_chunk(model: Any, engine: Engine, chunk: Chunk) -> None:
    """Build on the first batch that was read, which is trained on later."""
    from keras import tree

    _build(
        model, engine, tree.map_structure(lambda leaf: leaf if leaf is None else leaf[: chunk.batch_size], chunk.data)
    )


def _build(model: Any, engine: Engine, batch: Any) -> None:
    try:
        (build_on_batch if engine.peeks_to_build else build_before_first_reset)(model, batch)
    except Exception as error:
        if engine.peeks_to_build:
            # Stock Keras builds in the same way here: the error is the user's to see.
            raise
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
