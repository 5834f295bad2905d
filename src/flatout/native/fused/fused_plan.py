"""Which models the fused form serves, and how: one kernel for all steps, in a cluster of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from flatout.base.errors import Refusal, reason
from flatout.native.model.network import Affine, Dense, Network, Softmax

# Of a block, on Hopper.
SHARED_BYTES = 227 * 1024
_BATCHES = (16, 32, 64)
_CLUSTERS = (16, 8, 4, 2)
MOST_HIDDEN = 6
# Values of x that a half holds as they are.
_SMALL_INTEGERS = ("uint8", "int8", "bool")
# Registers of a thread that weights, optimizer state and forward sums may take, by warps of a block: what is left of
# them must do for the rest, or the kernel is slow.
_REGISTERS = {4: 200, 8: 200, 12: 110}
# The same with several hidden layers, which have more to do while weights of others wait.
_REGISTERS_OF_A_STACK = {4: 200, 8: 240, 12: 110}
# The product of four of Adam's denominators must not vanish.
_LEAST_EPSILON = 1e-10

Precision = Literal["exact", "fast"]


def units_of_a_block(width: int, cluster: int) -> int:
    """Units of a layer that each block owns: 8 or a multiple of 16. The last ones may only fill the matrix tiles."""
    least = math.ceil(width / cluster)
    return 8 if least <= 8 else math.ceil(least / 16) * 16


@dataclass(frozen=True)
class FusedPlan:
    """The shape of a fused kernel.

    Attributes:
        hidden: Units of each hidden Dense layer.
        batch: Rows of a step.
        cluster: Blocks.
        warps: Of a block.
        planes: 1 where a value of x is one half, 2 where it is the sum of two.
        is_raw: Whether the halves are the integers of x themselves, and a Rescaling is left to the kernel.
        precision: `"exact"`: every operand as the sum of two halves; `"fast"`: as one.
        input: The Rescaling or Normalization before the first Dense layer.
        slots: Variables of the optimizer beside each weight.
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    batch: int
    cluster: int
    warps: int
    planes: int
    is_raw: bool
    precision: Precision
    input: Affine | None
    slots: int

    @property
    def layers(self) -> tuple[FusedLayer, ...]:
        """The hidden layers. Those above the first are given halves that the kernel made."""
        above = 2 if self.precision == "exact" else 1
        sizes = pairwise((self.inputs, *self.hidden))
        return tuple(FusedLayer(self, *size, above if n else self.planes) for n, size in enumerate(sizes))

    @property
    def buffers(self) -> int:
        """Batches of x that shared memory holds: this one and the next, or, where there is no room, one."""
        return 2 if len(self.hidden) == 1 or self._bytes_with(2) <= SHARED_BYTES else 1

    @property
    def registers(self) -> int:
        """What weights, optimizer state and forward sums take of a thread's registers."""
        layers = self.layers
        return sum(layer.state_registers for layer in layers) + max(layer.sum_registers for layer in layers)

    @property
    def shared_bytes(self) -> int:
        """As the structs in fused_layout.cuh and fused_stack_layout.cuh add up."""
        return self._bytes_with(self.buffers)

    @property
    def fits(self) -> bool:
        most = (_REGISTERS if len(self.hidden) == 1 else _REGISTERS_OF_A_STACK)[self.warps]
        return self.shared_bytes <= SHARED_BYTES and self.registers <= most

    def _bytes_with(self, buffers: int) -> int:
        first, *above = self.layers
        last = self.layers[-1]
        stride = 12 if self.outputs <= 12 else 20
        rows = buffers * first.row_bytes + sum(layer.row_bytes for layer in above)
        floats = sum(layer.own_floats for layer in self.layers)
        floats += self.warps * max(layer.units for layer in self.layers) * self.batch  # forward sums
        floats += 2 * self.batch * self.outputs + self.batch * stride  # logits and their gradients
        floats += last.units * self.batch + last.units * stride + 2 * 16  # last units, kernel and bias of the output
        floats += self.cluster * self.warps + 4 * 2  # flags and barriers
        if above:
            parts = self.cluster * max(layer.units for layer in self.layers[:-1]) * self.batch
            floats += parts * (2 if len(above) > 1 else 1) + 2 * 2 * len(self.layers)
            rows += 128 * len(self.layers)  # each layer's memory begins at a multiple of 128 bytes
        return math.ceil((rows + 4 * floats) / 128) * 128

    @property
    def title(self) -> str:
        layers = f" for {len(self.hidden)} hidden layers" if len(self.hidden) > 1 else ""
        return f"one kernel{layers}, {self.cluster} blocks of {self.warps} warps, precision {self.precision!r}"


