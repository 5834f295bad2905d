"""Predict to files: prepare a prediction whose input and output both stay on disk, and open its files.

The rows are streamed, never resident. What no engine can compile runs batch by batch with Keras' own step; the files
are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from flatout.base.errors import FlatoutError, Refusal
from flatout.base.options import Options
from flatout.data.order.row_order import FileOrder
from flatout.data.output import fingerprint
from flatout.data.output.output_files import OutputFiles, partial, size_on_disk
from flatout.data.output.output_paths import OutputPaths
from flatout.data.sources.description import ArraySource, BatchSource
from flatout.data.stream.chunk_memory import FreshMemory
from flatout.data.stream.chunks import RowReader, as_host_array
from flatout.data.stream.row_streams import ArrayStream
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, Program
from flatout.engines.select import engine_for
from flatout.engines.stock.stock_loop import StockBatches, StockProgram, batches_of_keras, batches_of_rows

from .planning import BACKENDS, Plan
from .preparing import Prepared, describe_call, make_plan, prepare, steps_of, stream_rows

# Outputs in host memory at once; those of the last chunk are still there while the next one is computed.
_OUTPUT_BYTES = 16 * 2**20


def prepare_to_file(model: Any, call: dict[str, Any], options: Options) -> Prepared:
    """Everything up to step 0, with an engine or, where none can, with Keras' own step."""
    plan = make_plan("predict", model, call, options)
    if plan.facts.backend not in BACKENDS:
        raise FlatoutError(
            f"`out` needs one of the Keras backends {', '.join(BACKENDS)}. Received: {plan.facts.backend}. "
            "Call `model.predict` without `out`."
        )
    if not plan.accelerated:
        return _prepare_stock(model, call, plan)
    try:
        source = describe_call("predict", call)
        if isinstance(source, ArraySource):
            engine = engine_for(plan.engine)
            program, feed = stream_rows("predict", model, source, engine, _order(model, call, source))
            prepared = Prepared(plan, engine, program, feed)
        else:
            prepared = prepare("predict", model, call, plan)
        _shorten(prepared.program, model.steps_per_execution)
        return prepared
    except Refusal as refusal:
        plan = dataclasses.replace(plan, engine="stock", data="host", reasons=(refusal.reason,))
        return _prepare_stock(model, call if refusal.x is None else {**call, "x": refusal.x}, plan)


def _order(model: Any, call: dict[str, Any], source: ArraySource) -> FileOrder:
    return FileOrder(source.rows, source.batch_size, steps_of("predict", call), model.steps_per_execution)


def _shorten(program: Program, group: int) -> None:
    """Have the outputs leave the device in smaller pieces than for a caller who keeps all of them anyway."""
    if program.longest is None:
        # Step by step, in Python: shorter chunks cost nothing.
        program.longest = group
        return
    steps = program.longest * _OUTPUT_BYTES // OUTPUT_BYTES_PER_CHUNK
    steps = max(program.unit, steps // program.unit * program.unit)
    program.longest = max(group, steps // group * group)


def _prepare_stock(model: Any, call: dict[str, Any], plan: Plan) -> Prepared:
    program, backend = StockProgram(model), plan.facts.backend
    source = _source(call)
    if isinstance(source, ArraySource):
        order = _order(model, call, source)
        reader = RowReader(source.inputs, _host_dtypes(source), source.batch_size, 1, FreshMemory())
        feed = StockBatches(program, batches_of_rows(source, reader, order.count), order.count)
    else:
        feed = StockBatches(program, *batches_of_keras(model, backend, call["x"], call["batch_size"], call["steps"]))
    return Prepared(plan, engine_for(backend), program, feed)


def _source(call: dict[str, Any]) -> ArraySource | BatchSource | None:
    try:
        return describe_call("predict", call)
    except Refusal:
        return None


def _host_dtypes(source: ArraySource) -> list[np.dtype[Any]]:
    """As Keras converts arrays before it cuts them into batches."""
    import keras
    from keras import tree

    def converted(dtype: np.dtype[Any]) -> np.dtype[Any]:
        return np.dtype(keras.config.floatx()) if dtype.kind == "f" else dtype

    return [converted(as_host_array(leaf).dtype) for leaf in tree.flatten(source.inputs) if leaf is not None]


def open_files(
    model: Any, call: dict[str, Any], prepared: Prepared, paths: OutputPaths, options: Options
) -> OutputFiles:
    """The files of a prediction: new ones, or those of an interrupted prediction of the same rows by the same model.

    Raises:
        ValueError: `out` has another structure than the model's outputs.
        OSError: The disk is too small, or another process is writing there.
    """
    source = _source(call)
    obstacle = None
    parts: dict[str, str] = {}
    if not isinstance(source, ArraySource):
        kind = source.kind if source is not None else f"of type {type(call['x']).__name__}"
        obstacle = f"x is {kind}, which is only read from its beginning"
    elif not all(layer.built for layer in model._flatten_layers()):
        obstacle = "the model had no weights yet"
    else:
        _check_space(model, source.batch_size * _order(model, call, source).count, source.rows, paths)
        parts = {
            "model": fingerprint.of_model(model),
            "weights": fingerprint.of_variables(model.variables),
            "input": fingerprint.of_arrays(source.inputs),
            "batch size": f"{source.batch_size}, in groups of {model.steps_per_execution}",
            "number of steps": f"{call['steps']}",
            "engine": f"{prepared.plan.engine}, {options.precision}",
            "software": fingerprint.of_software(prepared.plan.facts.backend),
        }
    files = OutputFiles(paths, parts, obstacle)
    if files.steps:
        # Only they have rows with numbers.
        assert isinstance(prepared.feed, (ArrayStream, StockBatches))
        prepared.feed.first_step = files.steps
    return files


def appending(model: Any, prepared: Prepared, files: OutputFiles) -> Callable[[list[Any]], None]:
    """Takes outputs to files, and has an eye on whether the model changes meanwhile.

    A step that draws random numbers or counts gives other outputs when it is begun in the middle.
    """
    before: str | None = fingerprint.of_variables(model.non_trainable_variables)

    def append(outputs: list[Any]) -> None:
        nonlocal before
        if before is not None:
            prepared.program.end_pass()
            if fingerprint.of_variables(model.non_trainable_variables) != before:
                files.forbid_going_on("each step of this model changes its variables, and the next step's outputs")
            before = None
        files.append(outputs)

    return append


def _check_space(model: Any, rows_of_steps: int, rows: int, paths: OutputPaths) -> None:
    """Where the outputs are known beforehand, look whether they fit `out` and its disk."""
    from keras import tree

    outputs = getattr(getattr(model, "_functional", model), "_outputs_struct", None)
    is_known = getattr(type(model).predict_step, "__module__", "").startswith("keras.")
    if outputs is None or not is_known:
        return
    leaves = tree.flatten(outputs)
    files = paths.of(outputs)
    if any(None in leaf.shape[1:] for leaf in leaves):
        return
    paths.check_space(
        {
            path: size_on_disk((min(rows, rows_of_steps), *leaf.shape[1:]), _stored_dtype(leaf)) - _size(partial(path))
            for path, leaf in zip(files, leaves, strict=True)
        }
    )


def _stored_dtype(tensor: Any) -> str:
    return "float32" if tensor.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else tensor.dtype


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
