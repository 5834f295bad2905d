"""What a run needs at step 0: a compiled step, and what feeds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flatout.data.direct.load_report import DirectReport, StreamReport
from flatout.engines.contract import Engine, StepProgram
from flatout.training.planning.plan import Plan


class StepFeed(Protocol):
    """Has the rows of each step in the program when they are needed, in the order in which stock Keras takes them."""

    placement: str
    end: int | None

    @property
    def iterator(self) -> Any: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def is_exhausted(self) -> bool: ...
    @property
    def loads(self) -> tuple[StreamReport, ...]: ...
    def reset(self) -> None: ...
    def begin_epoch(self) -> None: ...
    def ready(self, step: int) -> tuple[int, int] | None: ...
    def draw_ahead(self) -> None: ...
    def end_epoch(self, steps: int, finished: bool) -> None: ...
    def close(self) -> None: ...


@dataclass(eq=False)
class Prepared:
    """A run at step 0.

    Attributes:
        plan: What was decided; its engine is that of `engine` and of `program`.
        engine: What is done around the steps.
        program: The compiled step.
        feed: What feeds it.
        loads: How the bytes of files came to the device before the first step.
        steps: Taken so far.
    """

    plan: Plan
    engine: Engine
    program: StepProgram
    feed: StepFeed
    loads: tuple[DirectReport, ...] = ()
    steps: int = 0
