"""The staged form as a program: one kernel after the other, forward, loss, backward, update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flatout.base.errors import Refusal, reason
from flatout.native.model.network import Layer, Network, Softmax
from flatout.native.model.read_model import read
from flatout.native.program.builder import READABLE, THREADS, Builder
from flatout.native.program.kernel_program import ONE, STEPS_PER_CHUNK, GridExtent, KernelProgram, StepName
from flatout.native.program.kernel_source import shared_code

from .staged_layers import LayerOutput, backward, forward
from .staged_loss import accumulate_kernel, emit_kernels, loss_kernel, score_kernel
from .staged_update import add_weights, penalty_kernel, update_kernels

# Offsets into a batch are 32-bit.
_MOST_VALUES = 2**31 - 1
# Outputs of so many steps are kept on the device before they are fetched.
_OUTPUT_BYTES = 64 * 2**20


def staged_program(
    model: Any, task: StepName, batch_size: int, x_type: str, y_type: str | None, weighted: bool
) -> KernelProgram:
    """A model as one kernel a stage, for data of these types.

    Raises:
        Refusal: There are no kernels for it.
    """
    network, binding = read(model, task)
    if network.widest * batch_size > _MOST_VALUES:
        raise Refusal(reason("native_data", f"a batch of {batch_size} rows has more than 2**31 values"))
    if y_type is None:
        y_type = "int32" if network.has_sparse_targets else "float32"
    for name in (x_type, y_type):
        if name not in READABLE:
            raise Refusal(reason("native_data", f"they are {name}"))
    builder = Builder(batch_size)
    steps = _Stages(builder, network, x_type, y_type, weighted).steps
    prelude = shared_code(list(builder.declarations.values()), list(builder.kernels.values()))
    return KernelProgram(network, "staged", batch_size, builder.layout, builder.kernels, steps, prelude, model, binding)


class _Stages:
    """The steps of a network: `steps` are the kernels of each kind of step, in order."""

    def __init__(self, builder: Builder, network: Network, x_type: str, y_type: str, weighted: bool):
        self._builder = builder
        self._network = network
        self._weighted = weighted
        builder.buffer("x", (0, network.features), "data", x_type)
        if network.loss is not None:
            builder.buffer("y", (0, self._target_width), "data", y_type)
        if weighted:
            builder.buffer("weight", (0, 1), "data")
        builder.buffer("order", (0,), "data", "int32")
        builder.buffer("clock", (2,), "state", "int32")
        if network.optimizer is not None:
            builder.buffer("scalars", (STEPS_PER_CHUNK, 2), "state")
        if network.dropouts:
            builder.buffer("seeds", (len(network.dropouts), 2), "state", "int32")
        add_weights(builder, network)
        self.steps: dict[StepName, tuple[str, ...]] = {}
        if network.optimizer is not None:
            self.steps["train"] = tuple(self._with_loss(training=True))
        if network.loss is not None:
            self.steps["test"] = tuple(self._with_loss(training=False))
        self.steps["predict"] = tuple(self._predict())

    @property
    def _target_width(self) -> int:
        return 1 if self._network.has_sparse_targets else self._network.outputs

    def _gather(self, with_targets: bool) -> str:
        """The kernel that takes the rows of a step: x, and for a loss also targets and weights, side by side."""
        network, builder = self._network, self._builder
        parts = [("x", "batch", network.features, "float32")]
        if with_targets:
            dtype = "int32" if network.has_sparse_targets else "float32"
            parts.append(("y", "target", self._target_width, dtype))
            if self._weighted:
                parts.append(("weight", "sample_weight", 1, "float32"))
        what = ", ".join(source for source, *_ in parts)
        name = "gather" if with_targets else "gather_x"
        draft = builder.kernel(name, f"{what} of this step's rows, through the order")
        order, clock = draft.read("order", "order", moved=4 * builder.batch_size), draft.read("clock", "clock")
        lines = []
        for number, (source, target, width, dtype) in enumerate(parts):
            shape = (builder.batch_size,) if width == 1 else (builder.batch_size, width)
            batch = draft.write(target, builder.buffer(target, shape, "activation", dtype))
            moved = builder.batch_size * width * np.dtype(builder.layout[source].dtype).itemsize
            data = draft.read(source, source, moved=moved)
            lines.append(f"if (blockIdx.y == {number}) gather<{width}>({data}, {order}, {clock}, {batch}, rows);")
        widest = max(width for _, _, width, _ in parts)
        return draft.done(lines, (GridExtent(per_row=widest, tile=THREADS), GridExtent(fixed=len(parts)), ONE))

    def _forward(self, layers: Sequence[Layer], training: bool) -> tuple[list[str], list[LayerOutput]]:
        """The kernels of the forward pass, and the values before the first layer and after each."""
        names: list[str] = []
        values = [LayerOutput("batch")]
        for layer in layers:
            kernels, value = forward(self._builder, layer, values[-1], training)
            names += kernels
            values.append(value)
        return names, values

    def _last_softmax(self) -> Softmax | None:
        """The last layer if it is a softmax that the kernel of the loss computes too."""
        network = self._network
        last = network.layers[-1] if network.layers else None
        loss = network.loss
        fused = loss is not None and loss.kind in ("sparse", "categorical") and loss.form in ("z", "probabilities")
        return last if isinstance(last, Softmax) and fused else None

    def _with_loss(self, training: bool) -> list[str]:
        """The kernels of a step of training, or of one that only computes the loss."""
        network, builder, softmax = self._network, self._builder, self._last_softmax()
        layers = network.layers[:-1] if softmax is not None else network.layers
        gather = self._gather(with_targets=True)
        names, values = self._forward(layers, training)
        output = f"{softmax.name}/y" if softmax is not None else values[-1].name
        loss, gradient = loss_kernel(builder, network, values[-1], self._weighted, training, softmax)
        names = [gather, *names, loss, *score_kernel(builder, network, output), *penalty_kernel(builder, network)]
        if training:
            first = next((n for n, layer in enumerate(layers) if any(w.trainable for w in layer.weights)), len(layers))
            for number in range(len(layers) - 1, first - 1, -1):
                assert gradient is not None
                kernels, gradient = backward(
                    builder, layers[number], values[number], values[number + 1], gradient, wants_dx=number > first
                )
                names += kernels
            names += update_kernels(builder, network)
        return [*names, accumulate_kernel(builder, network, self._weighted, STEPS_PER_CHUNK)]

    def _predict(self) -> list[str]:
        network, builder = self._network, self._builder
        gather = self._gather(with_targets=False)
        names, values = self._forward(network.layers, training=False)
        steps = max(1, min(STEPS_PER_CHUNK, _OUTPUT_BYTES // (4 * builder.batch_size * network.outputs)))
        return [gather, *names, *emit_kernels(builder, network, values[-1].name, steps)]
