"""A traced jax program, run by NumPy: nothing is compiled for the few runs that a loss gets in a proof.

XLA needs 50 ms and more for the smallest program, and as much again for each shape; NumPy needs a microsecond for an
operation on the few numbers of a trial. An original that runs here is compared with a rewrite that XLA has compiled, on
all adversarial inputs: a slip in this file can make a comparison fail (then jax itself is asked), but to let a wrong
rewrite pass it would have to repeat that rewrite's mistake, in value and gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .gathers_on_host import NotOnHost
from .primitives_on_host import OPERATIONS

# Others are left to jax: NumPy has no bfloat16, and what it makes of the rest was not compared with XLA's.
DTYPES = frozenset({"bool", "uint8", "uint32", "int32", "int64", "float32", "float64"})
# The parameter that holds the program of a call.
BODIES = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def is_known(jaxpr: Any) -> bool:
    """Whether all operations of a (closed or open) jaxpr are known, those of inner ones too."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if inner.effects or not all(map(_has_known_type, (*inner.invars, *inner.constvars))):
        return False
    for equation in inner.eqns:
        name = equation.primitive.name
        if not all(map(_has_known_type, equation.outvars)):
            return False
        if name in BODIES:
            if BODIES[name] not in equation.params or not is_known(equation.params[BODIES[name]]):
                return False
        elif name not in OPERATIONS:
            return False
    return True


def _has_known_type(variable: Any) -> bool:
    return str(getattr(variable.aval, "dtype", "")) in DTYPES


def run(closed: Any, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a closed jaxpr returns.

    Raises:
        NotOnHost: If NumPy would not give what XLA gives.
    """
    with np.errstate(all="ignore"):
        try:
            return _run(closed.jaxpr, [np.asarray(one) for one in closed.consts], arguments)
        except NotOnHost:
            raise
        except Exception as error:
            # No traced program raises: it is this file that does not know a form of an operation.
            raise NotOnHost(str(error)) from error


def _run(jaxpr: Any, constants: Sequence[np.ndarray], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    known: dict[Any, np.ndarray] = dict(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> np.ndarray:
        return np.asarray(atom.val, atom.aval.dtype) if hasattr(atom, "val") else known[atom]

    for equation in jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        found = apply(equation.primitive, equation.params, values, [variable.aval for variable in equation.outvars])
        known.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def apply(primitive: Any, params: Any, values: Sequence[np.ndarray], results: Sequence[Any]) -> list[np.ndarray]:
    """One operation, or call of a program, with the types that its results must have."""
    if primitive.name in BODIES:
        inner = params[BODIES[primitive.name]]
        closed = getattr(inner, "jaxpr", inner)
        return _run(closed, [np.asarray(one) for one in getattr(inner, "consts", ())], values)
    made = OPERATIONS[primitive.name](params, *values)
    found = list(made) if primitive.multiple_results else [made]
    return [_as(value, aval) for value, aval in zip(found, results, strict=True)]


def _as(value: Any, aval: Any) -> np.ndarray:
    made = np.asarray(value)
    if made.shape != aval.shape:
        raise NotOnHost(f"shape {made.shape} for {aval}")
    return made if made.dtype == aval.dtype else made.astype(aval.dtype)
