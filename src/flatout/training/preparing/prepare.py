"""Carrying out a plan up to step 0, in the order in which stock Keras does what can be noticed of it.

Rows that have numbers lie all on the device, or are sent there chunk by chunk; generators, datasets, loaders and
`flatout.feed` are read batch by batch. Everything that can be refused is refused here, before step 0, and nothing that
a refusal leaves behind makes stock Keras do anything else than it would have done.
"""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.base.sizes import as_size
from flatout.base.warning import warn
from flatout.base.when_used import keras
from flatout.data.batches.feed import Feed
from flatout.data.batches.feed import feed as feed_of
from flatout.data.order.row_order import FileOrder, Order, ResidentFeed
from flatout.data.resident import placing
from flatout.data.sources.description import ArraySource, BatchSource
from flatout.data.stream.batch_stream import BatchStream, UnfitBatch
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import RowReader, leaves_of
from flatout.data.stream.sender import Sender
from flatout.engines.contract import Engine
from flatout.seam.epoch_iterators import iterator_class, plain_iterator_class
from flatout.seam.trainers import build_on_iterator, strategy_arguments, trainer_module
from flatout.training.planning.call_facts import Source, epochs_of, steps_of
from flatout.training.planning.decision import with_notes
from flatout.training.planning.engine_choice import choose_engine, engine_named
from flatout.training.planning.plan import Plan

from .prepared import HeldRows, Prepared, build_on_chunk, build_on_rows, compile_step


def prepare(
    model: Any,
    call: dict[str, Any],
    plan: Plan,
    source: Source | None,
    force: bool = False,
    held: HeldRows | None = None,
) -> Prepared:
    """Build the model, settle the engine, have the data ready and compile the step.

    Raises:
        Refusal: The step cannot be compiled, or (unless `force`) would gain nothing. The model may have been built, as
            stock Keras would have built it.
    """
    if isinstance(source, BatchSource):
        return stream_batches(model, call, plan, source)
    assert isinstance(source, ArraySource)
    if held is not None:
        source = held.source(source)
    # From it Keras may draw before the first epoch, to build a model.
    order = Order(
        source.rows,
        source.batch_size,
        shuffle=call.get("shuffle", False),
        steps_per_epoch=call.get("steps_per_epoch" if plan.facts.method == "fit" else "steps"),
        steps_per_execution=model.steps_per_execution,
        trainer_module=trainer_module(plan.facts.backend),
        strategy=strategy_arguments(model).get("distribute_strategy"),
    )
    if plan.facts.method != "predict":
        build_on_rows(model, plan, source, order)
    plan = choose_engine(plan, model, source, call.get("callbacks"))
    prepared = hold_rows(model, call, plan, source, order, held)
    if not prepared.program.pays and not force and plan.facts.workers == 1:
        prepared.feed.close()
        prepared.program.renew()
        raise Refusal(reason("no_gain"))
    return prepared


def hold_rows(
    model: Any, call: dict[str, Any], plan: Plan, source: ArraySource, order: Order, held: HeldRows | None = None
) -> Prepared:
    """Put the rows where the plan wants them, and compile the step for them; in chunks where there is no room."""
    if plan.data != "streamed":
        placed = placed_rows(plan, source) if held is None else held.place(plan)
        if placed is not None:
            data, loads = placed
            plan, program = compile_step(plan, model, data, source.rows, source.batch_size)
            rows = None if held is None else held.rows
            return Prepared(plan, program, ResidentFeed(order, program, plan.data, rows), loads)
        plan = with_notes(replace(plan, data="streamed"))
    loads = ()
    if plan.tables in ("memory", "disk"):
        if plan.tables == "disk":
            warn(f"{plan.reasons[-1]}")
        inputs, loads = placing.with_places(source.inputs, on_disk=plan.tables == "disk")
        source = replace(source, inputs=inputs)
    return replace(stream_rows(model, plan, source, order, passes=epochs_of(call)), loads=loads)


def placed_rows(plan: Plan, source: ArraySource) -> placing.Placed | None:
    """All rows on the device, and how they came there; None if there is no room for them."""
    engine = engine_named(plan.engine)
    try:
        if plan.data != "direct":
            return engine.place(source.inputs), ()
        sinks = [engine.sink(dtype.name) for dtype in _dtypes_on_device(engine, source)]
        return placing.place_files(source.inputs, engine.place, sinks)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        warn(f"{reason('memory', as_size(source.nbytes), 'less')}")
        return None


