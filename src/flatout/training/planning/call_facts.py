"""Gathering the facts of a call: its data are described once, here, and handed on with the plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from flatout.base.errors import InvalidOption, Reason, Refusal, reason
from flatout.base.group import joined
from flatout.base.options import Options
from flatout.base.when_used import keras
from flatout.data.files.page_cache import available_memory
from flatout.data.resident import placing
from flatout.data.sources.description import ArraySource, BatchSource, describe
from flatout.engines.contract import Engine
from flatout.engines.kept_functions import has_functions
from flatout.engines.select import engine_for
from flatout.seam.adapters import is_dataset
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import all_layers
from flatout.seam.trainers import (
    has_built_layers,
    is_data_parallel,
    is_made_by_torch_compile,
    is_under_strategy,
    runs_eagerly,
    stock_has_traced,
)

from . import known_programs
from .callback_services import services_of
from .costs import Side, estimate
from .decision import decide
from .plan import TASKS, CallFacts, Plan

# The data of a call, or why they cannot be described.
Source = ArraySource | BatchSource | Reason


def plan_call(
    method: str, model: Any, call: dict[str, Any], options: Options, source: Source | None = None
) -> tuple[Plan, Source | None]:
    """Plan a call, whose `validation_split` is already taken off, without changing anything.

    Returns the plan, and the data: described here unless they were before, or None if nobody had to look at them.
    """
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
    workers = _workers(options, engine)
    obstacles = _obstacles_of_model(model, method, backend, options.precision == "fast" or engine.reuses_memory)
    source = source or describe_call(method, call)
    if isinstance(source, Reason):
        return decide(replace(facts, obstacles=(*obstacles, source)), options), source
    obstacles.extend(_obstacles_of_call(method, model, call, backend))
    obstacles.extend(_obstacles_of_distribution(source, engine))
    is_for_one = workers == 1 and keras.distribution.distribution() is None
    native = None if is_for_one else reason("native_workers")
    if options.engine == "native" and native is None and not obstacles:
        from flatout.native.run.native_engine import obstacle

        native = obstacle(model, method)
    per_epoch = steps_of(method, call) or source.batches
    facts = replace(
        facts,
        native=options.engine == "native" and native is None,
        native_obstacle=native if options.engine == "native" else None,
        workers=workers,
        is_for_one=is_for_one,
        steps=None if per_epoch is None else epochs_of(call) * per_epoch,
        shuffles=method == "fit" and bool(call.get("shuffle")),
        obstacles=tuple(obstacles),
    )
    if not obstacles:
        facts = _with_costs(facts, model, source, engine)
    facts = _with_data(facts, source, engine)
    plan = decide(facts, options)
    if not plan.accelerated:
        # Without asking for memory, which takes longer than a small call of stock Keras does.
        return plan, source
    host = available_memory() if isinstance(source, ArraySource) else None
    return decide(_with_memory(facts, engine.free_memory(), host), options), source


def _with_memory(facts: CallFacts, free: int | None, host: int | None) -> CallFacts:
    group = joined()
    if group is not None and not group.is_alone:
        # Processes that share a model must choose alike, and those of a machine share its memory.
        (free, host), _ = group.told_by_first((free, host), [])
        share = group.place.size
        host = host and host // share
        free = free if free is None or facts.copies else free // share
    return replace(facts, free_bytes=free, host_bytes=host)


def _workers(options: Options, engine: Engine) -> int:
    """How many devices a step shall be divided among by us: Keras does so itself where it has a distribution."""
    if keras.distribution.distribution() is not None:
        return 1
    if options.workers == "auto":
        return engine.devices
    # More than there are devices are processes, which share a `fit` and nothing else.
    return min(int(options.workers), engine.devices)


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
    steps = call.get("steps_per_epoch" if method == "fit" else "steps")
    if steps is not None and steps < 0:
        raise Refusal(reason("steps", steps))
    most = keras.config.max_steps_per_epoch()
    return min(most, steps or most) if most else steps


def epochs_of(call: dict[str, Any]) -> int:
    """Passes that a call makes over its data."""
    return max(0, call.get("epochs", 1) - call.get("initial_epoch", 0))


def _obstacles_of_model(model: Any, method: str, backend: str, may_round: bool) -> list[Reason]:
    """What a model itself puts in the way of an engine; `may_round` if equal up to rounding will do."""
    why: list[Reason] = []
    if backend == "torch" and is_data_parallel(model):
        why.append(reason("distribution", "process group of torch.distributed"))
    if backend == "tensorflow" and is_under_strategy(model):
        why.append(reason("tf_distribute"))
    if backend == "jax" and keras.config.is_nnx_enabled():
        why.append(reason("nnx"))
    if runs_eagerly(model):
        why.append(reason("run_eagerly"))
    elif backend == "jax" and not model.jit_compile:
        blockers = sorted({type(layer).__name__ for layer in all_layers(model) if not layer.supports_jit})
        # Keras leaves a model uncompiled for layers that TensorFlow's XLA lacks, such as RandomRotation. jax compiles
        # them, but its programs round otherwise than one operation after the other does.
        if not (blockers and may_round):
            why.append(reason("jit_compile_off", ", ".join(blockers) or "it was compiled with jit_compile=False"))
    elif backend == "torch" and model.jit_compile:
        why.append(reason("torch_compile"))
    name = f"{TASKS[method]}_function"
    function = getattr(model, name, None)
    function = getattr(function, "python_function", function)
    if not is_of_keras(getattr(type(model), f"make_{name}")):
        why.append(reason("custom_step_function", f"make_{name}"))
    elif function is not None and not is_of_keras(function) and not is_made_by_torch_compile(function):
        why.append(reason("custom_step_function", name))
    return why


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


def _obstacles_of_distribution(source: ArraySource | BatchSource, engine: Engine) -> list[Reason]:
    """What a `keras.distribution` that the user has set puts in the way."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return []
    if not engine.follows(distribution) or not isinstance(source, ArraySource):
        return [reason("distribution", "keras.distribution")]
    devices, size = math.prod(distribution.device_mesh.shape), min(source.batch_size, source.rows)
    if size % devices or source.rows % size % devices:
        # Stock Keras raises an error there, which is the user's to see.
        return [reason("indivisible", size, devices)]
    return []