@dataclass(frozen=True)
class FusedLayer:
    """What a hidden layer of a plan takes of a block; `planes` halves make one value of its input."""

    plan: FusedPlan
    inputs: int
    width: int
    planes: int

    @property
    def units(self) -> int:
        return units_of_a_block(self.width, self.plan.cluster)

    @property
    def tiles(self) -> int:
        """Of 16 inputs: each warp has as many, and those without another role may have one more. Some only fill up."""
        tiles, warps = math.ceil(self.inputs / 16), self.plan.warps
        each, extra = divmod(tiles, warps)
        return tiles if each > 0 and extra <= warps - 3 else (each + 1) * warps

    @property
    def tiles_of_a_warp(self) -> int:
        return self.tiles // self.plan.warps

    @property
    def tiles_at_once(self) -> int:
        return min(self.tiles_of_a_warp, 6 if self.units == 8 else 1)

    @property
    def state_registers(self) -> int:
        """What weights and optimizer state take of a thread's registers."""
        return (self.tiles_of_a_warp + 1) * self.units // 2 * (1 + self.plan.slots)

    @property
    def sum_registers(self) -> int:
        """The same of forward sums."""
        if self.units == 8:
            return self.plan.batch // 2
        return self.units * self.plan.batch // 32 * (2 if self.plan.precision == "exact" else 1)

    @property
    def row_halves(self) -> int:
        """Halves of a row of its input, for the first layer as they lie in device memory."""
        return self.planes * self.tiles * 16

    @property
    def row_bytes(self) -> int:
        """All rows of its input in shared memory."""
        return self.plan.batch * (2 * self.row_halves + 16)

    @property
    def own_floats(self) -> int:
        """Slopes, gradient and bias in shared memory."""
        batch = self.plan.batch
        return self.units * batch + batch // 8 * 32 * 2 * (self.units // 8) + self.units


def plans(
    network: Network, batch: int, x_type: str, weighted: bool, precision: Precision, is_scaled_by_one: bool = True
) -> list[FusedPlan]:
    """The shapes of a kernel that trains a network in one go, the most promising first.

    `is_scaled_by_one` says whether a Rescaling before the first Dense layer is one positive factor for all features.

    Raises:
        Refusal: There is none; the reason says what stands against it.
    """
    if (problem := _problem(network, batch, weighted)) is not None:
        raise Refusal(reason("native_form", f"one kernel a stage, because {problem}"))
    affine = network.layers[0] if isinstance(network.layers[0], Affine) else None
    hidden = tuple(dense.outputs for dense in network.denses[:-1])
    inputs = network.denses[0].inputs
    is_raw = x_type in _SMALL_INTEGERS and (affine is None or (affine.kind == "rescale" and is_scaled_by_one))
    planes = 1 if is_raw or precision == "fast" else 2
    assert network.optimizer is not None
    slots = len(network.optimizer.slots)
    shapes = (
        FusedPlan(inputs, hidden, network.outputs, batch, cluster, warps, planes, is_raw, precision, affine, slots)
        for cluster in _clusters(hidden, batch)
        for warps in _warps(inputs, planes, batch)
    )
    found = [plan for plan in shapes if plan.fits]
    if not found:
        what = f"{' to '.join(map(str, (inputs, *hidden)))} values with a batch of {batch}"
        raise Refusal(reason("native_form", f"one kernel a stage, because {what} do not fit a cluster of blocks"))
    # Eight units a block fill the matrix tiles with both halves of the operands. For each cluster the first number of
    # warps is the most promising.
    firsts = {plan.cluster: plan for plan in reversed(found)}
    return sorted(found, key=lambda plan: (firsts[plan.cluster] is not plan, plan.layers[0].units))


