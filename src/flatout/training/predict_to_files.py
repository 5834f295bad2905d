"""Predict to files: a prediction whose input and output both stay on disk.

The rows are streamed, never resident. What no engine can compile runs batch by batch with Keras' own step; the files
are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from flatout.base.errors import FlatoutError, Refusal
from flatout.base.options import Options, options
from flatout.base.warning import warn
from flatout.base.when_used import keras, tree
from flatout.data.files.npy_files import unmapped
from flatout.data.order.row_order import FileOrder
from flatout.data.output import fingerprint
from flatout.data.output.output_files import OutputFiles
from flatout.data.output.output_paths import OutputPaths
from flatout.data.output.partial_file import partial, size_on_disk
from flatout.data.sources.description import ArraySource, BatchSource
from flatout.data.stream.chunk_stream import ArrayStream
from flatout.data.stream.chunks import RowReader, as_host_array, leaves_of
from flatout.data.stream.sender import Sender
from flatout.engines.stock.stock_loop import StockBatches, StockProgram
from flatout.seam import stock_methods as stock
from flatout.seam.keras_names import is_of_keras
from flatout.seam.layers import outputs_structure
from flatout.seam.trainers import has_built_layers
from flatout.seam.variable_state import global_seeds

from .arguments import bound, resolved
from .computed_again import ComputedAgain
from .passes import predict_pass
from .planning.call_facts import Source, describe_call, steps_of
from .planning.decision import BACKENDS
from .planning.engine_choice import refuse_stock
from .planning.plan import Plan
from .preparing.prepare import stream_batches, stream_rows
from .preparing.prepared import Prepared
from .running import report
from .self_check import plan_checked

# Outputs in host memory at once; those of the last chunk are still there while the next one is computed.
_OUTPUT_BYTES = 16 * 2**20


def predict_to_files(model: Any, x: Any, out: Any, arguments: dict[str, Any], conduct: stock.Conduct) -> Any:
    """Predict from wherever the rows are to files; returns memory maps of them. `conduct` runs what is tried first."""
    if stock.is_overridden("predict", model):
        raise ValueError(
            f"`out` cannot be used with {type(model).__name__}, which has a `predict` of its own. Expected a model "
            "with Keras' `predict`; what is special about this one can go into `predict_step`."
        )
    started = time.perf_counter()
    call = resolved("predict", model, bound("predict", (x,), arguments))
    call = {**call, "x": tree.map_structure(unmapped, call["x"])}
    paths = OutputPaths(out, call["x"])
    with options(data="streamed") as wishes:
        source = describe_call("predict", call)
        prepared = _prepare(model, call, source, wishes, conduct)
        try:
            if not prepared.plan.accelerated:
                refuse_stock("predict", prepared.plan.reasons)
            with _open_files(model, call, prepared, source, paths, wishes) as files:
                _go_on_if_same(model, call, prepared, source, files)
                if files.started_anew is not None:
                    message = f"An interrupted prediction to {paths} is started anew: {files.started_anew}."
                    warn(message)
                first_step = files.steps
                done = predict_pass(model, call, prepared, first_step, _appending(model, prepared, files))
        finally:
            prepared.feed.close()
    report(model, prepared, done.steps - first_step, started)
    return files.result()


def _prepare(model: Any, call: dict[str, Any], source: Source, wishes: Options, conduct: stock.Conduct) -> Prepared:
    """Everything up to step 0, with an engine or, where none can, with Keras' own step."""
    plan, _ = plan_checked("predict", model, call, wishes, conduct, source)
    if plan.facts.backend not in BACKENDS:
        raise FlatoutError(
            f"`out` needs one of the Keras backends {', '.join(BACKENDS)}. Received: {plan.facts.backend}. "
            "Call `model.predict` without `out`."
        )
    try:
        if plan.accelerated and isinstance(source, ArraySource):
            return stream_rows(model, plan, source, _order(model, call, source), output_bytes=_OUTPUT_BYTES)
        if plan.accelerated and isinstance(source, BatchSource):
            return stream_batches(model, call, plan, source, output_bytes=_OUTPUT_BYTES)
    except Refusal as refusal:
        plan = replace(plan, engine="stock", data="host", reasons=(refusal.reason,))
        call = call if refusal.x is None else {**call, "x": refusal.x}
    return _prepare_stock(model, call, plan, source)


