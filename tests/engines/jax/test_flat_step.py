"""A step as a flat list of operations does what its jaxpr does, and knows its numbers apart from its operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flatout.engines.jax.flat_step import differing, flattened, mapped

pytestmark = pytest.mark.backend("jax")

X = jnp.linspace(-1.0, 2.0, 12).reshape(3, 4)
W = jnp.linspace(0.1, 0.9, 8).reshape(4, 2)


def step(rate: float, power: float, table: Any, steps: int = 3) -> Any:
    """With calls, a custom gradient, a loop and a branch in it, and numbers of all kinds."""

    def loss(w: Any, x: Any) -> Any:
        hidden = jax.nn.relu(x @ w) + jnp.asarray(table)
        hidden = jax.lax.fori_loop(0, steps, lambda _, h: jnp.tanh(h) * 1.5, hidden)
        return jax.lax.cond(hidden.sum() > 0, lambda h: (jnp.abs(h) ** power).mean(), jnp.sum, hidden)

    def run(w: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(w, x)
        return value, w - rate * jax.jit(jnp.sign)(gradient)

    return run


def flat(*arguments: Any) -> Any:
    return flattened(jax.make_jaxpr(step(*arguments))(W, X))


def test_it_does_what_the_step_does() -> None:
    arguments = (0.1, 2.0, [0.5, -0.5])
    one = flat(*arguments)
    for got, expected in zip(one.run([W, X], one.numbers), step(*arguments)(W, X), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_steps_that_differ_in_numbers_are_mapped_with_those_as_inputs() -> None:
    settings = [(0.1, 2.0, [0.5, -0.5]), (0.3, 2.0, [0.5, -0.5]), (0.1, 2.0, [0.0, 1.0])]
    flats = [flat(*one) for one in settings]
    assert len({one.digest for one in flats}) == 1
    lifted = differing(flats)
    assert 0 < len(lifted) < len(flats[0].numbers)
    numbers = [jnp.stack([jnp.asarray(one.numbers[place]) for one in flats]) for place in lifted]
    weights = jnp.stack([W, 2 * W, -W])
    values, after = mapped(flats[0], lifted)([weights], [jnp.stack([X, X + 1, X])], numbers)
    for number, arguments in enumerate(settings):
        expected = step(*arguments)(weights[number], X + 1 if number == 1 else X)
        np.testing.assert_allclose(values[number], expected[0], rtol=1e-5)
        np.testing.assert_allclose(after[number], expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        (0.1, 2.0, [0.5, -0.5], 4),  # Another length of the loop.
        (0.1, 2.0, [[0.5, -0.5]] * 3, 3),  # A table of another shape.
    ],
)
def test_steps_with_other_operations_have_another_digest(other: Any) -> None:
    assert flat(*other).digest != flat(0.1, 2.0, [0.5, -0.5]).digest


def test_bytes_are_those_that_are_there_at_a_time() -> None:
    def chain(x: Any) -> Any:
        for _ in range(5):
            x = jnp.sin(x)
        return x.sum()

    def both(x: Any) -> Any:
        return jnp.sin(x) * jnp.cos(x)

    x = jnp.ones(1000, jnp.float32)
    assert flattened(jax.make_jaxpr(chain)(x)).nbytes == 2 * 4000
    assert flattened(jax.make_jaxpr(both)(x)).nbytes == 3 * 4000
