"""Feeding a step from a source that is read batch by batch: generators, datasets, loaders, `flatout.feed`."""

from __future__ import annotations

import types
from typing import Any

from flatout.base.errors import Refusal, reason
from flatout.data.batches.feed import Feed
from flatout.data.batches.feed import feed as feed_of
from flatout.data.sources.description import BatchSource
from flatout.data.stream.batch_stream import BatchStream, UnfitBatch
from flatout.data.stream.sender import Sender
from flatout.seam.epoch_iterators import iterator_class, plain_iterator_class
from flatout.seam.trainers import build_on_iterator, strategy_arguments, trainer_module
from flatout.training.planning.call_facts import epochs_of, steps_of
from flatout.training.planning.engine_choice import engine_named
from flatout.training.planning.plan import Plan

from .prepared import Prepared, build_on_chunk, compile_step


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
