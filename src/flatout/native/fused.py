"""Which models the fused form serves, and how: one kernel for all steps, in a cluster of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..errors import Refusal, reason
from .network import Affine, Dense, Layer, Network, Softmax

# Of a block, on Hopper.
SHARED_BYTES = 227 * 1024
_BATCHES = (16, 32, 64)
_CLUSTERS = (16, 8, 4, 2)
# Values of x that a half holds as they are.
_SMALL_INTEGERS = ("uint8", "int8", "bool")
# Registers of a thread that weights, optimizer state and forward sums may take, by warps of a block: what is left of
# them must do for the rest, or the kernel is slow.
_REGISTERS = {4: 200, 8: 200, 12: 110}
# The product of four of Adam's denominators must not vanish.
_LEAST_EPSILON = 1e-10

Precision = Literal["exact", "fast"]


@dataclass(frozen=True)
class FusedPlan:
    """The shape of a fused kernel.

    Attributes:
        inputs: Features of a row.
        hidden: Units of the first Dense layer.
        outputs: Classes.
        batch: Rows of a step.
        cluster: Blocks.
        warps: Of a block.
        tiles: Of 16 features, together with those that are only there to fill the warps.
        planes: 1 where a value of x is one half, 2 where it is the sum of two.
        is_raw: Whether the halves are the integers of x themselves, and a Rescaling is left to the kernel.
        precision: `"exact"`: every operand as the sum of two halves; `"fast"`: as one.
        input: The Rescaling or Normalization before the first Dense layer.
        slots: Variables of the optimizer beside each weight.
    """

    inputs: int
    hidden: int
    outputs: int
    batch: int
    cluster: int
    warps: int
    tiles: int
    planes: int
    is_raw: bool
    precision: Precision
    input: Affine | None
    slots: int

    @property
    def units(self) -> int:
        """Hidden units of a block."""
        return self.hidden // self.cluster

    @property
    def tiles_of_a_warp(self) -> int:
        return self.tiles // self.warps

    @property
    def registers(self) -> int:
        """What weights, optimizer state and forward sums take of a thread's registers."""
        state = (self.tiles_of_a_warp + 1) * self.units // 2 * (1 + self.slots)
        sums = (
            self.batch // 2
            if self.units == 8
            else self.units * self.batch // 32 * (2 if self.precision == "exact" else 1)
        )
        return state + sums

    @property
    def tiles_at_once(self) -> int:
        return min(self.tiles_of_a_warp, {8: 6, 16: 2}.get(self.units, 1))

    @property
    def row_halves(self) -> int:
        """Halves of a row of x in device memory."""
        return self.planes * self.tiles * 16

    @property
    def shared_bytes(self) -> int:
        """As the struct in fused.cuh adds up; every part is a multiple of 16 bytes."""
        stride = 12 if self.outputs <= 12 else 20
        x = 2 * self.batch * (2 * self.row_halves + 16)
        floats = self.warps * self.units * self.batch  # forward sums
        floats += 2 * self.batch * self.outputs  # logits
        floats += 2 * self.units * self.batch  # hidden units and slopes
        floats += self.batch * stride + self.batch // 8 * 32 * 2 * (self.units // 8)  # gradients
        floats += self.units * stride + self.units + 2 * 16  # second kernel and biases
        floats += self.cluster * self.warps + 4 * 2  # flags and barriers
        return math.ceil((x + 4 * floats) / 128) * 128

    @property
    def title(self) -> str:
        return f"one kernel, {self.cluster} blocks of {self.warps} warps, precision {self.precision!r}"


