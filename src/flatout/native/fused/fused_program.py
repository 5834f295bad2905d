"""The fused form as a program: x as halves, all steps in one kernel, and the sums of loss and metrics after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from flatout.native.model.c_expressions import c_bool, c_float
from flatout.native.model.network import Affine, Network
from flatout.native.program.builder import THREADS, Builder, per_block, per_value
from flatout.native.program.kernel_program import (
    ONE,
    ONE_BLOCK,
    STEPS_PER_CHUNK,
    Buffer,
    GridExtent,
    Kernel,
    KernelProgram,
)
from flatout.native.program.kernel_source import fused_code

from .fused_plan import FusedPlan

# Parts of the rows whose ranges are looked for at a time.
RANGE_PARTS = 64
# The host decides about the range of x before it is split, so these are launched one by one.
RANGE, SPLIT, TRAIN, STEP_SUMS, LOG = "fused_range_x", "fused_split_x", "fused_steps", "fused_step_sums_", "fused_log_"


def fused_program(staged: KernelProgram, plan: FusedPlan) -> KernelProgram:
    """The program of a plan, whose data, weights, optimizer state and metrics are the buffers of the staged one."""
    network = staged.network
    builder = Builder(plan.batch)
    builder.layout.update(staged.layout)
    own = _own_buffers(plan)
    builder.layout.update(own)
    config = _config(network, plan, staged.layout, builder)
    train = _train_kernel(builder, network, plan)
    _data_kernels(builder, plan)
    _sum_kernels(builder, network, plan)
    prelude = fused_code([*builder.declarations.values(), *config], is_stack=len(plan.hidden) > 1)
    return KernelProgram(
        network,
        "fused",
        plan.batch,
        own,
        {**builder.kernels, TRAIN: train},
        {"train": (TRAIN, STEP_SUMS, LOG)},
        prelude,
        staged.model,
        staged.binding,
    )


def _own_buffers(plan: FusedPlan) -> dict[str, Buffer]:
    buffers = (
        Buffer("fused/planes", (0, plan.layers[0].row_halves), "uint16", "data"),
        Buffer("fused/largest", (RANGE_PARTS, plan.inputs), "int32", "scratch"),
        Buffer("fused/numbers", (2,), "float32", "state"),
        Buffer("fused/span", (2,), "int32", "state"),
        Buffer("fused/row_sums", (STEPS_PER_CHUNK, plan.batch, 2), "float32", "scratch"),
        Buffer("fused/step_sums", (STEPS_PER_CHUNK, 2), "float32", "scratch"),
        Buffer("fused/failed", (1,), "int32", "state"),
    )
    return {buffer.name: buffer for buffer in buffers}


def _config(network: Network, plan: FusedPlan, layout: dict[str, Buffer], builder: Builder) -> list[str]:
    """The types by which the kernel is made: one for what all hidden layers share, and one for each."""
    *hidden, output = network.denses
    types = [_struct("FusedCommon", _common_members(network, plan))]
    for number, (dense, shape) in enumerate(zip(hidden, plan.layers, strict=True)):
        assert dense.bias is not None
        is_last = dense is hidden[-1]
        members = {
            "INPUTS": shape.inputs,
            "FEATURE_TILES": shape.tiles,
            "PLANES": shape.planes,
            "WIDTH": shape.width,
            # With the units that are only there to fill the matrix tiles.
            "HIDDEN": shape.units * plan.cluster,
            "AT_ONCE": shape.tiles_at_once,
            "AT_W1": layout[dense.kernel.name].offset,
            "AT_B1": layout[dense.bias.name].offset,
            "IS_LAST": is_last,
            "BUFFERS": plan.buffers if number == 0 else 1,
        }
        if is_last:
            assert output.bias is not None
            members |= {"AT_W2": layout[output.kernel.name].offset, "AT_B2": layout[output.bias.name].offset}
        curve = f"typedef {builder.curve(dense.name, dense.curve)} Activation;"
        types.append(_struct(f"Fused{number} : FusedCommon", members, curve))
    return types


def _struct(head: str, members: Mapping[str, Any], *lines: str) -> str:
    """A type with constants of these values; text is the name of one of C's integers."""
    kinds = {bool: ("bool", c_bool), float: ("float", c_float)}
    made = [f"    {line}" for line in lines]
    for name, value in members.items():
        kind, write = kinds.get(type(value), ("int", str))
        made.append(f"    static constexpr {kind} {name} = {write(value)};")
    return "\n".join([f"struct {head} {{", *made, "};\n"])


