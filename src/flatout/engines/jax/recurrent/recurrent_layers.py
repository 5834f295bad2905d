"""Keras' recurrent layers by our kernels, while a step is traced: layers are called as always, their loops are ours."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from keras import layers, ops, tree

from flatout.base.errors import Reason, reason
from flatout.engines.contract import company
from flatout.seam.patches import beneath, replaced_here

from .recurrence import recurrence
from .recurrent_choice import filled_units, form_for, obstacle_of_call

# Keras' question whether cuDNN shall run both directions at once; 3.12 to 3.14 do not ask.
_CAN_BE_FUSED = "_can_attempt_fused_lstm"


@dataclass
class _Pair:
    """A bidirectional layer that is being called: both of its layers are computed when the first one is.

    Attributes:
        forward: The one.
        backward: The other.
        states: What the other begins with, if the user says so.
        is_fused: Whether Keras would have cuDNN run both at once.
        is_ours: Whether both are computed by kernels.
        found: What the other returns.
    """

    forward: Any
    backward: Any
    states: Any
    is_fused: bool
    is_ours: bool = False
    found: Any = None


_pair: contextvars.ContextVar[_Pair | None] = contextvars.ContextVar("bidirectional", default=None)


@contextlib.contextmanager
def recurrent_kernels(interpret: bool = False) -> Iterator[dict[str, str]]:
    """Meanwhile, in this thread, have recurrent layers computed by kernels wherever there is one for them.

    Yields a dict that comes to say of each layer that was called, by its name, why it was left to Keras; "" if not.
    """
    decided: dict[str, str] = {}
    with replaced_here(_replacements(decided, interpret)):
        yield decided


def reasons_of(decided: Mapping[str, str]) -> tuple[Reason, ...]:
    """What a report says of recurrent layers."""
    ours = [name for name, why in decided.items() if not why]
    named = [reason("recurrent_kernels", ", ".join(ours))] if ours else []
    return (*named, *(reason("recurrent_layer", name, why) for name, why in decided.items() if why))


def _replacements(decided: dict[str, str], interpret: bool) -> dict[tuple[Any, str], Callable[..., Any]]:
    """What is called in the place of Keras' methods; nothing if Keras does not have them."""

    def inner_loop_of(owner: type) -> Callable[..., Any]:
        def inner_loop(layer: Any, sequences: Any, initial_state: Any, mask: Any = None, training: Any = False) -> Any:
            pair = _pair_of(layer)
            one_mask = _only(mask)
            why = obstacle_of_call(layer, sequences, one_mask, training, pair is not None and pair.is_fused)
            decided[layer.name] = why
            if why:
                return beneath(owner, "inner_loop")(layer, sequences, initial_state, mask=mask, training=training)
            states = tree.flatten(initial_state)
            if pair is None or not _runs_at_once(pair, training):
                return _computed([layer], sequences, [states], one_mask, training, interpret)[0]
            if layer is pair.forward:
                begin = [states, _first_states(pair, len(sequences))]
                found, pair.found = _computed([layer, pair.backward], sequences, begin, one_mask, training, interpret)
                return found
            return pair.found

        return inner_loop

    methods: dict[tuple[Any, str], Callable[..., Any]] = {
        **{(owner, "inner_loop"): inner_loop_of(owner) for owner in (layers.RNN, layers.LSTM, layers.GRU)},
        (layers.Bidirectional, "call"): _call_both,
    }
    if hasattr(layers.Bidirectional, _CAN_BE_FUSED):
        methods[layers.Bidirectional, _CAN_BE_FUSED] = _is_left_to_cudnn
    return methods if all(name in vars(owner) for owner, name in methods) else {}


def _only(mask: Any) -> Any:
    return next(iter(tree.flatten(mask)), None)


def _pair_of(layer: Any) -> _Pair | None:
    pair = _pair.get()
    return pair if pair is not None and (layer is pair.forward or layer is pair.backward) else None


