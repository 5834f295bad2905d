"""Value and gradient of a loss on each backend, outside compiled code, for losses that read values on the host too."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]


class ArgumentChanged(Exception):
    """A loss has written into one of its arguments, which only torch lets it do."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


def value_and_gradient(
    function: Callable[..., Any], arrays: Arrays, wrt: str | None, compiled: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """What a loss returns, and the gradient of its sum with respect to one argument.

    Args:
        function: The loss.
        arrays: Its arguments.
        wrt: The argument to differentiate; None: value alone.
        compiled: Whether to compile the function as Keras' `fit` would (jax and tensorflow).

    Returns:
        The value, and the gradient: None where the loss does not depend on the argument in a way that the backend
        can differentiate.

    Raises:
        ArgumentChanged: The loss changes an argument in place.
    """
    import keras

    backend = keras.backend.backend()
    run = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}[backend]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(function, arrays, _float(arrays, wrt), compiled)


def quick_answer(
    function: Callable[..., Any], arrays: Arrays, wrt: str | None
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The same of a small input, sooner: on jax without a program of XLA's for each operation and each shape.

    Returns:
        As `value_and_gradient`; None where nothing is sooner than that, as for a loss that reads values on the host.
    """
    import keras

    if keras.backend.backend() != "jax":
        return None
    from . import jax_programs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax_programs.quick_answer(function, arrays, _float(arrays, wrt))


@contextlib.contextmanager
def compiling_ahead(function: Callable[..., Any]) -> Iterator[Callable[[Arrays, str | None], None]]:
    """Gives what begins to compile a function for some shapes, where `value_and_gradient` will run it compiled."""
    import keras

    if keras.backend.backend() != "jax":
        yield lambda arrays, wrt: None
        return
    from . import jax_programs

    with jax_programs.compiling_ahead(function) as begin:
        yield lambda arrays, wrt: begin(arrays, _float(arrays, wrt))


def _float(arrays: Arrays, wrt: str | None) -> str | None:
    """The argument to differentiate, if it holds numbers that can be."""
    return wrt if wrt and arrays[wrt].dtype.kind == "f" else None


@contextlib.contextmanager
def outside_tracing() -> Iterator[None]:
    """Runs operations at once, even while a step is being compiled around them."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        # Not ensure_compile_time_eval(): while a function is traced, it compiles and runs what is done with constants.
        with jax.core.eval_context():
            yield
    elif keras.backend.backend() == "tensorflow":
        yield  # Here `decide` has left the graph by way of a thread: tf.init_scope() would stop the gradient tapes.
    else:
        import torch

        # Keras calls losses on the "meta" device to learn their shapes: nothing is computed there.
        with keras.device("cpu"), torch.device("cpu"), torch.enable_grad():
            yield


def on_device(arrays: Arrays) -> dict[str, Any]:
    import keras

    if keras.backend.backend() == "torch":
        import torch

        return {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}
    return {name: keras.ops.convert_to_tensor(value) for name, value in arrays.items()}


def _jax(function: Any, arrays: Arrays, wrt: str | None, compiled: bool) -> tuple[np.ndarray, np.ndarray | None]:
    from . import jax_programs

    return (jax_programs.compiled_answer if compiled else jax_programs.by_steps)(function, arrays, wrt)


def _tensorflow(function: Any, arrays: Arrays, wrt: str | None, compiled: bool) -> tuple[np.ndarray, np.ndarray | None]:
    import tensorflow as tf

    given = {name: tf.constant(value) for name, value in arrays.items()}

    def run(values: Any) -> tuple[Any, Any]:
        return _taped(function, values, wrt)

    if compiled:
        value, gradient = tf.function(run, autograph=False, jit_compile=True).get_concrete_function(given)(given)
    else:
        value, gradient = run(given)
    if gradient is not None:
        gradient = tf.convert_to_tensor(gradient).numpy()
    return value.numpy(), gradient


def unknown_length(
    function: Callable[..., Any], batches: Sequence[Arrays], wrt: str | None, is_all: bool
) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """What a loss gives for several batches when it is traced once for all of them, as Keras does on TensorFlow.

    Args:
        function: The loss.
        batches: Its arguments, of the same sizes but for the first dimension.
        wrt: The argument to differentiate.
        is_all: Whether no dimension is known while tracing, or the first one alone is not.
    """
    import tensorflow as tf

    def signature(value: np.ndarray) -> Any:
        known = (None,) * value.ndim if is_all else (None, *value.shape[1:])[: value.ndim]
        return tf.TensorSpec(known, value.dtype)

    names = list(batches[0])
    wrt = _float(batches[0], wrt)

    def run(*values: Any) -> tuple[Any, Any]:
        given = dict(zip(names, values, strict=True))
        value, gradient = _taped(function, given, wrt)
        return value, tf.convert_to_tensor(0.0) if gradient is None else tf.convert_to_tensor(gradient)

    signatures = [signature(batches[0][name]) for name in names]
    # Called by way of its concrete function, a new tf.function for each loss is not taken for retracing.
    traced = tf.function(run, autograph=False, input_signature=signatures).get_concrete_function()
    found = []
    for arrays in batches:
        value, gradient = traced(*(tf.constant(arrays[name]) for name in names))
        is_slope = wrt is not None and gradient.shape == arrays[wrt].shape
        found.append((value.numpy(), gradient.numpy() if is_slope else None))
    return found


def _taped(function: Any, values: Any, wrt: str | None) -> tuple[Any, Any]:
    import tensorflow as tf

    if wrt is None:
        return tf.convert_to_tensor(function(**values)), None
    with tf.GradientTape() as tape:
        tape.watch(values[wrt])
        value = tf.convert_to_tensor(function(**values))
    if not value.dtype.is_floating:
        return value, None
    return value, tape.gradient(value, values[wrt])


@contextlib.contextmanager
def heard_from_tensorflow() -> Iterator[list[str]]:
    """What TensorFlow logs meanwhile: that it maps by a loop, after all, and, of no interest here, that it traces."""
    heard: list[str] = []

    class Listener(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            heard.append(record.getMessage())
            return "retracing" not in heard[-1] and "while_loop" not in heard[-1]

    log, listener = logging.getLogger("tensorflow"), Listener()
    log.addFilter(listener)
    try:
        yield heard
    finally:
        log.removeFilter(listener)


def _torch(function: Any, arrays: Arrays, wrt: str | None, compiled: bool) -> tuple[np.ndarray, np.ndarray | None]:
    import torch

    given = {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}
    if wrt is not None:
        given[wrt].requires_grad_(True)
    try:
        value = torch.as_tensor(function(**given))
    except RuntimeError as error:
        if "requires grad" not in str(error):
            raise
        # The loss calls .numpy() on its predictions: it runs, but cannot be differentiated.
        found = value_of(torch, function, given)
        _check_unchanged(given, arrays)
        return found, None
    _check_unchanged(given, arrays)
    gradient = None
    if wrt is not None and value.requires_grad:
        (slope,) = torch.autograd.grad(value.sum(), given[wrt], allow_unused=True)
        gradient = None if slope is None else slope.detach().numpy()
    return value.detach().numpy(), gradient


def value_of(torch: Any, function: Any, given: dict[str, Any]) -> np.ndarray:
    return torch.as_tensor(function(**{name: value.detach() for name, value in given.items()})).numpy()  # type: ignore[no-any-return]


def _check_unchanged(given: Mapping[str, Any], arrays: Arrays) -> None:
    for name, tensor in given.items():
        if tensor.detach().numpy().tobytes() != np.asarray(arrays[name]).tobytes():
            raise ArgumentChanged(name)
