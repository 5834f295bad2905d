"""The tensorflow engine: one `tf.function` with a `tf.while_loop` around the model's own `train_step`."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.trainer import model_supports_jit

from flatout.base.errors import Reason, Refusal, reason
from flatout.base.options import current
from flatout.data.device.sinks import MakeSink
from flatout.data.stream.chunks import packed
from flatout.engines.contract import OUTPUT_BYTES_PER_CHUNK, Structure, Task, is_on_gpu, steps_per_piece
from flatout.engines.kept_functions import Functions

from .sink import TensorFlowSink


class TensorFlowEngine:
    """Compiles Keras models on the tensorflow backend."""

    name = "tensorflow"
    chunk_stretch = 2
    finalizes_after_errors = False
    peeks_to_build = False

    def begin_epoch(self, model: Any, task: Task) -> None:
        pass

    def end_epoch(self, model: Any, task: Task) -> None:
        pass

    def end_run(self, model: Any) -> None:
        pass

    def reset_metrics(self, model: Any) -> None:
        model.reset_metrics()

    def epoch_logs(self, model: Any, logs: Any) -> dict[str, Any]:
        return dict(model._get_metrics_result_or_logs(logs))

    def generator_state(self) -> None:
        """Keras' generators are variables of the model; TensorFlow's own live in the kernels of the graph."""

    def set_generator_state(self, state: None) -> None:
        pass

    def place(self, inputs: Structure) -> Structure:
        def native(leaf: Any) -> Any:
            # Keras would take an array of another library through the host.
            is_foreign = is_on_gpu(leaf) and not isinstance(leaf, tf.Tensor)
            return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__()) if is_foreign else leaf

        inputs = tree.map_structure(native, inputs)
        return self.send(array_slicing.convert_to_sliceable(inputs, target_backend="tensorflow"))

    def sink(self, dtype: str) -> MakeSink:
        return functools.partial(TensorFlowSink, cast_to=dtype)

    @property
    def reuses_memory(self) -> bool:
        return bool(tf.config.list_physical_devices("GPU"))

    def send(self, arrays: Structure) -> Structure:
        # As they come out of the tf.data pipeline of stock Keras.
        return tree.lists_to_tuples(tree.map_structure(tf.convert_to_tensor, arrays, none_is_leaf=False))

    # TensorFlow tells nobody where its tensors are.
    landing = None

    def mark(self, values: list[Any]) -> Callable[[], object]:
        return lambda: [np.asarray(value) for value in values]

    def free_memory(self) -> int | None:
        if tf.config.list_physical_devices("GPU"):
            return None
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    def prepare(
        self,
        model: Any,
        task: Task,
        data: Structure,
        rows: int,
        batch_size: int,
        any_length: bool = False,
        output_bytes: int = OUTPUT_BYTES_PER_CHUNK,
    ) -> TensorFlowProgram:
        program = TensorFlowProgram(model, task, data, rows, batch_size, any_length, output_bytes)
        try:
            program.trace()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise Refusal(reason("untraceable", f"{task}_step", f"{type(error).__name__}: {lines[0]}")) from error
        return program


class TensorFlowProgram:
    """One model's step, looped over placed rows."""

    engine = "tensorflow"
    unit = 1
    pays = True

    def __init__(
        self,
        model: Any,
        task: Task,
        data: Structure,
        rows: int,
        batch_size: int,
        any_length: bool,
        output_bytes: int,
    ):
        self._model = model
        self._task = task
        # As stock Keras' data set sees it: batches of 32 from 20 rows are of unknown length.
        self._length = None if any_length or rows % batch_size else min(batch_size, rows)
        self._is_in_order = False
        self._loops = True
        self._order: Any = None
        self._rest_order: Any = None
        self._output: Any = None
        self._functions = Functions(model, task)
        self._xla = bool(model.jit_compile)
        self.longest: int | None = None
        self._output_bytes = output_bytes
        self.reasons: tuple[Reason, ...] = ()
        self._hold(data, rows, batch_size)

    def trace(self) -> None:
        """Trace a step: one that cannot be a graph fails here, before step 0."""
        step = self._function("step").get_concrete_function()
        self._output = step.structured_outputs
        leaves = tree.flatten(self._output)
        if not all(isinstance(leaf, tf.Tensor) for leaf in leaves):
            raise TypeError("the step returns something else than dense tensors")
        if self._task == "predict" and any(leaf.shape.rank in (None, 0) or None in leaf.shape[1:] for leaf in leaves):
            raise TypeError("the shape of the outputs is not known beforehand")
        if not tf.config.list_physical_devices("GPU") and self._functions.get(
            ("slows", *self._layout), lambda: _slows_in_a_loop(step.graph.as_graph_def())
        ):
            self._loops = False
        elif self._task == "predict" and self._length is None and self._full > 1:
            # Batches of unknown length give outputs of unknown length; so does a mask over rows, whatever their number.
            whole = self._function("step", length=self._batch_size).get_concrete_function()
            leaves = tree.flatten(whole.structured_outputs)
        if not all(leaf.shape.is_fully_defined() for leaf in leaves):
            self._loops = False
        if self._loops and not self._xla and current().precision == "fast" and model_supports_jit(self._model):
            # Keras leaves XLA off on a CPU; what XLA rounds otherwise is allowed here.
            self._xla = True
            self._hold(self._data, self._full * self._batch_size + self._rest, self._batch_size)
        if self._task == "predict":
            sizes = [
                math.prod(size or self._batch_size for size in leaf.shape) * leaf.dtype.size
                for leaf in tree.flatten(self._output)
            ]
            self.longest = steps_per_piece(sum(sizes), self._output_bytes, self._model.steps_per_execution)

    def renew(self, is_first: bool) -> None:
        if is_first:
            self._functions.forget_fresh()

    def replace(self, data: Structure, rows: int, batch_size: int) -> None:
        before = (self._full, self._rest, self._batch_size)
        self._hold(data, rows, batch_size)
        if (self._full, self._rest, self._batch_size) != before or not self._is_in_order:
            self.begin_pass(None)

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        self._data = data
        self._batch_size = min(batch_size, rows)
        self._full, self._rest = divmod(rows, self._batch_size)
        # A graph serves any number of rows; XLA compiles for each.
        shapes = [leaf.shape if self._xla else (None, *leaf.shape[1:]) for leaf in _leaves(data)]
        specs = [tf.TensorSpec(shape, leaf.dtype) for shape, leaf in zip(shapes, _leaves(data), strict=True)]
        self._structure = tree.map_structure(lambda _: 0, data, none_is_leaf=False)
        self._layout = (self._batch_size, repr(self._structure), *specs)

    def begin_pass(self, order: np.ndarray | None) -> None:
        self._is_in_order = order is None
        cut = self._full * self._batch_size
        if order is None:
            order = np.arange(cut + self._rest, dtype=np.int32)
        self._order = tf.constant(order[:cut].reshape(self._full, self._batch_size))
        self._rest_order = tf.constant(order[cut:])

    def run(self, start: int, stop: int, every_step: bool) -> list[Any]:
        stacked = every_step or self._task == "predict"
        looped = max(0, min(stop, self._full) - start) if self._loops else 0
        results: list[Any] = []
        if looped:
            bounds = tf.constant(start), tf.constant(start + looped)
            outputs = self._function("loop", stacked)(_leaves(self._data), self._order, *bounds)
            results = _unstack(outputs, looped) if stacked else [outputs]
        for number in range(start + looped, stop):
            numbers = self._order[number] if number < self._full else self._rest_order
            outputs = self._function("step")(_leaves(self._data), numbers)
            results = [*results, outputs] if stacked else [outputs]
        if self._task == "predict":
            results = [tree.map_structure(np.asarray, output) for output in results]
        return results

    def end_pass(self) -> None:
        """The variables are TensorFlow's own; nothing to put back."""

    def _function(self, form: str, stacked: bool = False, length: int | None = None) -> Any:
        # With a partial last batch stock Keras traces a batch of unknown length, and both its code (the mean of each
        # output's loss) and TensorFlow's optimizer (division by a constant) give other results where the length is
        # known.
        length = length or self._length
        # XLA wants to know how many results there will be at most.
        room = min(self._full, self.longest or self._full) if self._xla and stacked else None

        def make() -> Any:
            step = _step(self._model, self._task, self._structure)
            numbers, bound = tf.TensorSpec((length,), tf.int32), tf.TensorSpec((), tf.int32)
            rest = [tf.TensorSpec((None, length), tf.int32), bound, bound] if form == "loop" else [numbers]
            function = tf.function(
                _loop(step, self._output, stacked, room) if form == "loop" else step,
                input_signature=[list(self._layout[2:]), *rest],
                autograph=False,
                jit_compile=self._xla,
            )
            # TensorFlow counts by the code, which all models share, and would warn the user of retracing.
            function._omit_frequent_tracing_warning = True
            return function

        return self._functions.get((form, stacked, length, room, self._xla, *self._layout), make)


