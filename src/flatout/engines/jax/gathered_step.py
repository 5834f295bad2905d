"""A step on rows of placed data: they are gathered on the device, by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun

from flatout.engines.contract import Structure

from .data_parallel import OneDevice


def on_rows(jaxpr: Any, spec: Any, devices: OneDevice) -> Callable[..., Any]:
    """A step on the rows of these numbers, on one device or several."""
    is_on_cpu = jax.default_backend() == "cpu"
    gather = _gather_apart if is_on_cpu else gathered
    operations, structure = jaxpr_as_fun(jaxpr), jax.tree.structure(spec)

    def step(state: Any, data: Structure, numbers: Any) -> Any:
        batch = devices.divided(gather(data, devices.divided(numbers)))
        results = operations(*jax.tree.leaves((state, batch)))
        return jax.tree.unflatten(structure, devices.known_to_all(results))

    return step


def gathered(data: Structure, numbers: Any) -> Structure:
    return jax.tree.map(lambda rows: rows.at[numbers].get(mode="promise_in_bounds"), data)


def _gather_apart(data: Structure, numbers: Any) -> Structure:
    """Gather where XLA cannot fuse it with what reads the batch: a loss summed in one go with it is rounded otherwise.

    XLA's CPU compiler drops optimization barriers before it fuses, but leaves alone a condition that it cannot decide.
    """

    def nothing(data: Structure, numbers: Any) -> Structure:
        return jax.tree.map(lambda rows: jnp.zeros((*numbers.shape, *rows.shape[1:]), rows.dtype), data)

    return lax.cond(numbers[0] >= 0, gathered, nothing, data, numbers)
