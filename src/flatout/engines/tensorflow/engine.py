"""The tensorflow engine: one `tf.function` with a `tf.while_loop` around the model's own `train_step`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.trainer import model_supports_jit

from flatout.base.options import current
from flatout.data.stream.chunks import packed
from flatout.engines.contract import Engine, Structure, is_on_gpu
from flatout.engines.looped_program import LoopedProgram
from flatout.seam.trainers import stock_step, takes_batch_before_step

from .sink import TensorFlowSink


class TensorFlowProgram(LoopedProgram):
    """One model's step, looped over placed rows."""

    engine = "tensorflow"
    _output: Any = None

    def _put(self, numbers: np.ndarray) -> Any:
        return tf.constant(numbers)

    def _trace(self) -> None:
        step = self._function("step", self.batch_size).get_concrete_function()
        self._output = step.structured_outputs
        leaves = tree.flatten(self._output)
        if not all(isinstance(leaf, tf.Tensor) for leaf in leaves):
            raise TypeError("the step returns something else than dense tensors")
        if self._task == "predict" and any(leaf.shape.rank in (None, 0) or None in leaf.shape[1:] for leaf in leaves):
            raise TypeError("the shape of the outputs is not known beforehand")
        if not tf.config.list_physical_devices("GPU") and self._functions.get(
            ("not in a loop", *self._layout), lambda: _is_no_step_for_a_loop(step.graph.as_graph_def())
        ):
            self._loops = False
        elif self._task == "predict" and self._length is None and self.full > 1:
            # Batches of unknown length give outputs of unknown length; so does a mask over rows, whatever their number.
            whole = self._function("step", self.batch_size, is_known=True).get_concrete_function()
            leaves = tree.flatten(whole.structured_outputs)
        if not all(leaf.shape.is_fully_defined() for leaf in leaves):
            self._loops = False
        if self._loops and not self._xla and current().precision == "fast" and model_supports_jit(self._model):
            # Keras leaves XLA off on a CPU; what XLA rounds otherwise is allowed here.
            self._xla = True
            self._hold(self.data, self.full * self.batch_size + self.rest, self.batch_size)
        if self._task == "predict":
            leaves = tree.flatten(self._output)
            sizes = [math.prod(size or self.batch_size for size in leaf.shape) * leaf.dtype.size for leaf in leaves]
            self._limit_outputs(sum(sizes))

    @functools.cached_property
    def _xla(self) -> bool:
        return bool(self._model.jit_compile)

    def _hold(self, data: Structure, rows: int, batch_size: int) -> None:
        super()._hold(data, rows, batch_size)
        # A graph serves any number of rows; XLA compiles for each.
        shapes = [leaf.shape if self._xla else (None, *leaf.shape[1:]) for leaf in _leaves(data)]
        specs = [tf.TensorSpec(shape, leaf.dtype) for shape, leaf in zip(shapes, _leaves(data), strict=True)]
        self._structure = tree.map_structure(lambda _: 0, data, none_is_leaf=False)
        self._layout = (self.batch_size, repr(self._structure), *specs)

    def _run_loop(self, start: int, stop: int, keeps_all: bool) -> Any:
        bounds = tf.constant(start), tf.constant(stop)
        return self._function("loop", self.batch_size, keeps_all)(_leaves(self.data), self._order, *bounds)

    def _run_step(self, step: int) -> Any:
        numbers, rows = (self._order[step], self.batch_size) if step < self.full else (self._rest_order, self.rest)
        return self._function("step", rows)(_leaves(self.data), numbers)

    def _length_in_trace(self, rows: int) -> int | None:
        """The length of a batch of so many rows as stock Keras traces it; None if it is not known there.

        Where it is known, both Keras' code (the mean of each output's loss) and TensorFlow's optimizer (division by a
        constant) give other results. It is not known with a partial last batch; since Keras 3.16 that of the first
        batch is, of which TensorFlow generalizes when it sees another.
        """
        if self._task == "predict" or not takes_batch_before_step(self._model, self._task):
            return self._length
        first = self._functions.get("first length", lambda: rows)
        return rows if rows == first else None

    def _function(self, form: str, rows: int, stacked: bool = False, is_known: bool = False) -> Any:
        length = rows if is_known else self._length_in_trace(rows)
        # XLA wants to know how many results there will be at most.
        room = min(self.full, self.longest or self.full) if self._xla and stacked else None

        def make() -> Any:
            step = _on_rows(self._step(is_try=is_known), self._structure)
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

    def _step(self, is_try: bool) -> Callable[..., Any]:
        """The model's step on a batch."""
        model = self._model
        if self._is_for_good and not is_try:
            own = stock_step(model, self._task)
            return own if self._task != "predict" else lambda batch: own([batch])
        step = {"train": model.train_step, "test": model.test_step, "predict": model.predict_step}[self._task]
        return lambda batch: model.distribute_strategy.run(step, args=(batch,))


