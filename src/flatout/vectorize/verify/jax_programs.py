"""Programs of a verification on jax: of the original one that is compiled quickly, of the rewrite as `fit` has it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.seam.patches import replaced_here

from .gradients import Answer, Arrays

# Of a program that is compiled as a whole; beyond this, single operations that are compiled once are sooner.
_MOST_EQUATIONS = 3000


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


def answer(function: Any, arrays: Arrays, wrt: str | None, compiled: bool, quick: bool) -> Answer:
    """What a loss gives: compiled as `fit` compiles it, or quickly if that can be done, or each operation by itself."""
    found = quick_answer(function, arrays, wrt) if quick and not compiled else None
    if compiled:
        found = _run(function, arrays, wrt, is_quick=False)
    return by_steps(function, arrays, wrt) if found is None else found


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
    return _run(function, arrays, wrt, is_quick=True)


def _run(function: Any, arrays: Arrays, wrt: str | None, is_quick: bool) -> Answer | None:
    shapes = tuple((name, value.shape, str(value.dtype)) for name, value in arrays.items())
    program = _program(function, wrt, shapes, is_quick)
    return None if program is None else _answer(program(dict(arrays)))


@functools.lru_cache(maxsize=256)
def _program(function: Any, wrt: str | None, shapes: Any, is_quick: bool) -> Any:
    """A function compiled for some shapes: as `fit` compiles it, or quickly, for a handful of runs."""
    import jax

    program = jax.jit(differentiated(function, wrt))
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


def _answer(found: Sequence[Any]) -> Answer:
    value, slope = found
    return np.asarray(value), None if slope is None else np.asarray(slope)