def _order(model: Any, call: dict[str, Any], source: ArraySource) -> FileOrder:
    return FileOrder(source.rows, source.batch_size, steps_of("predict", call), model.steps_per_execution)


def _prepare_stock(model: Any, call: dict[str, Any], plan: Plan, source: Source) -> Prepared:
    program, backend = StockProgram(model), plan.facts.backend
    if not isinstance(source, ArraySource):
        batches = StockBatches(program, model, backend, call["x"], call["batch_size"], call["steps"])
        return Prepared(plan, program, batches)
    sender = Sender(lambda arrays: arrays, copies=False)
    reader = RowReader(source.inputs, _host_dtypes(source), source.batch_size, 1, sender.memory())
    return Prepared(plan, program, ArrayStream(_order(model, call, source), reader, sender, program))


def _host_dtypes(source: ArraySource) -> list[np.dtype[Any]]:
    """As Keras converts arrays before it cuts them into batches."""
    dtypes = [as_host_array(leaf).dtype for leaf in leaves_of(source.inputs)]
    return [np.dtype(keras.config.floatx()) if dtype.kind == "f" else dtype for dtype in dtypes]


def _open_files(
    model: Any, call: dict[str, Any], prepared: Prepared, source: Source, paths: OutputPaths, wishes: Options
) -> OutputFiles:
    """The files of a prediction: new ones, or those of an interrupted prediction of the same rows by the same model."""
    obstacle = None
    parts: dict[str, str] = {}
    if not isinstance(source, ArraySource):
        kind = source.kind if isinstance(source, BatchSource) else f"of type {type(call['x']).__name__}"
        obstacle = f"x is {kind}, which is only read from its beginning"
    elif not has_built_layers(model):
        obstacle = "the model had no weights yet"
    else:
        _check_space(model, source.batch_size * _order(model, call, source).count, source.rows, paths)
        parts = {
            "model": fingerprint.of_model(model),
            "weights": fingerprint.of_variables(model.variables),
            "input": fingerprint.of_arrays(source.inputs),
            "batch size": f"{source.batch_size}, in groups of {model.steps_per_execution}",
            "number of steps": f"{call['steps']}",
            "engine": f"{prepared.plan.engine}, {wishes.precision}",
            "devices": f"{prepared.plan.facts.workers}",
            "software": fingerprint.of_software(prepared.plan.facts.backend),
        }
    return OutputFiles(paths, parts, obstacle)


def _go_on_if_same(model: Any, call: dict[str, Any], prepared: Prepared, source: Source, files: OutputFiles) -> None:
    """Go on with an interrupted prediction of the same computation; give up any other."""
    if not files.steps:
        return
    # Only they have rows with numbers.
    assert isinstance(source, ArraySource)
    assert isinstance(prepared.feed, ArrayStream)
    difference = ComputedAgain(model, call, prepared, source, files).difference()
    if difference is not None:
        files.start_anew(difference)
    prepared.feed.first_step = files.steps


def _appending(model: Any, prepared: Prepared, files: OutputFiles) -> Callable[[list[Any]], None]:
    """Takes outputs to files, and has an eye on whether the model changes meanwhile.

    A step that draws random numbers or counts gives other outputs when it is begun in the middle.
    """

    def state() -> str:
        return fingerprint.of_variables([*model.non_trainable_variables, *global_seeds()])

    before: str | None = state()

    def append(outputs: list[Any]) -> None:
        nonlocal before
        if before is not None:
            prepared.program.end_pass()
            if state() != before:
                files.forbid_going_on("each step of this model changes its variables, and the next step's outputs")
            before = None
        files.append(outputs)

    return append


def _check_space(model: Any, rows_of_steps: int, rows: int, paths: OutputPaths) -> None:
    """Where the outputs are known beforehand, look whether they fit `out` and its disk."""
    outputs = outputs_structure(model)
    if outputs is None or not is_of_keras(type(model).predict_step):
        return
    leaves = tree.flatten(outputs)
    files = paths.of(outputs)
    if any(None in leaf.shape[1:] for leaf in leaves):
        return
    sizes = {}
    for path, leaf in zip(files, leaves, strict=True):
        stored = "float32" if leaf.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else leaf.dtype
        begun = partial(path)
        there = begun.stat().st_size if begun.exists() else 0
        sizes[path] = size_on_disk((min(rows, rows_of_steps), *leaf.shape[1:]), stored) - there
    paths.check_space(sizes)
