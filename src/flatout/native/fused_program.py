"""The fused form as a program: x as halves, all steps in one kernel, and the sums of loss and metrics after them."""

from __future__ import annotations

import dataclasses
from typing import Any

from .builder import THREADS, Builder
from .curves import c_float
from .fused import FusedPlan
from .network import Affine, Dense, Network
from .program import ONE, STEPS_PER_CHUNK, Buffer, Extent, Kernel, Program, StepName
from .source import fused_code

# Parts of the rows whose ranges are looked for at a time.
RANGE_PARTS = 64
# The host decides about the range of x before it is split, so these are launched one by one.
RANGE, SPLIT, TRAIN, STEP_SUMS, LOG = "fused_range_x", "fused_split_x", "fused_steps", "fused_step_sums_", "fused_log_"


def fused_program(staged: Program, plan: FusedPlan) -> Program:
    """The program of a plan, whose data, weights, optimizer state and metrics are the buffers of the staged one."""
    network = staged.network
    builder = Builder(plan.batch)
    builder.layout.update(staged.layout)
    own = _own_buffers(plan)
    builder.layout.update({buffer.name: buffer for buffer in own})
    config = _config(network, plan, staged.layout, builder)
    train = _train_kernel(builder, network, plan)
    _data_kernels(builder, plan)
    _sum_kernels(builder, network, plan)
    kernels = {**builder.kernels, TRAIN: train}
    curve = [text for name, text in builder.declarations.items() if name != "Fused"]
    prelude = fused_code([*curve, config])
    steps: dict[StepName, tuple[str, ...]] = {"train": (TRAIN, STEP_SUMS, LOG)}
    return Program(
        network,
        "fused",
        plan.batch,
        {buffer.name: buffer for buffer in own},
        kernels,
        steps,
        prelude,
        staged.model,
        staged.binding,
        shims=("cluster",),
    )


def _own_buffers(plan: FusedPlan) -> list[Buffer]:
    return [
        Buffer("fused/planes", (0, plan.row_halves), "uint16", "data"),
        Buffer("fused/largest", (RANGE_PARTS, plan.inputs), "int32", "scratch"),
        Buffer("fused/numbers", (2,), "float32", "state"),
        Buffer("fused/span", (2,), "int32", "state"),
        Buffer("fused/row_sums", (STEPS_PER_CHUNK, plan.batch, 2), "float32", "scratch"),
        Buffer("fused/step_sums", (STEPS_PER_CHUNK, 2), "float32", "scratch"),
        Buffer("fused/failed", (1,), "int32", "state"),
    ]


def _config(network: Network, plan: FusedPlan, layout: dict[str, Buffer], builder: Builder) -> str:
    first, second = (layer for layer in network.layers if isinstance(layer, Dense))
    assert first.bias is not None
    assert second.bias is not None
    optimizer, loss = network.optimizer, network.loss
    assert optimizer is not None
    assert loss is not None
    is_adam = optimizer.kind == "adam"
    integers = {
        "CLUSTER": plan.cluster,
        "WARPS": plan.warps,
        "INPUTS": plan.inputs,
        "FEATURE_TILES": plan.tiles,
        "HIDDEN": plan.hidden,
        "OUTPUTS": plan.outputs,
        "BATCH": plan.batch,
        "PLANES": plan.planes,
        "SHARED_BYTES": plan.shared_bytes,
        "AT_ONCE": plan.tiles_at_once,
        "AT_W1": layout[first.kernel.name].offset,
        "AT_B1": layout[first.bias.name].offset,
        "AT_W2": layout[second.kernel.name].offset,
        "AT_B2": layout[second.bias.name].offset,
        "SLOTS": plan.slots,
        # The column of the table of learning rates.
        "RATE": int(is_adam),
        "RULE": "FUSED_ADAM" if is_adam else "FUSED_SGD",
    }
    flags = {
        "EXACT": plan.precision == "exact",
        "CLIPPED": loss.form == "probabilities",
        "PREFETCH": plan.planes == 2,
        "NESTEROV": not is_adam and bool(optimizer["nesterov"]),
    }
    floats = {
        "CLIP": loss.epsilon,
        "ONE_MINUS_BETA_1": 1 - optimizer["beta_1"] if is_adam else 1.0,
        "ONE_MINUS_BETA_2": 1 - optimizer["beta_2"] if is_adam else 1.0,
        "EPSILON": optimizer["epsilon"] if is_adam else 1.0,
        "MOMENTUM": 0.0 if is_adam else optimizer["momentum"],
    }
    lines = [
        f"typedef {builder.curve(first.name, first.curve)} Activation;",
        *(f"static constexpr int {name} = {value};" for name, value in integers.items()),
        *(f"static constexpr bool {name} = {str(value).lower()};" for name, value in flags.items()),
        *(f"static constexpr float {name} = {c_float(value)};" for name, value in floats.items()),
    ]
    return "struct Fused {\n" + "\n".join(f"    {line}" for line in lines) + "\n};\n"


