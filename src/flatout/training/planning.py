"""The plan: a pure function of facts (rows, bytes, free memory, model, options) to a decision with its reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flatout.base.errors import Reason, reason
from flatout.base.options import Options
from flatout.base.sizes import as_size
from flatout.data.stream.chunks import even_chunks, steps_per_chunk

BACKENDS = ("jax", "tensorflow", "torch")
# Keras' internals that we touch were read in these versions, and its own test suite passes under us on them.
TESTED_KERAS = ((3, 15, 1), (3, 16))
# Fewer steps than this do not repay what tracing and compiling cost beyond stock Keras' own (benchmarks/break_even.py).
# On jax a small MLP, whose steps save least, breaks even after 220 steps on an H200 and 340 on two cores.
WORTHWHILE_STEPS = {"jax": 300, "tensorflow": 60, "torch": 60}
# Of free host memory, for tables that are decoded into it before they are sent to a device with memory of its own.
_HOST_SHARE = 0.6
# Larger ones are decoded into the device's memory on a CPU too: first into an array, they would take it twice.
_LARGE_TABLE = 256_000_000
TABLES = {
    "resident": "decoded whole into host memory, and placed from there",
    "direct": "decoded piece by piece into device memory",
    "ahead": "decoded piece by piece ahead of the steps, anew in each pass",
    "memory": "decoded once into host memory, where shuffled rows are gathered",
    "disk": "decoded once into a temporary file, from where shuffled rows are read",
    "host": "decoded whole into host memory, for stock Keras",
}


@dataclass(frozen=True)
class Facts:
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

    facts: Facts
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


def decide(facts: Facts, options: Options) -> Plan:
    """Choose engine and placement. No side effects."""
    why = _refusals(facts, options)
    if why:
        notes = () if facts.native_obstacle is None else (facts.native_obstacle,)
        return Plan(facts, "stock", "host", (*notes, *why))
    engine = "native" if facts.native else facts.backend
    told = [] if facts.native_obstacle is None else [facts.native_obstacle]
    if facts.rows is None:
        return Plan(facts, engine, "streamed", (*told, reason("batches", facts.source)))
    free = facts.free_bytes
    if free is not None and facts.host_bytes is not None and not facts.copies:
        # Its memory is the host's, of which this process may have less to itself than there is.
        free = min(free, facts.host_bytes)
    budget = None if free is None else options.budget(free)
    nbytes = facts.nbytes or 0
    placement = options.data
    if options.data == "auto" and budget is not None and nbytes > budget:
        placement = "streamed"
        told.append(reason("memory", as_size(nbytes), as_size(budget)))
    elif options.data == "auto":
        pays = facts.copies or facts.table_bytes > _LARGE_TABLE
        placement = "direct" if facts.is_file and pays else "resident"
    chunk = None
    if placement == "streamed":
        batch_size = facts.batch_size or 1
        most = steps_per_chunk(nbytes * batch_size // max(1, facts.rows)) * (2 if facts.copies else 1)
        chunk = even_chunks(facts.rows // batch_size, most)
    plan = Plan(facts, engine, placement, tuple(told), budget, chunk, _host_budget(facts, options))
    return with_notes(plan)


def with_notes(plan: Plan) -> Plan:
    """A plan with what it makes of tables as one of its reasons, where that takes what the user may want to know of."""
    if plan.tables != "disk":
        return plan
    note = reason("decoded_to_disk", as_size(plan.facts.table_bytes), as_size(plan.host_budget or 0))
    return replace(plan, reasons=(*plan.reasons, note))


def _host_budget(facts: Facts, options: Options) -> int | None:
    if facts.host_bytes is None:
        return None
    # Without memory of its own the device has the host's, for which the user may have set a limit.
    return int(_HOST_SHARE * facts.host_bytes) if facts.copies else options.budget(facts.host_bytes)


def _refusals(facts: Facts, options: Options) -> list[Reason]:
    if not options.enabled:
        return [reason("disabled")]
    if options.engine == "stock":
        return [reason("asked_for_stock")]
    if facts.backend not in BACKENDS:
        return [reason("backend", facts.backend)]
    why: list[Reason] = []
    low, high = TESTED_KERAS
    if not low <= version_tuple(facts.keras_version) < high and not options.force:
        why.append(reason("keras_version", facts.keras_version, f"{_dotted(low)} to below {_dotted(high)}"))
    why.extend(facts.obstacles)
    if why:
        return why
    if facts.rows is None and options.data in ("resident", "direct"):
        return [reason("placement", options.data, facts.source)]
    if options.data == "direct" and not facts.is_file:
        return [reason("placement", options.data, facts.source)]
    # Kernels are soon compiled, and were asked for.
    if (
        not facts.native
        and facts.steps is not None
        and facts.steps < WORTHWHILE_STEPS[facts.backend]
        and not options.force
    ):
        return [reason("small", facts.steps)]
    return []


def version_tuple(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `"3.16.0.dev1"` gives `(3, 16, 0)`."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def obstacles_of_model(model: Any, method: str, backend: str, may_round: bool) -> list[Reason]:
    """What a model itself puts in the way of an engine.

    Args:
        model: A Keras model.
        method: `"fit"`, `"evaluate"` or `"predict"`.
        backend: Keras' backend.
        may_round: Whether results need be equal up to rounding only.
    """
    from keras.src.backend.config import is_nnx_enabled
    from keras.src.distribution import distribution_lib

    why: list[Reason] = []
    if distribution_lib.distribution() is not None:
        why.append(reason("distribution"))
    if backend == "tensorflow" and getattr(model, "_distribute_strategy", None) is not None:
        why.append(reason("tf_distribute"))
    if backend == "jax" and is_nnx_enabled():
        why.append(reason("nnx"))
    if getattr(model, "_run_eagerly", False):
        why.append(reason("run_eagerly"))
    elif backend == "jax" and not model.jit_compile:
        blockers = sorted({type(layer).__name__ for layer in model._flatten_layers() if not layer.supports_jit})
        # Keras leaves a model uncompiled for layers that TensorFlow's XLA lacks, such as RandomRotation. jax compiles
        # them, but its programs round otherwise than one operation after the other does.
        if not (blockers and may_round):
            why.append(reason("jit_compile_off", ", ".join(blockers) or "it was compiled with jit_compile=False"))
    elif backend == "torch" and model.jit_compile:
        why.append(reason("torch_compile"))
    why.extend(_replaced_step_functions(model, method))
    return why


def _replaced_step_functions(model: Any, method: str) -> list[Reason]:
    names = {"fit": ("train",), "evaluate": ("test",), "predict": ("predict",)}[method]
    why: list[Reason] = []
    for name in names:
        maker = getattr(type(model), f"make_{name}_function")
        function = getattr(model, f"{name}_function", None)
        function = getattr(function, "python_function", function)
        if not _is_of_keras(maker):
            why.append(reason("custom_step_function", f"make_{name}_function"))
        elif (
            function is not None and not _is_of_keras(function) and not hasattr(function, "_torchdynamo_orig_callable")
        ):
            why.append(reason("custom_step_function", f"{name}_function"))
    return why


def _is_of_keras(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").startswith("keras.")
