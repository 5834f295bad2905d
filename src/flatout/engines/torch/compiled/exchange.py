"""When a step is compiled behind the run, and when what came of it takes the recorded step's place."""

from __future__ import annotations

import time

from flatout.base.errors import Reason, reason
from flatout.engines.contract import in_short
from flatout.engines.torch.graph.step_graph import Graph

from .compilation import Compilation
from .segment import CannotCompile, SegmentedStep, segmented

# Seconds of the run that must be left: compiling takes 15 to 90, loading 2 to 5, and exchanging some tenths.
_WORTH_COMPILING, _WORTH_LOADING, _WORTH_EXCHANGING = 20.0, 6.0, 1.0
# Seconds between two looks at the clock and the compiler.
_PAUSE = 0.25


class Exchange:
    """A step that may be compiled while it runs.

    Attributes:
        is_over: Whether nothing more is to come: it was exchanged, or will not be.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self._begun: tuple[SegmentedStep, Compilation] | None = None
        self._next_look = 0.0
        self._failure = ""
        self._exchanged: tuple[int, float] | None = None

    @property
    def is_over(self) -> bool:
        return bool(self._failure) or self._exchanged is not None

    @property
    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return not self.is_over and time.monotonic() >= self._next_look

    def compiled(self, seconds_left: float) -> Graph | None:
        """The compiled step if it is there; else see to it, if what is left of the run makes it worth its while."""
        self._next_look = time.monotonic() + _PAUSE
        if seconds_left < (_WORTH_LOADING if self._begun is None else _WORTH_EXCHANGING):
            return None
        try:
            return self._looked_at(seconds_left)
        except CannotCompile as why:
            self.fail(str(why))
        except Exception as error:  # Whatever is wrong with a compiler, its files or its process.
            self.fail(in_short(error))
        return None

    def _looked_at(self, seconds_left: float) -> Graph | None:
        if self._begun is None:
            step = segmented(self._graph)
            self._begun = step, Compilation(step)
        step, compilation = self._begun
        if compilation.functions is None and not compilation.failure:
            if compilation.is_on_disk:
                if seconds_left >= _WORTH_LOADING:
                    compilation.load()
            elif seconds_left >= _WORTH_COMPILING:
                compilation.begin()
        if compilation.failure:
            self.fail(compilation.failure)
        return None if compilation.functions is None else step.with_compiled(compilation.functions)

    def reject(self, why: str) -> None:
        """What came of it is wrong, for every run."""
        if self._begun is not None:
            self._begun[1].give_up(why)
        self.fail(why)

    def fail(self, why: str) -> None:
        """The recorded step stays."""
        self._failure = why
        # It has memory of the device.
        self._begun = None

    def succeed(self, steps: int, seconds: float) -> None:
        """It took the place of the recorded step, of which so many had run, and took so long each."""
        self._exchanged = steps, seconds

    def reasons(self, seconds: float | None) -> tuple[Reason, ...]:
        """What is to be told of it; a step takes so long now."""
        if self._failure:
            return (reason("not_compiled", self._failure),)
        if self._exchanged is None:
            return ()
        steps, before = self._exchanged
        now = "" if seconds is None else f", {seconds * 1e6:,.0f} us now"
        return (reason("compiled_behind", f"{steps:,}", f"{before * 1e6:,.0f} us a step before{now}"),)