def _train_kernel(builder: Builder, network: Network, plan: FusedPlan) -> Kernel:
    optimizer = network.optimizer
    assert optimizer is not None
    draft = builder.kernel(TRAIN, f"all steps: {plan.title}")
    slots = [draft.write(slot, slot, also_read=True) for slot in optimizer.slots]
    arguments = [
        draft.read("planes", "fused/planes"),
        draft.read("labels", "y"),
        draft.read("order", "order"),
        draft.read("span", "fused/span"),
        draft.read("scalars", "scalars"),
        draft.read("numbers", "fused/numbers"),
        draft.write("weights", "weights", also_read=True),
        *[*slots, "nullptr", "nullptr"][:2],
        draft.write("row_sums", "fused/row_sums"),
        draft.write("failed", "fused/failed"),
    ]
    flops = 2 * plan.batch * plan.hidden * (2 * plan.inputs + 3 * plan.outputs)
    draft.done(f"fused_train<Fused>({', '.join(arguments)});", (ONE, ONE, ONE), flops, takes_rows=False)
    kernel = builder.kernels.pop(TRAIN)
    return dataclasses.replace(kernel, threads=32 * plan.warps, cluster=plan.cluster, shared_bytes=plan.shared_bytes)


def _data_kernels(builder: Builder, plan: FusedPlan) -> None:
    affine: Affine | None = None if plan.is_raw else plan.input
    kind = "FUSED_PLAIN" if affine is None else f"FUSED_{affine.kind.upper()}"

    def inputs(draft: Any) -> str:
        x = draft.read("x", "x")
        scale = draft.read("scale", None if affine is None else affine.scale.name)
        offset = draft.read("offset", None if affine is None else affine.offset.name)
        return f"{x}, {scale}, {offset}"

    draft = builder.kernel(RANGE, "the largest magnitude of each feature")
    x, largest = inputs(draft), draft.write("largest", "fused/largest")
    body = f"fused_range<{plan.inputs}, {kind}>({x}, {largest}, rows, {RANGE_PARTS});"
    draft.done(body, (Extent(fixed=plan.inputs, tile=THREADS), Extent(fixed=RANGE_PARTS), ONE))
    draft = builder.kernel(SPLIT, "x as halves")
    padded = 16 * plan.tiles
    numbers, planes = draft.read("numbers", "fused/numbers"), draft.write("planes", "fused/planes")
    body = f"fused_split<{plan.inputs}, {padded}, {plan.planes}, {kind}>({inputs(draft)}, {numbers}, {planes}, rows);"
    draft.done(body, (Extent(per_row=padded, tile=THREADS), ONE, ONE))


def _sum_kernels(builder: Builder, network: Network, plan: FusedPlan) -> None:
    draft = builder.kernel(STEP_SUMS, "loss and right answers of each step")
    rows, span = draft.read("row_sums", "fused/row_sums"), draft.read("span", "fused/span")
    body = f"fused_step_sums<{plan.batch}>({rows}, {span}, {draft.write('step_sums', 'fused/step_sums')});"
    draft.done(body, (Extent(fixed=STEPS_PER_CHUNK, tile=THREADS), ONE, ONE), takes_rows=False)
    draft = builder.kernel(LOG, "totals of loss and metrics after each step")
    sums, span = draft.read("step_sums", "fused/step_sums"), draft.read("span", "fused/span")
    failed = draft.read("failed", "fused/failed")
    totals, log = draft.write("totals", "metrics", also_read=True), draft.write("log", "log")
    body = f"fused_log<{plan.batch}, {len(network.metrics)}>({sums}, {span}, {failed}, {totals}, {log});"
    draft.done(body, (ONE, ONE, ONE), takes_rows=False)
