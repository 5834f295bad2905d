"""Programs of a proof on jax: an original that NumPy runs as it was traced, a rewrite that XLA compiles beforehand."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flatout.seam.local_patches import replaced_here

from . import jaxpr_on_host
from .gathers_on_host import CannotRun

Arrays = Mapping[str, np.ndarray]
Answer = tuple[np.ndarray, np.ndarray | None]
Shapes = tuple[tuple[str, tuple[int, ...], str], ...]

# Of a program that is compiled as a whole; beyond this, single operations that are compiled once are sooner.
_MOST_EQUATIONS = 300
# XLA compiles the parts of a program in threads of its own, but reads and plans a program in one.
_COMPILERS = 2


def differentiated(function: Any, wrt: str | None) -> Any:
    """The value of a loss, and the gradient of its sum with respect to one argument, as a function of its arguments."""
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


def by_steps(function: Any, arrays: Arrays, wrt: str | None) -> Answer:
    """What a loss gives outside compiled code, each operation by itself."""
    import jax.numpy as jnp

    given = {name: jnp.asarray(value) for name, value in arrays.items()}
    with contextlib.nullcontext() if wrt is None else _readable_tracers():
        return _answer(differentiated(function, wrt)(given))


def _readable_tracers() -> contextlib.AbstractContextManager[None]:
    """While jax differentiates without compiling, float(x) and np.asarray(x) give the value, as they do on torch.

    A loss with such a line has no gradient on jax; the one that its author means treats what was read as a constant.
    """
    import jax

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


def quick_answer(function: Any, arrays: Arrays, wrt: str | None) -> Answer | None:
    """What a loss gives that can be traced, by NumPy or as a small program compiled as a whole; None for others.

    Outside compiled code jax compiles every operation by itself, for every shape and every place that a slice is taken
    from, which takes seconds for a loop over a few rows.
    """
    program = _traced(function, wrt, _shapes(arrays))
    if program is None:
        return None
    try:
        return program.on_host(arrays)
    except CannotRun:
        return program.compiled(arrays) if program.is_small else None


class _Traced:
    """An original for arrays of certain shapes."""

    def __init__(self, traced: Any):
        self._traced = traced
        self._is_known = jaxpr_on_host.is_known(traced.jaxpr)

    def on_host(self, arrays: Arrays) -> Answer:
        if not self._is_known:
            raise CannotRun
        # jax flattens a dict in the order of its keys.
        return _answer(jaxpr_on_host.run(self._traced.jaxpr, [arrays[name] for name in sorted(arrays)]))

    @property
    def is_small(self) -> bool:
        return len(self._traced.jaxpr.eqns) <= _MOST_EQUATIONS

    def compiled(self, arrays: Arrays) -> Answer:
        return _answer(self._program(dict(arrays)))

    @functools.cached_property
    def _program(self) -> Any:
        return self._traced.lower().compile(compiler_options=_quick_to_compile())


@functools.lru_cache(maxsize=64)
def _traced(function: Any, wrt: str | None, shapes: Shapes) -> _Traced | None:
    import jax

    try:
        return _Traced(jax.jit(differentiated(function, wrt)).trace(_given(shapes)))
    except Exception:
        return None  # It reads values on the host.


def _quick_to_compile() -> dict[str, Any]:
    """Options for a program that runs a handful of times; one that gives something else is asked step by step."""
    import jax

    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}


class Executables:
    """A function compiled for several shapes as `fit` compiles it, with those begun that will be needed."""

    def __init__(self, function: Any):
        self._function = function
        self._made: dict[tuple[str | None, Shapes], concurrent.futures.Future[Any]] = {}

    def begin(self, pool: concurrent.futures.Executor | None, arrays: Arrays, wrt: str | None) -> Any:
        """Trace it for these arrays, if that was not done, and compile it in a thread of the pool."""
        import jax

        key = wrt, _shapes(arrays)
        if key not in self._made:
            lowered = jax.jit(differentiated(self._function, wrt)).trace(_given(key[1])).lower()
            if pool is None:
                self._made[key] = concurrent.futures.Future()
                self._made[key].set_result(lowered.compile())
            else:
                self._made[key] = pool.submit(lowered.compile)
        return self._made[key]

    def run(self, arrays: Arrays, wrt: str | None) -> Answer:
        return _answer(self.begin(None, arrays, wrt).result()(dict(arrays)))

    def forget_unfinished(self) -> None:
        self._made = {key: made for key, made in self._made.items() if not made.cancelled()}


@functools.lru_cache(maxsize=64)
def executables(function: Any) -> Executables:
    return Executables(function)


@contextlib.contextmanager
def compiling_ahead(function: Any) -> Iterator[Callable[[Arrays, str | None], None]]:
    """Gives what compiles a function for arrays of some shape, while other things are done."""
    made = executables(function)
    pool = concurrent.futures.ThreadPoolExecutor(_COMPILERS)

    def begin(arrays: Arrays, wrt: str | None) -> None:
        with contextlib.suppress(Exception):  # It is raised again where this input is tried.
            made.begin(pool, arrays, wrt)

    try:
        yield begin
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        made.forget_unfinished()


def _shapes(arrays: Arrays) -> Shapes:
    return tuple((name, value.shape, str(value.dtype)) for name, value in arrays.items())


def _given(shapes: Shapes) -> dict[str, Any]:
    import jax

    return {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}


def _answer(found: Sequence[Any]) -> Answer:
    value, gradient = (*found, None)[:2]
    return np.asarray(value), None if gradient is None else np.asarray(gradient)