def _common_members(network: Network, plan: FusedPlan) -> dict[str, Any]:
    optimizer, loss = network.optimizer, network.loss
    assert optimizer is not None
    assert loss is not None
    is_adam = optimizer.kind == "adam"
    return {
        "CLUSTER": plan.cluster,
        "WARPS": plan.warps,
        "OUTPUTS": plan.outputs,
        "BATCH": plan.batch,
        "SHARED_BYTES": plan.shared_bytes,
        "SLOTS": plan.slots,
        # The column of the table of learning rates.
        "RATE": int(is_adam),
        "RULE": "FUSED_ADAM" if is_adam else "FUSED_SGD",
        "EXACT": plan.precision == "exact",
        "CLIPPED": loss.form == "probabilities",
        "PREFETCH": plan.planes == 2,
        "NESTEROV": not is_adam and bool(optimizer["nesterov"]),
        "CLIP": loss.epsilon,
        "ONE_MINUS_BETA_1": 1 - optimizer["beta_1"] if is_adam else 1.0,
        "ONE_MINUS_BETA_2": 1 - optimizer["beta_2"] if is_adam else 1.0,
        "EPSILON": optimizer["epsilon"] if is_adam else 1.0,
        "MOMENTUM": 0.0 if is_adam else optimizer["momentum"],
    }


def _train_kernel(builder: Builder, network: Network, plan: FusedPlan) -> Kernel:
    optimizer = network.optimizer
    assert optimizer is not None
    draft = builder.kernel(TRAIN, f"all steps: {plan.title}")
    slots = [draft.write(slot, slot, also_read=True) for slot in optimizer.slots]
    arguments = [
        *draft.reads(planes="fused/planes", labels="y", order="order", span="fused/span", scalars="scalars"),
        draft.read("numbers", "fused/numbers"),
        draft.write("weights", "weights", also_read=True),
        *[*slots, "nullptr", "nullptr"][:2],
        *draft.writes(row_sums="fused/row_sums", failed="fused/failed"),
    ]
    sizes = (plan.inputs, *plan.hidden, plan.outputs)
    # Forward, gradients of weights, and (but for x) gradients of inputs.
    flops = 2 * plan.batch * sum((3 if n else 2) * one * other for n, (one, other) in enumerate(pairwise(sizes)))
    if len(plan.hidden) == 1:
        draft.call("fused_train<Fused0>", arguments, ONE_BLOCK, flops, takes_rows=False)
    else:
        stack = f"FusedStack<{', '.join(f'Fused{number}' for number in range(len(plan.hidden)))}>()"
        draft.call("fused_train_stack", [stack, *arguments], ONE_BLOCK, flops, takes_rows=False)
    kernel = builder.kernels.pop(TRAIN)
    return dataclasses.replace(kernel, threads=32 * plan.warps, cluster=plan.cluster, shared_bytes=plan.shared_bytes)


def _data_kernels(builder: Builder, plan: FusedPlan) -> None:
    affine: Affine | None = None if plan.is_raw else plan.input
    kind, inputs = "FUSED_PLAIN", {"x": "x", "scale": None, "offset": None}
    if affine is not None:
        kind = f"FUSED_{affine.kind.upper()}"
        inputs |= {"scale": affine.scale.name, "offset": affine.offset.name}
    draft = builder.kernel(RANGE, "the largest magnitude of each feature")
    arguments = [*draft.reads(**inputs), draft.write("largest", "fused/largest"), "rows", str(RANGE_PARTS)]
    grid = GridExtent(fixed=plan.inputs, tile=THREADS), GridExtent(fixed=RANGE_PARTS), ONE
    draft.call(f"fused_range<{plan.inputs}, {kind}>", arguments, grid)
    draft = builder.kernel(SPLIT, "x as halves")
    padded = 16 * plan.layers[0].tiles
    numbers, planes = draft.read("numbers", "fused/numbers"), draft.write("planes", "fused/planes")
    function = f"fused_split<{plan.inputs}, {padded}, {plan.planes}, {kind}>"
    draft.call(function, [*draft.reads(**inputs), numbers, planes, "rows"], per_value(padded))


def _sum_kernels(builder: Builder, network: Network, plan: FusedPlan) -> None:
    draft = builder.kernel(STEP_SUMS, "loss and right answers of each step")
    taken = draft.reads(row_sums="fused/row_sums", span="fused/span")
    arguments = [*taken, draft.write("step_sums", "fused/step_sums")]
    draft.call(f"fused_step_sums<{plan.batch}>", arguments, per_block(STEPS_PER_CHUNK, THREADS), takes_rows=False)
    draft = builder.kernel(LOG, "totals of loss and metrics after each step")
    taken = draft.reads(step_sums="fused/step_sums", span="fused/span", failed="fused/failed")
    arguments = [*taken, draft.write("totals", "metrics", also_read=True), draft.write("log", "log")]
    draft.call(f"fused_log<{plan.batch}, {len(network.metrics)}>", arguments, ONE_BLOCK, takes_rows=False)