def plans(
    network: Network, batch: int, x_type: str, weighted: bool, precision: Precision, is_scaled_by_one: bool = True
) -> list[FusedPlan]:
    """The shapes of a kernel that trains a network in one go, the most promising first.

    Args:
        network: The network.
        batch: Rows of a step.
        x_type: Type of x in device memory.
        weighted: Whether rows have sample weights.
        precision: What the user asks for.
        is_scaled_by_one: Whether a Rescaling before the first Dense layer is one positive factor for all features.

    Raises:
        Refusal: There is none; the reason says what stands against it.
    """
    problem = _problem_of_data(batch, weighted) or _problem_of_network(network) or _problem_of_optimizer(network)
    if problem is not None:
        raise Refusal(reason("native_form", f"one kernel a stage, because {problem}"))
    layers = network.layers
    affine = layers[0] if isinstance(layers[0], Affine) else None
    dense = _denses(layers)[0]
    is_raw = x_type in _SMALL_INTEGERS and (affine is None or (affine.kind == "rescale" and is_scaled_by_one))
    assert network.optimizer is not None
    found: list[FusedPlan] = []
    for cluster in _CLUSTERS:
        if (dense.outputs != 8 * cluster and dense.outputs % (16 * cluster)) or batch % cluster:
            continue
        planes = 1 if is_raw or precision == "fast" else 2
        for warps in _warps(dense, planes, batch):
            tiles = _padded_tiles(math.ceil(dense.inputs / 16), warps)
            slots = len(network.optimizer.slots)
            plan = FusedPlan(
                dense.inputs,
                dense.outputs,
                network.outputs,
                batch,
                cluster,
                warps,
                tiles,
                planes,
                is_raw,
                precision,
                affine,
                slots,
            )
            if plan.shared_bytes <= SHARED_BYTES and plan.registers <= _REGISTERS[warps]:
                found.append(plan)
    if not found:
        what = f"{dense.inputs} to {dense.outputs} values with a batch of {batch}"
        raise Refusal(reason("native_form", f"one kernel a stage, because {what} do not fit a cluster of blocks"))
    # Eight units a block fill the matrix tiles with both halves of the operands. For each cluster the first number of
    # warps is the most promising.
    firsts = {plan.cluster: plan for plan in reversed(found)}
    return sorted(found, key=lambda plan: (firsts[plan.cluster] is not plan, plan.units))


def _denses(layers: tuple[Layer, ...]) -> list[Dense]:
    return [layer for layer in layers if isinstance(layer, Dense)]


def _warps(dense: Dense, planes: int, batch: int) -> list[int]:
    """Warps of a block worth trying, best first: as many as have a tile of features; then more, for their registers."""
    tiles = math.ceil(dense.inputs / 16)
    most = 12 if planes == 1 else 8
    usable = [warps for warps in (12, 8, 4) if warps <= most and warps >= batch // 8]
    return [warps for warps in usable if warps <= tiles] + [warps for warps in usable[::-1] if warps > tiles]


def _padded_tiles(tiles: int, warps: int) -> int:
    """Tiles with those that fill the warps: each has as many, and those without another role may have one more."""
    each, extra = divmod(tiles, warps)
    return tiles if each > 0 and extra <= warps - 3 else (each + 1) * warps


def _problem_of_data(batch: int, weighted: bool) -> str | None:
    if weighted:
        return "rows have sample weights"
    if batch not in _BATCHES:
        return f"the batch size is {batch}, not {', '.join(map(str, _BATCHES[:-1]))} or {_BATCHES[-1]}"
    return None


def _problem_of_network(network: Network) -> str | None:
    kinds = [type(layer) for layer in network.layers]
    core = kinds[1:] if kinds[:1] == [Affine] else kinds
    has_softmax = core[-1:] == [Softmax]
    if core not in ([Dense, Dense], [Dense, Dense, Softmax]):
        return "the model is not a Dense layer with an activation and a Dense layer with or without softmax"
    first, second = _denses(network.layers)
    if not second.curve.is_linear or first.lines != 1 or second.lines != 1:
        return f"{second.name} has the activation {second.curve.name}, or a layer works on more than one axis"
    weights = [*first.weights, *second.weights]
    if len(weights) != 4 or not all(weight.trainable for weight in weights):
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
    return None


def _problem_of_optimizer(network: Network) -> str | None:
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