# What follows must not hold on to a program, and with it to the rows of a `fit` that is over.


def _step(model: Any, task: Task, structure: Structure) -> Callable[..., Any]:
    """The model's step on the rows of these numbers."""
    steps = {"train": model.train_step, "test": model.test_step, "predict": model.predict_step}

    @tf.autograph.experimental.do_not_convert
    def run(leaves: list[Any], numbers: Any) -> Any:
        batch = packed(structure, [tf.gather(leaf, numbers) for leaf in leaves])
        return model.distribute_strategy.run(steps[task], args=(batch,))

    return run


def _loop(step: Callable[..., Any], output: Any, stacked: bool, room: int | None) -> Callable[..., Any]:
    """Step after step; gives the results of the last, or of all of them."""

    @tf.autograph.experimental.do_not_convert
    def run(rows: list[Any], order: Any, start: Any, stop: Any) -> Any:
        leaves = tree.flatten(output)
        if stacked:
            size = stop - start if room is None else room
            initial = [tf.TensorArray(leaf.dtype, size, element_shape=leaf.shape) for leaf in leaves]
        else:
            initial = [tf.zeros(leaf.shape, leaf.dtype) for leaf in leaves]

        def body(position: Any, *outputs: Any) -> Any:
            # Not `order[position]`: XLA wants the bounds of a slice as constants, and compiles for each start anew.
            new = tree.flatten(step(rows, tf.gather(order, position)))
            if stacked:
                new = [results.write(position - start, leaf) for results, leaf in zip(outputs, new, strict=True)]
            return (position + 1, *new)

        _, *outputs = tf.while_loop(
            lambda position, *_: position < stop, body, (start, *initial), parallel_iterations=1
        )
        outputs = [results.stack() for results in outputs] if stacked else outputs
        return tree.pack_sequence_as(output, outputs)

    return run


def _leaves(data: Structure) -> list[Any]:
    return [leaf for leaf in tree.flatten(data) if leaf is not None]


def _slows_in_a_loop(graph: Any) -> bool:
    """Whether a step is one that TensorFlow runs slower inside a loop on a CPU than by itself.

    Measured on two cores: a convnet takes 1.5 times as long (what fuses convolutions does not look into loops), and so
    do recurrent layers (a loop in the loop). XLA calls no fast convolution there either.
    """
    nodes = itertools.chain(graph.node, *(function.node_def for function in graph.library.function))
    return any("Conv" in node.op or "While" in node.op for node in nodes)


def _unstack(outputs: Any, count: int) -> list[Any]:
    columns = tree.map_structure(np.asarray, outputs)
    return [tree.map_structure(operator.itemgetter(number), columns) for number in range(count)]