# What follows must not hold on to a program, and with it to the rows of a `fit` that is over.


def _on_rows(step: Callable[..., Any], structure: Structure) -> Callable[..., Any]:
    """A step on the rows of these numbers."""

    @tf.autograph.experimental.do_not_convert
    def run(leaves: list[Any], numbers: Any) -> Any:
        return step(packed(structure, [tf.gather(leaf, numbers) for leaf in leaves]))

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


def _is_no_step_for_a_loop(graph: Any) -> bool:
    """Whether a step is one that TensorFlow runs slower inside a loop on a CPU than by itself, or rounds otherwise.

    Measured on two cores: a convnet takes 1.5 times as long (what fuses convolutions does not look into loops), and so
    do recurrent layers (a loop in the loop). XLA calls no fast convolution there either. With oneDNN a product with a
    sigmoid, as in `silu`, is one operation outside of loops, whose last bit differs.
    """
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        if any("Conv" in node.op or "While" in node.op for node in nodes):
            return True
        sigmoids = {node.name for node in nodes if node.op == "Sigmoid"}
        factors = (name.partition(":")[0] for node in nodes if node.op == "Mul" for name in node.input)
        if sigmoids.intersection(factors):
            return True
    return False


class TensorFlowEngine(Engine):
    """Compiles Keras models on the tensorflow backend.

    Keras' random generators are variables of the model, and TensorFlow's own live in the kernels of the graph. There is
    no landing: TensorFlow tells nobody where its tensors are.
    """

    name = "tensorflow"
    chunk_stretch = 2
    peeks_to_build = False
    program = TensorFlowProgram
    make_sink = staticmethod(TensorFlowSink)

    @property
    def processes(self) -> int:
        return len(tf.config.list_physical_devices("GPU")) or 1

    def place(self, inputs: Structure) -> Structure:
        def native(leaf: Any) -> Any:
            # Keras would take an array of another library through the host.
            is_foreign = is_on_gpu(leaf) and not isinstance(leaf, tf.Tensor)
            return tf.experimental.dlpack.from_dlpack(leaf.__dlpack__()) if is_foreign else leaf

        inputs = tree.map_structure(native, inputs)
        return self.send(array_slicing.convert_to_sliceable(inputs, target_backend="tensorflow"))

    @property
    def reuses_memory(self) -> bool:
        return bool(tf.config.list_physical_devices("GPU"))

    def send(self, arrays: Structure) -> Structure:
        # As they come out of the tf.data pipeline of stock Keras.
        return tree.lists_to_tuples(tree.map_structure(tf.convert_to_tensor, arrays, none_is_leaf=False))

    def mark(self, values: list[Any]) -> Callable[[], object]:
        return lambda: [np.asarray(value) for value in values]

    def free_memory(self) -> int | None:
        return None if self.reuses_memory else super().free_memory()