def _clusters(hidden: tuple[int, ...], batch: int) -> list[int]:
    """Sizes of a cluster worth trying: not those where half the blocks would have as many units each."""

    def units(cluster: int) -> list[int]:
        return [units_of_a_block(width, cluster) for width in hidden]

    return [one for one in _CLUSTERS if batch % one == 0 and (one == _CLUSTERS[-1] or units(one) != units(one // 2))]


def _warps(inputs: int, planes: int, batch: int) -> list[int]:
    """Warps of a block worth trying, best first: as many as have a tile of features; then more, for their registers."""
    tiles = math.ceil(inputs / 16)
    most = 12 if planes == 1 else 8
    usable = [warps for warps in (12, 8, 4) if warps <= most and warps >= batch // 8]
    return [warps for warps in usable if warps <= tiles] + [warps for warps in usable[::-1] if warps > tiles]


def _problem(network: Network, batch: int, weighted: bool) -> str | None:
    if weighted:
        return "rows have sample weights"
    if batch not in _BATCHES:
        return f"the batch size is {batch}, not {', '.join(map(str, _BATCHES[:-1]))} or {_BATCHES[-1]}"
    kinds = [type(layer) for layer in network.layers]
    core = kinds[1:] if kinds[:1] == [Affine] else kinds
    has_softmax = core[-1:] == [Softmax]
    denses = network.denses
    if len(denses) < 2 or core not in ([Dense] * len(denses), [*[Dense] * len(denses), Softmax]):
        return "the model is not a chain of Dense layers with activations, the last with softmax or none"
    if len(denses) > MOST_HIDDEN + 1:
        return f"there are {len(denses) - 1} hidden layers, more than {MOST_HIDDEN}"
    *_, last = denses
    if not last.curve.is_linear or any(dense.lines != 1 for dense in denses):
        return f"{last.name} has the activation {last.curve.name}, or a layer works on more than one axis"
    weights = [weight for dense in denses for weight in dense.weights]
    if len(weights) != 2 * len(denses) or not all(weight.trainable for weight in weights):
        return "a Dense layer has no bias, or does not train"
    if any(weight.is_penalized for weight in weights):
        return "weights have penalties"
    loss = network.loss
    forms = ("z", "probabilities") if has_softmax else ("logits",)
    if loss is None or loss.kind != "sparse" or loss.form not in forms:
        return "the loss is not the sparse cross-entropy of a softmax or of logits"
    if not loss.is_mean or loss.scale != 1:
        return "the loss is not the mean over the rows, or has a weight"
    if any(metric.kind != "sparse_accuracy" for metric in network.metrics):
        return "there are metrics beside the accuracy"
    if network.outputs > 16:
        return f"there are {network.outputs} classes, more than 16"
    optimizer = network.optimizer
    if optimizer is None or optimizer.kind not in ("adam", "sgd") or "velocity_hat" in optimizer.slots:
        return "the optimizer is neither Adam nor SGD"
    if optimizer.clip != "none" or (optimizer.weight_decay is not None and optimizer.decayed):
        return "the optimizer clips gradients or decays weights"
    if optimizer.kind == "adam":
        if not _LEAST_EPSILON <= optimizer["epsilon"] <= 1:
            return f"Adam's epsilon is {optimizer['epsilon']:g}"
        if not (0 <= optimizer["beta_1"] <= 0.999 and 0 <= optimizer["beta_2"] <= 0.9999):
            return "Adam's betas are too near to 1"
    return None