def _call_both(
    layer: Any, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None, **others: Any
) -> Any:
    """In the place of the call of a bidirectional layer."""
    both = layer.forward_layer, layer.backward_layer
    states = None if initial_state is None else initial_state[len(initial_state) // 2 :]
    pair = _Pair(*both, states, _would_be_fused(layer, mask, initial_state))
    pair.is_ours = all(
        isinstance(one, layers.RNN) and not obstacle_of_call(one, sequences, _only(mask), training, pair.is_fused)
        for one in both
    )
    token = _pair.set(pair)
    try:
        call = beneath(layers.Bidirectional, "call")
        return call(layer, sequences, initial_state=initial_state, mask=mask, training=training, **others)
    finally:
        _pair.reset(token)


def _is_left_to_cudnn(layer: Any, *args: Any, **kwargs: Any) -> bool:
    pair = _pair_of(layer.forward_layer)
    return not (pair is not None and pair.is_ours) and bool(_fused(layer, *args, **kwargs))


def _would_be_fused(layer: Any, mask: Any, initial_state: Any) -> bool:
    return hasattr(layers.Bidirectional, _CAN_BE_FUSED) and bool(_fused(layer, mask, initial_state))


def _fused(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return beneath(layers.Bidirectional, _CAN_BE_FUSED)(layer, *args, **kwargs)


def _runs_at_once(pair: _Pair, training: Any) -> bool:
    """Whether both directions are computed by one kernel: nothing that comes between their calls makes a difference."""
    both = pair.forward, pair.backward
    cells = [layer.cell for layer in both]
    return (
        pair.is_ours
        and [layer.go_backwards for layer in both] == [False, True]
        and len({(type(cell), cell.units, cell.compute_dtype) for cell in cells}) == 1
        and not any(training and cell.dropout for cell in cells)
        # Each would be computed in a function of its own, to be computed again.
        and all(getattr(layer, "_remat_mode", None) is None for layer in both)
    )


def _first_states(pair: _Pair, rows: int) -> list[Any]:
    layer = pair.backward
    states = pair.states
    if states is None:
        states = layer.states if layer.stateful else layer.get_initial_state(batch_size=rows)
    return [ops.convert_to_tensor(state, dtype=layer.cell.compute_dtype) for state in tree.flatten(states)]


def _computed(
    directions: Sequence[Any], sequences: Any, states: Sequence[list[Any]], mask: Any, training: Any, interpret: bool
) -> list[Any]:
    """What Keras' `inner_loop` returns for each of one or two layers on the same sequences."""
    cell, (rows, steps, _) = directions[0].cell, sequences.shape
    form = form_for(cell, rows * len(directions) * company().models)
    assert form is not None
    form = replace(form, backwards=tuple(layer.go_backwards for layer in directions), interpret=interpret)
    sequences = ops.cast(sequences, cell.compute_dtype)
    if training and cell.dropout:
        sequences = sequences * jnp.expand_dims(cell.get_dropout_mask(sequences[:, 0, :]), 1)
    more_rows, more_units = -rows % form.rows, filled_units(cell.units) - cell.units
    kernels, biases, weights = zip(*(_weights(layer.cell, more_units) for layer in directions), strict=True)
    kernel, bias = (jnp.stack(parts, axis=-3) for parts in (kernels, biases))
    projected = jnp.matmul(_padded(sequences, more_rows), kernel.reshape(kernel.shape[0], -1)) + bias.reshape(-1)
    outputs, last = recurrence(
        form,
        projected.reshape(rows + more_rows, steps, *bias.shape),
        jnp.stack(weights),
        tuple(_padded(jnp.stack(parts, axis=1), more_rows, 0, more_units) for parts in zip(*states, strict=True)),
        None if mask is None else _padded(mask.astype(jnp.int32), more_rows),
    )
    mask = None if mask is None else mask.astype(bool)
    return [
        _as_keras_returns(
            layer,
            outputs[:rows, :, number, : cell.units],
            [state[:rows, number, : cell.units] for state in last],
            mask if layer.zero_output_for_mask else None,
        )
        for number, layer in enumerate(directions)
    ]


def _as_keras_returns(layer: Any, outputs: Any, states: list[Any], zeroed: Any) -> tuple[Any, Any, list[Any]]:
    last = states[0]
    if zeroed is not None:
        last = jnp.where(zeroed[:, 0 if layer.go_backwards else -1, None], last, 0)
        outputs = jnp.where(zeroed[:, :, None], outputs, 0)
    if not layer.return_sequences:
        return last, last[:, None, :], states
    return last, jnp.flip(outputs, axis=1) if layer.go_backwards else outputs, states


def _weights(cell: Any, more_units: int) -> tuple[Any, Any, Any]:
    """Kernel `[inputs, gates, units]`, bias `[gates, units]` and recurrent kernels `[products, units, units]`."""
    units, dtype = cell.units, cell.compute_dtype
    kernel, recurrent = (ops.convert_to_tensor(value, dtype) for value in (cell.kernel, cell.recurrent_kernel))
    kernel, recurrent = kernel.reshape(len(kernel), -1, units), recurrent.reshape(units, -1, units)
    bias = jnp.zeros(kernel.shape[1:], kernel.dtype)
    if isinstance(cell, layers.GRUCell):
        # The candidate's product is a gate by itself, to which no input is added.
        kernel, bias = _padded(kernel, 0, 1), jnp.zeros((4, units), kernel.dtype)
        if cell.use_bias:
            of_inputs, of_state = ops.convert_to_tensor(cell.bias, dtype).reshape(2, 3, units)
            bias = jnp.concatenate([of_inputs[:2] + of_state[:2], of_inputs[2:], of_state[2:]])
    elif cell.use_bias:
        bias = ops.convert_to_tensor(cell.bias, dtype).reshape(-1, units)
    return (
        _padded(kernel, 0, 0, more_units),
        _padded(bias, 0, more_units),
        _padded(jnp.swapaxes(recurrent, 0, 1), 0, more_units, more_units),
    )


def _padded(array: Any, *more: int) -> Any:
    """With so many zeros after what is there, axis by axis."""
    if not any(more):
        return array
    return jnp.pad(array, [(0, count) for count in (*more, *[0] * (array.ndim - len(more)))])