def stream_rows(
    model: Any, plan: Plan, source: ArraySource, order: Order | FileOrder, passes: int = 1, **limits: Any
) -> Prepared:
    """Compile the step for rows that are sent to the device chunk by chunk."""
    engine = engine_named(plan.engine)
    sender = Sender(engine.send, engine.reuses_memory, engine.landing)
    reader = RowReader(
        source.inputs,
        _dtypes_on_device(engine, source),
        source.batch_size,
        model.steps_per_execution,
        sender.memory(),
        stretches=engine.reuses_memory,
        # Locking takes as long as a pass saves.
        fetches=sender.fetches and passes > 1,
        own_rows=engine.own_rows(model),
    )
    try:
        first = sender.one(reader.first_chunk())
        held = (first.data, first.rows, first.batch_size)
        any_length = source.rows % source.batch_size != 0
        plan, program = compile_step(plan, model, *held, any_length=any_length, **limits)
    except BaseException:
        # Stock Keras may run instead: no thread, and no page of the user's that is locked, must be left over.
        sender.close()
        reader.close()
        raise
    return Prepared(plan, program, ArrayStream(order, reader, sender, program))


def _dtypes_on_device(engine: Engine, source: ArraySource) -> list[np.dtype[Any]]:
    """What a row's parts become on the device, seen on the first one."""
    leaves = leaves_of(engine.place(source.head(1)))
    try:
        return [np.dtype(keras.backend.standardize_dtype(leaf.dtype)) for leaf in leaves]
    except TypeError as error:
        raise Refusal(reason("sparse", "x")) from error


def _is_out_of_memory(error: Exception) -> bool:
    # Each backend has its own error for this; all say it in one of these words.
    text = f"{type(error).__name__}: {error}".lower()
    return any(words in text for words in ("resource_exhausted", "out of memory", "resourceexhausted", "memoryerror"))


def stream_batches(model: Any, call: dict[str, Any], plan: Plan, source: BatchSource, **limits: Any) -> Prepared:
    """Read the first batches, build the model on them and compile its step for what comes.

    Raises:
        Refusal: As `prepare`; with all batches of a generator, also those that were read.
    """
    method, engine = plan.facts.method, engine_named(plan.engine)
    steps = steps_of(method, call)
    batches = source.x
    if not isinstance(batches, Feed):
        shuffle, limit = method == "fit" and call["shuffle"], steps and steps * epochs_of(call)
        batches = feed_of(
            batches, shuffle=shuffle, class_weight=source.class_weight, steps_per_epoch=steps, limit=limit
        )
    stream = BatchStream(
        _epoch_iterator(model, plan.facts.backend, source, batches, steps),
        batches,
        model.steps_per_execution,
        engine.chunk_stretch,
        Sender(engine.send, engine.reuses_memory, engine.landing),
    )
    try:
        if method != "predict" and engine.peeks_to_build:
            # Where stock Keras takes a batch away from a source to build on, take it away too.
            build_on_iterator(model, stream.iterator)
        first = stream.first_chunk()
        if method != "predict" and not engine.peeks_to_build:
            build_on_chunk(model, plan, first)
        held = (first.data, first.rows, first.batch_size)
        plan, stream.program = compile_step(plan, model, *held, any_length=True, **limits)
    except (Refusal, UnfitBatch) as error:
        why = error.reason if isinstance(error, Refusal) else reason("sparse", "a batch")
        if isinstance(source.x, types.GeneratorType):
            raise Refusal(why, x=(batch for batch in stream.unused())) from error
        stream.close()
        raise Refusal(why) from error
    except BaseException:
        stream.close()
        raise
    return Prepared(plan, stream.program, stream)


def _epoch_iterator(model: Any, backend: str, source: BatchSource, batches: Any, steps: int | None) -> Any:
    """Keras' epoch iterator, of the kind that draws the random numbers that stock Keras draws from this source."""
    kind, extra = plain_iterator_class(), {}
    if backend == "torch":
        from flatout.data.batches.torch_batches import with_arrays

        kind = with_arrays(iterator_class(trainer_module(backend)))
    elif backend == "tensorflow" and source.kind == "a tf.data.Dataset":
        kind, extra = iterator_class(trainer_module(backend)), strategy_arguments(model)
    elif backend == "tensorflow":
        # Stock Keras asks for two batches, to see their shapes.
        batches.get_tf_dataset()
    return kind(x=batches, steps_per_epoch=steps, steps_per_execution=model.steps_per_execution, **extra)
