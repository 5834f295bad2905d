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
    """
    import keras

    backend = keras.backend.backend()
    run = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}[backend]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(function, arrays, wrt if wrt and arrays[wrt].dtype.kind == "f" else None, compiled)


def compiled_if_small(
    function: Callable[..., Any], arrays: Arrays, wrt: str | None
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The same of a loss that was written to be slow, sooner where jax can compile it as a whole.

    Outside compiled code jax compiles every operation by itself, for every shape and every place that a slice is taken
    from: a program of a few hundred operations is compiled sooner.

    Returns:
        As `value_and_gradient`; None on other backends, for a program that is large, and for one that cannot be traced
        because it reads values on the host.
    """
    import keras

    if keras.backend.backend() != "jax":
        return None
    wrt = wrt if wrt and arrays[wrt].dtype.kind == "f" else None
    shapes = tuple((name, value.shape, str(value.dtype)) for name, value in arrays.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = _small_program(function, wrt, shapes)
        if program is None:
            return None
        value, gradient = program(dict(arrays))
    return np.asarray(value), None if gradient is None else np.asarray(gradient)


# Of a program that is compiled as a whole; beyond this, single operations that are compiled once are sooner.
_MOST_EQUATIONS = 300


@functools.lru_cache(maxsize=64)
def _small_program(function: Any, wrt: str | None, shapes: tuple[tuple[str, tuple[int, ...], str], ...]) -> Any:
    import jax

    given = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
    try:
        traced = jax.jit(_differentiated(function, wrt)).trace(given)
    except Exception:
        return None
    if len(traced.jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    return traced.lower().compile(compiler_options=_quick_to_compile())


def _quick_to_compile() -> dict[str, Any]:
    """Options for a program that runs a handful of times; one that gives something else is asked step by step."""
    import jax

    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}


@contextlib.contextmanager
def outside_tracing() -> Iterator[None]:
    """Runs operations at once, even while a step is being compiled around them."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        with jax.ensure_compile_time_eval():
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
    import jax.numpy as jnp

    given = {name: jnp.asarray(value) for name, value in arrays.items()}
    run = _compiled_on_jax(function, wrt) if compiled else _differentiated(function, wrt)
    with contextlib.nullcontext() if compiled or wrt is None else _readable_tracers():
        value, gradient = run(given)
    return np.asarray(value), None if gradient is None else np.asarray(gradient)


@functools.lru_cache(maxsize=64)
def _compiled_on_jax(function: Any, wrt: str | None) -> Any:
    """Compiled once for each shape, however many inputs of that shape are tried."""
    import jax

    return jax.jit(_differentiated(function, wrt))


def _differentiated(function: Any, wrt: str | None) -> Any:
    import jax
    import jax.numpy as jnp

    def total(at: Any, given: Any) -> tuple[Any, Any]:
        value = jnp.asarray(function(**{**given, wrt: at}))
        return jnp.sum(value).astype("float32"), value

    def run(given: Any) -> tuple[Any, Any]:
        if wrt is None:
            return jnp.asarray(function(**given)), None
        (_, value), gradient = jax.value_and_grad(total, has_aux=True)(given[wrt], given)
        return value, gradient

    return run


@contextlib.contextmanager
def _readable_tracers() -> Iterator[None]:
    """While jax differentiates without compiling, float(x) and np.asarray(x) give the value, as they do on torch.

    A loss with such a line has no gradient on jax; the one that its author means treats what was read as a constant.
    """
    import jax

    tracer = jax.core.Tracer

    def concrete(value: Any) -> np.ndarray:
        while isinstance(value, tracer):
            value = value.primal
        return np.asarray(value)

    readers: dict[str, Any] = {
        "__array__": lambda self, *args, **kwargs: concrete(self),
        "__float__": lambda self: float(concrete(self)),
        "__int__": lambda self: int(concrete(self)),
        "__index__": lambda self: int(concrete(self)),
        "item": lambda self, *args: concrete(self).item(*args),
        "tolist": lambda self: concrete(self).tolist(),
    }
    originals = {name: tracer.__dict__.get(name) for name in readers}
    for name, reader in readers.items():
        setattr(tracer, name, reader)
    try:
        yield
    finally:
        for name, original in originals.items():
            if original is None:
                delattr(tracer, name)
            else:
                setattr(tracer, name, original)


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
    wrt = wrt if wrt and batches[0][wrt].dtype.kind == "f" else None

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
        return value_of(torch, function, given), None
    gradient = None
    if wrt is not None and value.requires_grad:
        (found,) = torch.autograd.grad(value.sum(), given[wrt], allow_unused=True)
        gradient = None if found is None else found.detach().numpy()
    return value.detach().numpy(), gradient


def value_of(torch: Any, function: Any, given: dict[str, Any]) -> np.ndarray:
    return torch.as_tensor(function(**{name: value.detach() for name, value in given.items()})).numpy()  # type: ignore[no-any-return]
