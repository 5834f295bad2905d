"""Gathering the facts of a call: its data are described once, here, and handed on with the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flatout.base.errors import InvalidOption, Reason, Refusal, reason
from flatout.base.options import Options
from flatout.data.files.page_cache import available_memory
from flatout.data.resident import placing
from flatout.data.sources.description import ArraySource, BatchSource, describe
from flatout.engines.contract import Engine
from flatout.engines.select import engine_for
from flatout.seam.symbolic_build import has_built_layers

from .callback_services import services_of
from .decision import decide
from .model_obstacles import obstacles_of_model
from .plan import CallFacts, Plan

# The data of a call, or why they cannot be described.
Source = ArraySource | BatchSource | Reason


def plan_call(
    method: str, model: Any, call: dict[str, Any], options: Options, source: Source | None = None
) -> tuple[Plan, Source | None]:
    """Plan a call, whose `validation_split` is already taken off, without changing anything.

    Returns the plan, and the data: described here unless they were before, or None if nobody had to look at them.
    """
    import keras

    backend = keras.config.backend()
    if options.engine not in ("auto", "native", "stock", backend):
        raise InvalidOption(
            f"Invalid value for option `engine`. Received: engine={options.engine!r} on the Keras backend "
            f"{backend!r}. Expected 'auto', 'native', 'stock' or {backend!r}."
        )
    facts = CallFacts(method, backend, keras.__version__)
    early = decide(facts, Options(enabled=options.enabled, engine=options.engine, force=True))
    if early.reasons:
        return early, source
    engine = engine_for(backend)
    obstacles = obstacles_of_model(model, method, backend, options.precision == "fast" or engine.reuses_memory)
    source = source or describe_call(method, call)
    if isinstance(source, Reason):
        return decide(replace(facts, obstacles=(*obstacles, source)), options), source
    obstacles.extend(_obstacles_of_call(method, model, call, backend))
    native = None
    if options.engine == "native" and not obstacles:
        from flatout.native.run.native_engine import obstacle

        native = obstacle(model, method)
    per_epoch = steps_of(method, call) or source.batches
    facts = replace(
        facts,
        native=options.engine == "native" and native is None,
        native_obstacle=native,
        steps=None if per_epoch is None else epochs_of(call) * per_epoch,
        free_bytes=None if obstacles else engine.free_memory(),
        shuffles=method == "fit" and bool(call.get("shuffle")),
        obstacles=tuple(obstacles),
    )
    return decide(_with_data(facts, source, engine), options), source


def describe_call(method: str, call: dict[str, Any]) -> Source:
    """The training, test or prediction data of a call, looked at and not read."""
    try:
        return describe(
            call.get("x"),
            call.get("y"),
            call.get("sample_weight"),
            batch_size=call.get("batch_size"),
            steps=steps_of(method, call),
            class_weight=call.get("class_weight"),
        )
    except Refusal as refusal:
        return refusal.reason


def steps_of(method: str, call: dict[str, Any]) -> int | None:
    """Steps of an epoch if the user limits them, by argument or by `keras.config.set_max_steps_per_epoch`."""
    import keras

    steps = call.get("steps_per_epoch" if method == "fit" else "steps")
    if steps is not None and steps < 0:
        raise Refusal(reason("steps", steps))
    most = keras.config.max_steps_per_epoch()
    return min(most, steps or most) if most else steps


def epochs_of(call: dict[str, Any]) -> int:
    """Passes that a call makes over its data."""
    return max(0, call.get("epochs", 1) - call.get("initial_epoch", 0))


def _obstacles_of_call(method: str, model: Any, call: dict[str, Any], backend: str) -> list[Reason]:
    """What the arguments of a call put in the way of an engine."""
    why: list[Reason] = []
    if call.get("shuffle") == "batch":
        if backend == "torch":
            why.append(reason("shuffle_batch", "torch's layers"))
        elif backend == "jax" and services_of(call.get("callbacks")) & {"replay", "step"}:
            # They may draw from NumPy's generator, or stop, between the draws for two batches.
            why.append(reason("shuffle_batch", "callbacks that act on every step"))
    if method == "fit" and not epochs_of(call):
        # Nothing may be read of a generator then, and no order be drawn.
        why.append(reason("no_epochs", call.get("epochs", 1), call.get("initial_epoch", 0)))
    if method == "predict" and not has_built_layers(model):
        why.append(reason("unbuilt"))
    return why


def _with_data(facts: CallFacts, source: ArraySource | BatchSource, engine: Engine) -> CallFacts:
    if isinstance(source, BatchSource):
        return replace(facts, source=source.kind, rows=None, batch_size=None, nbytes=None)
    is_file, table_bytes = placing.lies_in_files(source.inputs), placing.table_bytes(source.inputs)
    return replace(
        facts,
        source="tables in files" if table_bytes else "arrays in files" if is_file else "arrays",
        rows=source.rows,
        batch_size=source.batch_size,
        nbytes=source.nbytes,
        is_file=is_file,
        copies=engine.reuses_memory,
        table_bytes=table_bytes,
        host_bytes=available_memory(),
    )