def _with_costs(facts: CallFacts, model: Any, source: ArraySource | BatchSource, engine: Engine) -> CallFacts:
    backend, task = facts.backend, TASKS[facts.method]
    # For XLA a smaller last batch takes a program of its own, and so do chunks of batches beside single ones.
    layout: object = source.batches
    programs, chunks = 1, int(backend == "jax" or engine.reuses_memory)
    if isinstance(source, ArraySource):
        layout = (source.rows, source.batch_size)
        programs, chunks = 1 + bool(source.rows % source.batch_size), 0
    name = known_programs.name_of_program(model, facts.method, facts.keras_version, engine.compiler, layout)
    stock_is_ready, own_is_ready = stock_has_traced(model, task), has_functions(model, task)
    stock_on_disk, own_on_disk = (
        not is_ready and engine.keeps_programs and known_programs.is_known(name, side)
        for side, is_ready in (("stock", stock_is_ready), (backend, own_is_ready))
    )
    # TensorFlow's step of a CPU asks a data set of its own for the next batch.
    reads_data = backend == "tensorflow" and not engine.reuses_memory and task != "predict" and _is_tf_data(source)
    stock = Side(stock_is_ready, stock_on_disk, programs, reads_data)
    own = Side(own_is_ready, own_on_disk, programs + chunks)
    is_uncompiled = backend == "jax" and not model.jit_compile
    layers = len(all_layers(model)) - 1
    costs = estimate(backend, engine.reuses_memory, task == "train", layers, is_uncompiled, stock, own)
    return replace(facts, costs=costs, program=name)


def _is_tf_data(source: ArraySource | BatchSource) -> bool:
    return isinstance(source, BatchSource) and is_dataset(source.x, "tf_dataset")


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
    )
