"""Feeding a step from rows that have numbers: all of them on the device, or sent there chunk by chunk."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.base.sizes import as_size
from flatout.base.when_used import keras
from flatout.data.order.row_order import FileOrder, Order, ResidentFeed
from flatout.data.resident import placing
from flatout.data.sources.description import ArraySource
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import RowReader, leaves_of
from flatout.data.stream.sender import Sender
from flatout.engines.contract import Engine
from flatout.seam.trainers import strategy_arguments, trainer_module
from flatout.training.planning.call_facts import epochs_of
from flatout.training.planning.decision import with_notes
from flatout.training.planning.engine_choice import engine_named
from flatout.training.planning.plan import Plan

from .prepared import Prepared, compile_step


def order_of_rows(model: Any, call: dict[str, Any], plan: Plan, source: ArraySource) -> Order:
    """Keras' order of the rows, from which it may draw before the first epoch to build a model."""
    return Order(
        source.rows,
        source.batch_size,
        shuffle=call.get("shuffle", False),
        steps_per_epoch=call.get("steps_per_epoch" if plan.facts.method == "fit" else "steps"),
        steps_per_execution=model.steps_per_execution,
        trainer_module=trainer_module(plan.facts.backend),
        strategy=strategy_arguments(model).get("distribute_strategy"),
    )


def hold_rows(model: Any, call: dict[str, Any], plan: Plan, source: ArraySource, order: Order) -> Prepared:
    """Put the rows where the plan wants them, and compile the step for them; in chunks where there is no room."""
    if plan.data != "streamed":
        placed = _placed(plan, source)
        if placed is not None:
            data, loads = placed
            plan, program = compile_step(plan, model, data, source.rows, source.batch_size)
            return Prepared(plan, program, ResidentFeed(order, program, plan.data), loads)
        plan = with_notes(replace(plan, data="streamed"))
    loads = ()
    if plan.tables in ("memory", "disk"):
        if plan.tables == "disk":
            warnings.warn(f"{plan.reasons[-1]}", stacklevel=2)
        inputs, loads = placing.with_places(source.inputs, on_disk=plan.tables == "disk")
        source = replace(source, inputs=inputs)
    return replace(stream_rows(model, plan, source, order, passes=epochs_of(call)), loads=loads)


def _placed(plan: Plan, source: ArraySource) -> placing.Placed | None:
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
        warnings.warn(f"{reason('memory', as_size(source.nbytes), 'less')}", stacklevel=2)
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
