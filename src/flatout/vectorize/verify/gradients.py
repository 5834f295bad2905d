"""Value and gradient of a loss on each backend, outside compiled code, for losses that read values on the host too."""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flatout.base.when_used import jax, keras, ops, tf, torch
from flatout.seam.patches import replaced_here

Arrays = Mapping[str, np.ndarray]
Answer = tuple[np.ndarray, np.ndarray | None]
# Of a program of jax' that is compiled as a whole; beyond this, single operations that are compiled once are sooner.
_MOST_EQUATIONS = 3000


class ArgumentChanged(Exception):
    """A loss has written into one of its arguments, which only torch lets it do."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


def backend() -> str:
    return str(keras.backend.backend())


def widest_integers() -> str:
    """The widest whole numbers that the backend computes with."""
    if backend() == "jax":
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
            found = jax_compiled(function, arrays, wrt, is_quick=not compiled) if quick or compiled else None
            return by_steps(function, arrays, wrt) if found is None else found
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
        # Not ensure_compile_time_eval(): while a function is traced, it compiles and runs what is done with constants.
        with jax.core.eval_context():
            yield
    elif backend() == "tensorflow":
        yield  # Here `decide` has left the graph by way of a thread: tf.init_scope() would stop the gradient tapes.
    else:
        # Keras calls losses on the "meta" device to learn their shapes: nothing is computed there.
        with keras.device("cpu"), torch.device("cpu"), torch.enable_grad():
            yield


def on_device(arrays: Arrays) -> dict[str, Any]:
    if backend() == "torch":
        return {name: torch.as_tensor(np.array(value)) for name, value in arrays.items()}
    return {name: ops.convert_to_tensor(value) for name, value in arrays.items()}


def jax_compiled(function: Any, arrays: Arrays, wrt: str | None, is_quick: bool) -> Answer | None:
    """What a loss gives as `fit` compiles it, or quickly: as a small program that is compiled as a whole, if it can be.

    Outside compiled code jax compiles every operation by itself, for every shape and every place that a slice is taken
    from, which takes seconds for a loop over a few rows.
    """
    shapes = tuple((name, value.shape, str(value.dtype)) for name, value in arrays.items())
    program = _program(function, wrt, shapes, is_quick)
    return None if program is None else _on_host(program(dict(arrays)))


@functools.lru_cache(maxsize=256)
def _program(function: Any, wrt: str | None, shapes: Any, is_quick: bool) -> Any:
    """A function compiled for some shapes: as `fit` compiles it, or quickly, for a handful of runs."""
    program = jax.jit(_differentiated(function, wrt))
    given = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
    if not is_quick:
        return program.trace(given).lower().compile()
    try:
        traced = program.trace(given)
    except Exception:
        return None  # It reads values on the host.
    if len(traced.jaxpr.eqns) > _MOST_EQUATIONS:
        return None
    # Quick to compile, slow to run; where it gives something else than the rewrite, it is asked step by step.
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    return traced.lower().compile(compiler_options=options)


def by_steps(function: Any, arrays: Arrays, wrt: str | None) -> Answer:
    """What a loss gives outside compiled code, each operation by itself."""
    import jax.numpy as jnp

    given = {name: jnp.asarray(value) for name, value in arrays.items()}
    with contextlib.nullcontext() if wrt is None else _readable_tracers():
        return _on_host(_differentiated(function, wrt)(given))


def _differentiated(function: Any, wrt: str | None) -> Any:
    """The value of a loss, and the gradient of its sum with respect to one argument, as a function of its arguments."""
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


def _readable_tracers() -> contextlib.AbstractContextManager[None]:
    """While jax differentiates without compiling, float(x) and np.asarray(x) give the value, as they do on torch.

    A loss with such a line has no gradient on jax; the one that its author means treats what was read as a constant.
    """
    tracer = jax.core.Tracer

    def concrete(value: Any) -> np.ndarray:
        while isinstance(value, tracer):
            value = value.primal
        return np.asarray(value)

    return replaced_here(
        {
            (tracer, "__array__"): lambda self, *args, **kwargs: concrete(self),
            (tracer, "__float__"): lambda self: float(concrete(self)),
            (tracer, "__int__"): lambda self: int(concrete(self)),
            (tracer, "__index__"): lambda self: int(concrete(self)),
            (tracer, "item"): lambda self, *args: concrete(self).item(*args),
            (tracer, "tolist"): lambda self: concrete(self).tolist(),
        }
    )


def _on_host(found: tuple[Any, Any]) -> Answer:
    value, slope = found
    return np.asarray(value), None if slope is None else np.asarray(slope)


def _tensorflow(function: Any, arrays: Arrays, wrt: str | None, compiled: bool) -> Answer:
    given = {name: tf.constant(value) for name, value in arrays.items()}
    run: Any = functools.partial(_taped, function, wrt)
    if compiled:
        run = tf.function(run, autograph=False, jit_compile=True).get_concrete_function(given)
    return _on_host(run(given))


def unknown_length(function: Any, batches: Sequence[Arrays], wrt: str | None, is_all: bool) -> list[Answer]:
    """What a loss gives for several batches when it is traced once for all of them, as Keras does on TensorFlow.

    `is_all`: no dimension is known while tracing; else the first one alone is not.
    """
    specs = {
        name: tf.TensorSpec((None,) * value.ndim if is_all else (None, *value.shape[1:])[: value.ndim], value.dtype)
        for name, value in batches[0].items()
    }
    run = functools.partial(_taped, function, _float(batches[0], wrt))
    # Called by way of its concrete function, a new tf.function for each loss is not taken for retracing.
    traced = tf.function(run, autograph=False).get_concrete_function(specs)
    return [_on_host(traced({name: tf.constant(value) for name, value in arrays.items()})) for arrays in batches]


def _taped(function: Any, wrt: str | None, values: Any) -> tuple[Any, Any]:
    with tf.GradientTape() as tape:
        if wrt is not None:
            tape.watch(values[wrt])
        value = tf.convert_to_tensor(function(**values))
    slope = tape.gradient(value, values[wrt]) if wrt is not None and value.dtype.is_floating else None
    return value, slope if slope is None else tf.convert_to_tensor(slope)


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
    return _on_host((value.detach(), slope))
