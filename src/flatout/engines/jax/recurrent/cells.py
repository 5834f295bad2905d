"""One time step of each recurrent layer, as Keras defines it, and what its kernels are compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

States = tuple[Any, ...]
# The fewest rows that a GPU's own units multiply. Units, too, come in powers of two from here on.
TILE = 16


@dataclass(frozen=True)
class Cell:
    """A layer's time step, without its products.

    A unit without weights stays at 0 where it begins there, so that units can be added to fill a block.

    Attributes:
        gates: What a unit receives: as many sums of projected inputs and, for some, of products with the state.
        products: To which of them a product of the state with a recurrent kernel is added, in the kernels' order.
        states: How many there are; the first is the output, which is multiplied.
        step: The next states, of what the gates receive and the states now.
    """

    gates: int
    products: tuple[int, ...]
    states: int
    step: Callable[[Sequence[Any], States], States]


@dataclass(frozen=True)
class Form:
    """What a kernel is compiled for, besides shapes and dtypes.

    Attributes:
        cell: Its time step.
        backwards: For each direction, whether it begins with the last step: at most the second one of two does.
        rows: Of a program. `TILE` are multiplied by the GPU's own units, fewer number by number, for which recurrent
            kernels must fit into registers; then many programs share the work, and no step waits for much of it.
        interpret: Whether to run as plain jax operations, on any device.
        is_split: Whether float32 factors are multiplied as three bfloat16 parts each, by tensor cores. Of the nine
            products the six that count are taken: the error is that of float32.
        reloads: Whether recurrent kernels are too large to be kept, and are loaded anew in each time step.
    """

    cell: Cell
    backwards: tuple[bool, ...]
    rows: int = TILE
    interpret: bool = False
    is_split: bool = False
    reloads: bool = False


def _lstm(gates: Sequence[Any], states: States) -> States:
    into, forget, candidate, out = gates
    _, carry = states
    carry = jax.nn.sigmoid(forget) * carry + jax.nn.sigmoid(into) * jnp.tanh(candidate)
    return jax.nn.sigmoid(out) * jnp.tanh(carry), carry


def _gru(gates: Sequence[Any], states: States) -> States:
    update, reset, of_inputs, of_state = gates
    update = jax.nn.sigmoid(update)
    candidate = jnp.tanh(of_inputs + jax.nn.sigmoid(reset) * of_state)
    return (update * states[0] + (1 - update) * candidate,)


def _simple(gates: Sequence[Any], states: States) -> States:
    return (jnp.tanh(gates[0]),)


LSTM = Cell(4, (0, 1, 2, 3), 2, _lstm)
# Of the candidate, the product is multiplied by a gate before it is added (`reset_after=True`): a gate of its own.
GRU = Cell(4, (0, 1, 3), 1, _gru)
SIMPLE = Cell(1, (0,), 1, _simple)
