"""Programs of a verification on jax: an original that is compiled quickly, a rewrite that is compiled beforehand."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from flatout.seam.local_patches import replaced_here

from .gradients import Answer, Arrays

Shapes = tuple[tuple[str, tuple[int, ...], str], ...]

# Of a program that is compiled as a whole; beyond this, single operations that are compiled once are sooner.
_MOST_EQUATIONS = 3000
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
    """What a loss gives that can be traced, as a small program compiled as a whole; None for others.

    Outside compiled code jax compiles every operation by itself, for every shape and every place that a slice is taken
    from, which takes seconds for a loop over a few rows.
    """
    return _programs(function, is_quick=True).run(arrays, wrt)


def compiled_answer(function: Any, arrays: Arrays, wrt: str | None) -> Answer:
    """What a loss gives, compiled as `fit` compiles it."""
    found = _programs(function, is_quick=False).run(arrays, wrt)
    assert found is not None
    return found


class _Programs:
    """A function compiled for several shapes: as `fit` compiles it, or quickly, for a handful of runs."""

    def __init__(self, function: Any, is_quick: bool):
        self._function = function
        self._is_quick = is_quick
        self._made: dict[tuple[str | None, Shapes], concurrent.futures.Future[Any] | None] = {}

    def begin(self, pool: concurrent.futures.Executor | None, arrays: Arrays, wrt: str | None) -> Any:
        """Trace it for these arrays, if that was not done, and compile it: in a thread of the pool, or now."""
        key = wrt, tuple((name, value.shape, str(value.dtype)) for name, value in arrays.items())
        if key not in self._made:
            compiling = self._lowered(*key)
            self._made[key] = compiling if compiling is None else pool.submit(compiling) if pool else _done(compiling())
        return self._made[key]

    def _lowered(self, wrt: str | None, shapes: Shapes) -> Callable[[], Any] | None:
        import jax

        program = jax.jit(differentiated(self._function, wrt))
        given = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in shapes}
        if not self._is_quick:
            return program.trace(given).lower().compile  # type: ignore[no-any-return]
        try:
            traced = program.trace(given)
        except Exception:
            return None  # It reads values on the host.
        if len(traced.jaxpr.eqns) > _MOST_EQUATIONS:
            return None
        # Quick to compile, slow to run; where it gives something else than the rewrite, it is asked step by step.
        options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
        return functools.partial(traced.lower().compile, compiler_options=options)

    def run(self, arrays: Arrays, wrt: str | None) -> Answer | None:
        made = self.begin(None, arrays, wrt)
        return None if made is None else _answer(made.result()(dict(arrays)))

    def forget_unfinished(self) -> None:
        self._made = {key: made for key, made in self._made.items() if made is None or not made.cancelled()}


@functools.lru_cache(maxsize=64)
def _programs(function: Any, is_quick: bool) -> _Programs:
    return _Programs(function, is_quick)


@contextlib.contextmanager
def compiling_ahead(function: Any) -> Iterator[Callable[[Arrays, str | None], None]]:
    """Gives what compiles a function for arrays of some shape as `fit` does, while other things are done."""
    made = _programs(function, is_quick=False)
    pool = concurrent.futures.ThreadPoolExecutor(_COMPILERS)

    def begin(arrays: Arrays, wrt: str | None) -> None:
        with contextlib.suppress(Exception):  # It is raised again where this input is tried.
            made.begin(pool, arrays, wrt)

    try:
        yield begin
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        made.forget_unfinished()


def _done(result: Any) -> concurrent.futures.Future[Any]:
    made: concurrent.futures.Future[Any] = concurrent.futures.Future()
    made.set_result(result)
    return made


def _answer(found: Sequence[Any]) -> Answer:
    value, slope = found
    return np.asarray(value), None if slope is None else np.asarray(slope)
