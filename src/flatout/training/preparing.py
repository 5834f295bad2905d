"""From a call to something that can run: look at the data, plan, build the model, place the rows, compile the step.

Everything that can be refused is refused here, before step 0, and nothing that a refusal leaves behind makes stock
Keras do anything else than it would have done.
"""

from __future__ import annotations

import dataclasses
import types
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flatout.base.errors import InvalidOption, Refusal, reason
from flatout.base.options import Options, current
from flatout.base.sizes import as_size
from flatout.data.batches.feed import Feed as BatchFeed
from flatout.data.batches.feed import feed as feed_of
from flatout.data.direct import decode_once
from flatout.data.direct.load_report import DirectReport, StreamReport
from flatout.data.files.page_cache import available_memory
from flatout.data.order.row_order import FileOrder, Order, iterator_class
from flatout.data.resident import placing
from flatout.data.resident.resident_feed import ResidentFeed
from flatout.data.sources.description import ArraySource, BatchSource, describe
from flatout.data.stream.chunk_memory import FreshMemory, Ring
from flatout.data.stream.chunks import RowReader
from flatout.data.stream.row_streams import ArrayStream, BatchStream, UnfitBatch
from flatout.data.stream.sender import CHUNKS_ON_HOST, Sender
from flatout.engines.contract import Engine, Program, Task
from flatout.engines.select import engine_for, trainer_module

from .planning import Facts, Plan, decide, obstacles_of_model, with_notes

_TASKS: dict[str, Task] = {"fit": "train", "evaluate": "test", "predict": "predict"}


class Feed(Protocol):
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
    """A compiled step, what feeds it, how the bytes of files came to the device, and the steps taken so far."""

    plan: Plan
    engine: Engine
    program: Program
    feed: Feed
    loads: tuple[DirectReport, ...] = ()
    steps: int = 0


def describe_call(method: str, call: dict[str, Any]) -> ArraySource | BatchSource:
    """The training, test or prediction data of a call, `validation_split` already taken off."""
    return describe(
        call.get("x"),
        call.get("y"),
        call.get("sample_weight"),
        batch_size=call.get("batch_size"),
        steps=steps_of(method, call),
        class_weight=call.get("class_weight"),
    )


def steps_of(method: str, call: dict[str, Any]) -> int | None:
    """Steps of an epoch if the user limits them, by argument or by `keras.config.set_max_steps_per_epoch`."""
    import keras

    steps = call.get("steps_per_epoch" if method == "fit" else "steps")
    if steps is not None and steps < 0:
        raise Refusal(reason("steps", steps))
    most = keras.config.max_steps_per_epoch()
    return min(most, steps or most) if most else steps


def make_plan(method: str, model: Any, call: dict[str, Any], options: Options) -> Plan:
    """Plan a call without changing anything; `call` holds the arguments by name."""
    import keras

    backend = keras.config.backend()
    if options.engine not in ("auto", "native", "stock", backend):
        raise InvalidOption(
            f"Invalid value for option `engine`. Received: engine={options.engine!r} on the Keras backend "
            f"{backend!r}. Expected 'auto', 'native', 'stock' or {backend!r}."
        )
    facts = Facts(method, backend, keras.__version__)
    early = decide(facts, Options(enabled=options.enabled, engine=options.engine, force=True))
    if early.reasons:
        return early
    may_round = options.precision == "fast" or engine_for(backend).reuses_memory
    obstacles = obstacles_of_model(model, method, backend, may_round)
    try:
        source = describe_call(method, call)
    except Refusal as refusal:
        return decide(Facts(method, backend, keras.__version__, obstacles=(*obstacles, refusal.reason)), options)
    if call.get("shuffle") == "batch":
        if backend == "torch":
            obstacles.append(reason("shuffle_batch", "torch's layers"))
        elif backend == "jax" and _services(call.get("callbacks")) & {"replay", "step"}:
            # They may draw from NumPy's generator, or stop, between the draws for two batches.
            obstacles.append(reason("shuffle_batch", "callbacks that act on every step"))
    if method == "fit" and not _epochs(call):
        # Nothing may be read of a generator then, and no order be drawn.
        obstacles.append(reason("no_epochs", call.get("epochs", 1), call.get("initial_epoch", 0)))
    if method == "predict" and not all(layer.built for layer in model._flatten_layers()):
        obstacles.append(reason("unbuilt"))
    per_epoch = steps_of(method, call) or source.batches
    steps = None if per_epoch is None else _epochs(call) * per_epoch
    native = None
    if options.engine == "native" and not obstacles:
        from flatout.native.run.native_engine import obstacle

        native = obstacle(model, method)
    facts = Facts(
        method,
        backend,
        keras.__version__,
        native=options.engine == "native" and native is None,
        native_obstacle=native,
        source="arrays",
        rows=None,
        batch_size=None,
        steps=steps,
        nbytes=None,
        free_bytes=None if obstacles else engine_for(backend).free_memory(),
        obstacles=tuple(obstacles),
    )
    if isinstance(source, BatchSource):
        return decide(dataclasses.replace(facts, source=source.kind), options)
    is_file, table_bytes = placing.lies_in_files(source.inputs), decode_once.table_bytes(source.inputs)
    facts = dataclasses.replace(
        facts,
        source="tables in files" if table_bytes else "arrays in files" if is_file else "arrays",
        rows=source.rows,
        batch_size=source.batch_size,
        nbytes=source.nbytes,
        is_file=is_file,
        copies=engine_for(backend).reuses_memory,
        table_bytes=table_bytes,
        shuffles=method == "fit" and bool(call.get("shuffle")),
        host_bytes=available_memory(),
    )
    return decide(facts, options)


