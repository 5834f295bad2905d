"""Value and gradient of a loss on each backend, outside compiled code, for losses that read values on the host too."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Answer = tuple[np.ndarray, np.ndarray | None]


class ArgumentChanged(Exception):
    """A loss has written into one of its arguments, which only torch lets it do."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


def backend() -> str:
    import keras

    return str(keras.backend.backend())


def widest_integers() -> str:
    """The widest whole numbers that the backend computes with."""
    if backend() == "jax":
        import jax

        return "int64" if jax.config.jax_enable_x64 else "int32"
    return "int64"


def value_and_gradient(
    function: Callable[..., Any], arrays: Arrays, wrt: str | None, compiled: bool = False, quick: bool = False
) -> Answer:
    """What a loss returns, and the gradient of its sum with respect to one argument (None: value alone).

    The gradient is None where the loss does not depend on the argument in a way that the backend can differentiate.
    A loss that changes an argument in place raises `ArgumentChanged`. `compiled`: as Keras' `fit` would compile it, on
    jax and tensorflow. `quick`: sooner for a small input, on jax without a program for each operation and each shape.
    """
    wrt = _float(arrays, wrt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if backend() == "jax":
            from . import jax_programs

            return jax_programs.answer(function, arrays, wrt, compiled, quick)
        return (
            _tensorflow(function, arrays, wrt, compiled) if backend() == "tensorflow" else _torch(function, arrays, wrt)
        )


def _float(arrays: Arrays, wrt: str | None) -> str | None:
    """The argument to differentiate, if it holds numbers that can be."""
    return wrt if wrt and arrays[wrt].dtype.kind == "f" else None


@contextlib.contextmanager
def outside_tracing() -> Iterator[None]:
    """Runs operations at once, even while a step is being compiled around them."""
    if backend() == "jax":
        import jax

        # Not ensure_compile_time_eval(): while a function is traced, it compiles and runs what is done with constants.
        with jax.core.eval_context():
            yield
    elif backend() == "tensorflow":
        yield  # Here `decide` has left the graph by way of a thread: tf.init_scope() would stop the gradient tapes.
    else:
        import keras
        import torch

        # Keras calls losses on the "meta" device to learn their shapes: nothing is computed there.
        with keras.device("cpu"), torch.device("cpu"), torch.enable_grad():
            yield


def on_device(arrays: Arrays) -> dict[str, Any]:
    if backend() == "torch":
        import torch

        return {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}
    from keras import ops

    return {name: ops.convert_to_tensor(value) for name, value in arrays.items()}


def _tensorflow(function: Any, arrays: Arrays, wrt: str | None, compiled: bool) -> Answer:
    import tensorflow as tf

    given = {name: tf.constant(value) for name, value in arrays.items()}
    run: Any = functools.partial(_taped, function, wrt)
    if compiled:
        run = tf.function(run, autograph=False, jit_compile=True).get_concrete_function(given)
    return _numpy(*run(given))


def unknown_length(function: Any, batches: Sequence[Arrays], wrt: str | None, is_all: bool) -> list[Answer]:
    """What a loss gives for several batches when it is traced once for all of them, as Keras does on TensorFlow.

    `is_all`: no dimension is known while tracing; else the first one alone is not.
    """
    import tensorflow as tf

    specs = {
        name: tf.TensorSpec((None,) * value.ndim if is_all else (None, *value.shape[1:])[: value.ndim], value.dtype)
        for name, value in batches[0].items()
    }
    run = functools.partial(_taped, function, _float(batches[0], wrt))
    # Called by way of its concrete function, a new tf.function for each loss is not taken for retracing.
    traced = tf.function(run, autograph=False).get_concrete_function(specs)
    return [_numpy(*traced({name: tf.constant(value) for name, value in arrays.items()})) for arrays in batches]


def _taped(function: Any, wrt: str | None, values: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        if wrt is not None:
            tape.watch(values[wrt])
        value = tf.convert_to_tensor(function(**values))
    slope = tape.gradient(value, values[wrt]) if wrt is not None and value.dtype.is_floating else None
    return value, slope if slope is None else tf.convert_to_tensor(slope)


def _numpy(value: Any, slope: Any) -> Answer:
    return value.numpy(), None if slope is None else slope.numpy()


@contextlib.contextmanager
def heard_from_tensorflow() -> Iterator[list[str]]:
    """What TensorFlow logs meanwhile: that it maps by a loop, after all, and, of no interest here, that it traces."""
    heard: list[str] = []

    def listen(record: logging.LogRecord) -> bool:
        heard.append(record.getMessage())
        return "retracing" not in heard[-1] and "while_loop" not in heard[-1]

    log = logging.getLogger("tensorflow")
    log.addFilter(listen)
    try:
        yield heard
    finally:
        log.removeFilter(listen)


def _torch(function: Any, arrays: Arrays, wrt: str | None) -> Answer:
    import torch

    given = on_device(arrays)
    if wrt is not None:
        given[wrt].requires_grad_(True)
    try:
        value = torch.as_tensor(function(**given))
    except RuntimeError as error:
        if "numpy() on Tensor that requires grad" not in str(error):
            raise
        # The loss calls .numpy() on its predictions: it runs, but cannot be differentiated.
        value = torch.as_tensor(function(**{name: tensor.detach() for name, tensor in given.items()}))
    for name, tensor in given.items():
        if tensor.detach().numpy().tobytes() != np.asarray(arrays[name]).tobytes():
            raise ArgumentChanged(name)
    slope = None
    if wrt is not None and value.requires_grad:
        (slope,) = torch.autograd.grad(value.sum(), given[wrt], allow_unused=True)
    return _numpy(value.detach(), slope)
