"""What a call is known to be, and what was decided: values that can be printed, compared and tested."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.base.errors import Reason
from flatout.base.sizes import as_size
from flatout.engines.contract import Task

from .costs import Costs

TASKS: dict[str, Task] = {"fit": "train", "evaluate": "test", "predict": "predict"}

TABLES = {
    "resident": "decoded whole into host memory, and placed from there",
    "direct": "decoded piece by piece into device memory",
    "ahead": "decoded piece by piece ahead of the steps, anew in each pass",
    "memory": "decoded once into host memory, where shuffled rows are gathered",
    "disk": "decoded once into a temporary file, from where shuffled rows are read",
    "host": "decoded whole into host memory, for stock Keras",
}


@dataclass(frozen=True)
class CallFacts:
    """All that the planner knows of a call.

    Attributes:
        method: `"fit"`, `"evaluate"` or `"predict"`.
        backend: Keras' backend.
        keras_version: Of the installed Keras.
        native: Whether CUDA kernels were asked for, and nothing speaks against them yet.
        native_obstacle: What speaks against them, if they were asked for.
        source: What the data are, in words.
        rows: Number of samples, or None for a source that is read batch by batch.
        batch_size: Rows a step takes, if known.
        steps: Steps that the whole call will take, if known.
        nbytes: Bytes of data to place, if known.
        is_file: Whether some of it is in files that can be read straight into device memory.
        copies: Whether the device has memory of its own.
        table_bytes: Bytes of the data that are encoded in files and can only be decoded from their beginning on.
        shuffles: Whether rows are taken in another order than they lie in.
        free_bytes: Free memory of the device, or None if unknown.
        host_bytes: Memory that this process may still take, or None if unknown.
        obstacles: What the model, its callbacks or its data put in the way.
        costs: What stock Keras and the engine take for it, as far as can be told.
        program: What the compiled step is known by on disk.
        workers: Devices that we shall divide each batch among.
        is_for_one: Whether one device runs it: neither we nor Keras divide its batches.
    """

    method: str
    backend: str
    keras_version: str
    native: bool = False
    native_obstacle: Reason | None = None
    source: str = "arrays"
    rows: int | None = 0
    batch_size: int | None = 0
    steps: int | None = 0
    nbytes: int | None = 0
    is_file: bool = False
    copies: bool = False
    table_bytes: int = 0
    shuffles: bool = False
    free_bytes: int | None = None
    host_bytes: int | None = None
    obstacles: tuple[Reason, ...] = ()
    costs: Costs | None = None
    program: str = ""
    workers: int = 1
    is_for_one: bool = True


@dataclass(frozen=True)
class Plan:
    """Where a call will run, where its data will live, and why.

    Attributes:
        facts: What was known.
        engine: Which engine runs it, or `"stock"`.
        data: `"resident"`, `"streamed"`, `"direct"`, or `"host"` under stock Keras.
        reasons: Why stock Keras runs, or why a slower way is taken.
        budget: Bytes that data may take on the device.
        chunk_steps: Steps of a chunk, if streamed.
        host_budget: Bytes that tables may take in host memory.

    Example:
        >>> import flatout, keras, numpy as np
        >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> plan = flatout.plan(model, np.zeros((64, 4)), np.zeros(64))
        >>> plan.engine
        'stock'
        >>> [why.code for why in plan.reasons]
        ['small']
    """

    facts: CallFacts
    engine: str
    data: str
    reasons: tuple[Reason, ...] = ()
    budget: int | None = None
    chunk_steps: int | None = None
    host_budget: int | None = None

    @property
    def accelerated(self) -> bool:
        return self.engine != "stock"

    @property
    def task(self) -> Task:
        """Which of the model's steps the call takes."""
        return TASKS[self.facts.method]

    @property
    def tables(self) -> str | None:
        """What becomes of tables that are encoded in files: a key of `TABLES`, or None if there are none."""
        if not self.facts.table_bytes:
            return None
        if self.data != "streamed":
            return self.data
        if not self.facts.shuffles:
            return "ahead"
        too_large = self.host_budget is not None and self.facts.table_bytes > self.host_budget
        return "disk" if too_large else "memory"

    def explain(self) -> str:
        """The plan in words, a line for each fact and reason."""
        facts = self.facts
        numbers = {
            "source": facts.source,
            "rows": facts.rows,
            "batch size": facts.batch_size,
            "steps": facts.steps,
            "estimate": None if facts.costs is None else str(facts.costs),
            "data": None if facts.nbytes is None else as_size(facts.nbytes),
            "free memory": None if facts.free_bytes is None else as_size(facts.free_bytes),
            "budget": None if self.budget is None else as_size(self.budget),
            "chunk": None if self.chunk_steps is None else f"{self.chunk_steps:,} steps",
            "tables": None if self.tables is None else TABLES[self.tables],
        }
        lines = [f"{facts.method} on {self.engine}, {self.data} data"]
        for name, value in numbers.items():
            if value is not None:
                lines.append(f"  {name:<12}{value:,}" if isinstance(value, int) else f"  {name:<12}{value}")
        return "\n".join([*lines, *(f"  {why}" for why in self.reasons)])

    __str__ = explain
