"""Which recurrent layers run as kernels of ours, and why the others are left to Keras' own code."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from keras import activations, layers, ops
from keras.src import backend

from flatout.engines.jax import triton_gpu
from flatout.seam.layers import all_layers

from . import cells
from .cells import TILE, Form

CELLS: dict[type, cells.Cell] = {
    layers.LSTMCell: cells.LSTM,
    layers.GRUCell: cells.GRU,
    layers.SimpleRNNCell: cells.SIMPLE,
}
_BYTES = {"float32": 4, "bfloat16": 2}
# Up to so many units products of float32 need no more registers than there are; more are multiplied as bfloat16 parts.
# Read from what Triton 3.6, 3.8 and 3.9 make of the kernels for the H200.
_MOST_IN_FLOAT32 = {cells.LSTM: 64, cells.GRU: 32, cells.SIMPLE: 64}
_PARTS = 3
# So many numbers of recurrent kernels are multiplied where they are, in registers, by programs of few rows: as long as
# a multiprocessor has so many sequences at most, that takes less time (H200).
_MOST_IN_REGISTERS = 4 * 64**2
_MOST_SEQUENCES_OF_A_CORE = {1: 2, 4: 8}
_MOST_UNITS = 128
# What a program may have of a multiprocessor's shared memory, in bytes: the least that GPUs since Ampere have, and what
# those have that are made for data centres.
_SHARED_MEMORY = 99 * 1024
_MORE_SHARED_MEMORY = {"8.0": 163 * 1024, "9.0": 227 * 1024, "10.0": 227 * 1024, "10.3": 227 * 1024}


def has_kernels_for(model: Any) -> bool:
    """Whether there is a layer in a model for which we have kernels, and a GPU that Triton compiles them for."""
    has_some = any(isinstance(layer, layers.RNN) and not obstacle_of_layer(layer) for layer in all_layers(model))
    return has_some and triton_gpu.compiles_triton()


def obstacle_of_layer(layer: Any) -> str:
    """Why a recurrent layer is left to Keras whatever it is called with, in words; "" if it is not."""
    cell = layer.cell
    if type(cell) not in CELLS:
        return f"there is no kernel for a {type(cell).__name__}"
    if cell.activation not in (activations.tanh, ops.tanh, jnp.tanh):
        return "its activation is not tanh"
    if getattr(cell, "recurrent_activation", activations.sigmoid) not in (activations.sigmoid, ops.sigmoid):
        return "its recurrent activation is not sigmoid"
    if not getattr(cell, "reset_after", True):
        return "it resets the state before the product (reset_after=False)"
    if layer.unroll:
        return "it is unrolled"
    if getattr(layer, "use_cudnn", "auto") is True:
        return "it asks for cuDNN"
    if cell.compute_dtype not in _BYTES or layer.compute_dtype != cell.compute_dtype or not layer.autocast:
        return f"it computes in {cell.compute_dtype}"
    if form_for(cell) is None:
        return f"{cell.units} units in {cell.compute_dtype} are too many for a kernel"
    return ""


def filled_units(units: int) -> int:
    """As many as a kernel computes for so many of a layer's."""
    return max(TILE, 1 << (units - 1).bit_length())


def form_for(cell: Any, sequences: int | None = None) -> Form | None:
    """The kernel for a cell of Keras, one way; None if there is no room for it in the GPU's shared memory.

    Args:
        cell: It.
        sequences: How many it runs over at once, of both directions and all models; None if that is not known.
    """
    own, units, dtype = CELLS[type(cell)], filled_units(cell.units), cell.compute_dtype
    if sequences is not None and len(own.products) * units**2 <= _MOST_IN_REGISTERS:
        for rows, most in _MOST_SEQUENCES_OF_A_CORE.items():
            if sequences <= most * triton_gpu.cores():
                return Form(own, (False,), rows=rows)
    is_split = dtype == "float32" and units > _MOST_IN_FLOAT32[own]
    row = units * (_PARTS * _BYTES["bfloat16"] if is_split else _BYTES[dtype])
    kernel, products = units * row, len(own.products)
    # Besides, there is a tile of what is multiplied by each.
    room = _MORE_SHARED_MEMORY.get(triton_gpu.capability(), _SHARED_MEMORY) - (products + 1) * TILE * row
    if units > _MOST_UNITS or kernel > room:
        return None
    return Form(own, (False,), is_split=is_split, reloads=products * kernel > room)


def obstacle_of_call(layer: Any, sequences: Any, mask: Any, training: Any, is_half: bool = False) -> str:
    """Why this call of a recurrent layer is left to Keras, in words; "" if it is not.

    Args:
        layer: It.
        sequences: Its inputs.
        mask: Of their steps, or None.
        training: As Keras' layers are told.
        is_half: Whether Keras would run it and another layer, the other way round, in one call of cuDNN.
    """
    why = obstacle_of_layer(layer)
    if why:
        return why
    cell = layer.cell
    if training and cell.recurrent_dropout:
        return "it drops parts of its state"
    if training and cell.dropout and getattr(cell, "implementation", 2) == 1:
        return "its gates drop inputs of their own"
    if sequences.ndim != 3 or not sequences.shape[1] or not jnp.issubdtype(sequences.dtype, jnp.floating):
        return "its inputs are no sequences of numbers"
    if mask is not None and mask.ndim != 2:
        return "its mask has more than one value for each step"
    if mask is None and not is_half and _is_of_another_order(layer):
        return "Keras' call of cuDNN returns these outputs in another order"
    return ""


def _is_of_another_order(layer: Any) -> bool:
    """Whether Keras' own code would have outputs of a sequence read backwards in the order of time.

    It does where it calls cuDNN (3.13 to 3.15); everywhere else, as documented, in the order in which they come.
    """
    if not (isinstance(layer, layers.LSTM) and layer.go_backwards and layer.return_sequences and layer.use_cudnn):
        return False
    cudnn_ok = getattr(backend, "cudnn_ok", None)
    cell = layer.cell
    return cudnn_ok is not None and bool(
        cudnn_ok(cell.activation, cell.recurrent_activation, layer.unroll, use_bias=cell.use_bias)
    )