def _epochs(call: dict[str, Any]) -> int:
    return max(0, call.get("epochs", 1) - call.get("initial_epoch", 0))


def prepare(method: str, model: Any, call: dict[str, Any], plan: Plan, force: bool = False) -> Prepared:
    """Carry out a plan up to step 0.

    Raises:
        Refusal: The step cannot be compiled, or (unless `force`) would gain nothing. The model may have been built, as
            stock Keras would have built it.
    """
    engine = engine_for(plan.engine)
    source = describe_call(method, call)
    if isinstance(source, BatchSource):
        program, feed = _feed_batches(method, model, call, source, engine)
        return Prepared(plan, engine, program, feed)
    program, feed, loads, plan = _feed_rows(method, model, call, source, engine, plan)
    group = model.steps_per_execution
    if program.longest is not None:
        program.longest = max(group, program.longest // group * group)
    if not program.pays and not force:
        raise Refusal(reason("no_gain"))
    return Prepared(plan, engine, program, feed, loads)


def _feed_rows(
    method: str, model: Any, call: dict[str, Any], source: ArraySource, engine: Engine, plan: Plan
) -> tuple[Program, Feed, tuple[DirectReport, ...], Plan]:
    import keras

    group = model.steps_per_execution
    order = Order(
        source.rows,
        source.batch_size,
        shuffle=call.get("shuffle", False),
        steps_per_epoch=call.get("steps_per_epoch" if method == "fit" else "steps"),
        steps_per_execution=group,
        trainer_module=trainer_module(keras.config.backend()),
        strategy=getattr(model, "distribute_strategy", None),
    )
    if method != "predict":
        _build(model, engine, source, order)
    if method == "fit" and current().engine == "auto" and plan.data in ("resident", "direct"):
        from flatout.native.run.one_kernel import one_kernel_is_better

        is_better = one_kernel_is_better(model, source.inputs, source.batch_size, plan.facts.steps)
        # Whoever wants each step's logs, or looks at the model between steps, makes launches short.
        if is_better and not _services(call["callbacks"]) - {"none", "chunk"}:
            engine, plan = engine_for("native"), dataclasses.replace(plan, engine="native")
    loads: tuple[DirectReport, ...] = ()
    placement = plan.data
    if placement in ("resident", "direct"):
        try:
            if placement == "direct":
                dtypes = [dtype.name for dtype in _dtypes_on_device(engine, source)]
                data, reports = placing.place_files(source.inputs, engine.place, engine.sink, dtypes)
                loads = tuple(reports)
            else:
                data = engine.place(source.inputs)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            warnings.warn(f"{reason('memory', as_size(source.nbytes), 'less')}", stacklevel=2)
        else:
            program = engine.prepare(model, _TASKS[method], data, source.rows, source.batch_size)
            return program, ResidentFeed(order, program, placement), loads, plan
        plan = with_notes(dataclasses.replace(plan, data="streamed"))
    if plan.tables in ("memory", "disk"):
        if plan.tables == "disk":
            warnings.warn(f"{plan.reasons[-1]}", stacklevel=2)
        inputs, reports = decode_once.with_places(source.inputs, on_disk=plan.tables == "disk")
        source, loads = dataclasses.replace(source, inputs=inputs), tuple(reports)
    return *stream_rows(method, model, source, engine, order, passes=_epochs(call)), loads, plan


def stream_rows(
    method: str, model: Any, source: ArraySource, engine: Engine, order: Order | FileOrder, passes: int = 1
) -> tuple[Program, ArrayStream]:
    """Compile a model's step for rows that are sent to the device chunk by chunk."""
    sender = Sender(engine.send, engine.reuses_memory, engine.landing)
    reader = RowReader(
        source.inputs,
        _dtypes_on_device(engine, source),
        source.batch_size,
        model.steps_per_execution,
        _memory(engine),
        stretches=engine.reuses_memory,
        # Locking takes as long as a pass saves.
        fetches=sender.fetches and passes > 1,
    )
    try:
        first = sender.one(reader.first_chunk())
        any_length = source.rows % source.batch_size != 0
        program = engine.prepare(model, _TASKS[method], first.data, first.rows, first.batch_size, any_length)
    except BaseException:
        # Stock Keras may run instead: no thread, and no page of the user's that is locked, must be left over.
        sender.close()
        reader.close()
        raise
    return program, ArrayStream(order, reader, sender, program)


def _feed_batches(
    method: str, model: Any, call: dict[str, Any], source: BatchSource, engine: Engine
) -> tuple[Program, Feed]:
    steps, group = steps_of(method, call), model.steps_per_execution
    shuffle = call["shuffle"] if method == "fit" else False
    batches = (
        source.x
        if isinstance(source.x, BatchFeed)
        else feed_of(
            source.x,
            shuffle=shuffle,
            class_weight=source.class_weight,
            steps_per_epoch=steps,
            limit=steps and steps * _epochs(call),
        )
    )
    stream = BatchStream(
        _epoch_iterator(model, engine, source, batches, steps),
        batches,
        group,
        engine.chunk_stretch,
        Sender(engine.send, engine.reuses_memory, engine.landing),
        _memory(engine),
    )
    try:
        if method != "predict" and engine.peeks_to_build:
            model._symbolic_build(iterator=stream.iterator)
        first = stream.first_chunk()
        if method != "predict" and not engine.peeks_to_build:
            _symbolic_build(model, engine, _head(first.data, first.batch_size))
        stream.program = engine.prepare(model, _TASKS[method], first.data, first.rows, first.batch_size, True)
    except (Refusal, UnfitBatch) as error:
        why = error.reason if isinstance(error, Refusal) else reason("sparse", "a batch")
        if isinstance(source.x, types.GeneratorType):
            raise Refusal(why, x=(batch for batch in stream.unused())) from error
        stream.close()
        raise Refusal(why) from error
    except BaseException:
        stream.close()
        raise
    return stream.program, stream


def _services(callbacks: Any) -> set[str]:
    """How the batch hooks of the user's callbacks must be served."""
    import keras

    from .ledger import service_for

    # What is no callback is left for Keras to complain of.
    each = keras.tree.flatten(getattr(callbacks, "callbacks", callbacks))
    return {service_for(callback, "train") for callback in each if isinstance(callback, keras.callbacks.Callback)}


def _epoch_iterator(model: Any, engine: Engine, source: BatchSource, batches: Any, steps: int | None) -> Any:
    """Keras' epoch iterator, of the kind that draws the random numbers that stock Keras draws from this source."""
    import keras
    from keras.src.trainers.epoch_iterator import EpochIterator

    backend = keras.config.backend()
    kind, extra = EpochIterator, {}
    if backend == "torch":
        from flatout.data.batches.torch_batches import with_arrays

        kind = with_arrays(iterator_class(trainer_module("torch")))
    elif backend == "tensorflow" and source.kind == "a tf.data.Dataset":
        kind = iterator_class(trainer_module("tensorflow"))
        extra = {"distribute_strategy": model.distribute_strategy}
    elif backend == "tensorflow":
        # Stock Keras asks for two batches, to see their shapes.
        batches.get_tf_dataset()
    return kind(x=batches, steps_per_epoch=steps, steps_per_execution=model.steps_per_execution, **extra)


def _memory(engine: Engine) -> Any:
    return Ring(CHUNKS_ON_HOST) if engine.reuses_memory else FreshMemory()


def _dtypes_on_device(engine: Engine, source: ArraySource) -> list[np.dtype]:
    """What a row's parts become on the device, seen on the first one."""
    import keras
    from keras import tree

    leaves = [leaf for leaf in tree.flatten(engine.place(source.head(1))) if leaf is not None]
    try:
        return [np.dtype(keras.backend.standardize_dtype(leaf.dtype)) for leaf in leaves]
    except TypeError as error:
        raise Refusal(reason("sparse", "x")) from error


def _is_out_of_memory(error: Exception) -> bool:
    # Each backend has its own error for this; all say it in one of these words.
    text = f"{type(error).__name__}: {error}".lower()
    return any(words in text for words in ("resource_exhausted", "out of memory", "resourceexhausted", "memoryerror"))


def _head(data: Any, rows: int) -> Any:
    from keras import tree

    return tree.map_structure(lambda leaf: leaf if leaf is None else leaf[:rows], data)


def _is_unbuilt(model: Any) -> bool:
    return (
        not all(layer.built for layer in model._flatten_layers())
        or (model._compile_metrics is not None and not model._compile_metrics.built)
        or (model._compile_loss is not None and not model._compile_loss.built)
    )


def _build(model: Any, engine: Engine, source: ArraySource, order: Order) -> None:
    """Build what is not built yet, drawing the random numbers that stock Keras draws for it."""
    unbuilt = _is_unbuilt(model)
    if unbuilt and engine.peeks_to_build:
        order.peek()
    _symbolic_build(model, engine, engine.place(source.head(source.batch_size)) if unbuilt else ())


def _symbolic_build(model: Any, engine: Engine, batch: Any) -> None:
    try:
        model._symbolic_build(data_batch=batch)
    except Exception as error:
        if engine.peeks_to_build:
            # Stock Keras builds in the same way here: the error is the user's to see.
            raise
        raise Refusal(reason("untraceable", "the model", str(error).partition("\n")[0])) from error
