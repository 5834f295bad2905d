"""A model's optimizer as an `Optimizer`."""

from __future__ import annotations

from typing import Any, Literal

from flatout.base.errors import Refusal, reason
from flatout.seam.keras_names import is_of_keras
from flatout.seam.optimizers import decays, position_of, slot_variables

from .binding import Binding
from .network import Network, Optimizer, OptimizerKind

Clip = Literal["none", "value", "norm", "global_norm"]
_KINDS: dict[str, OptimizerKind] = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "RMSprop": "rmsprop"}


def read_optimizer(model: Any, network: Network, binding: Binding) -> Optimizer:
    """Read the optimizer of a compiled model, building it if need be, and bind its variables."""
    optimizer = model.optimizer
    kind = _KINDS.get(type(optimizer).__name__)
    if kind is None or not is_of_keras(type(optimizer)) or "update_step" in vars(optimizer):
        raise Refusal(reason("native_optimizer", type(optimizer).__name__, "it has no kernel"))
    for name in ("use_ema", "loss_scale_factor", "gradient_accumulation_steps"):
        if getattr(optimizer, name, None):
            raise Refusal(reason("native_optimizer", optimizer.name, f"{name} has no kernel"))
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    slots, numbers = _numbers(kind, optimizer)
    clip, clip_at = _clip(optimizer)
    decayed: set[str] = set()
    for weight in network.trained:
        variable = binding.weights[weight.name]
        for slot in slots:
            variables = slot_variables(optimizer, slot)
            binding.slots[f"{weight.name}/{slot}"] = variables[position_of(optimizer, variable)]
        if decays(optimizer, variable):
            decayed.add(weight.name)
    return Optimizer(
        kind,
        tuple(slots),
        tuple(numbers.items()),
        clip,
        clip_at,
        None if optimizer.weight_decay is None else float(optimizer.weight_decay),
        frozenset(decayed),
    )


def _numbers(kind: OptimizerKind, optimizer: Any) -> tuple[list[str], dict[str, float]]:
    """The slots in the order of the kernel's arguments, and the constants of the formula."""
    if kind == "sgd":
        slots = ["momentum"] if optimizer.momentum != 0 else []
        return slots, {"momentum": float(optimizer.momentum), "nesterov": float(bool(optimizer.nesterov))}
    if kind == "adam":
        slots = ["momentum", "velocity", *(["velocity_hat"] if optimizer.amsgrad else [])]
        return slots, {name: float(getattr(optimizer, name)) for name in ("beta_1", "beta_2", "epsilon")}
    slots = ["velocity"]
    if optimizer.momentum > 0:
        slots.append("momentum")
    if optimizer.centered:
        slots.append("average_gradient")
    return slots, {name: float(getattr(optimizer, name)) for name in ("rho", "momentum", "epsilon")}


def _clip(optimizer: Any) -> tuple[Clip, float]:
    clips: tuple[tuple[str, Clip], ...] = (
        ("clipnorm", "norm"),
        ("global_clipnorm", "global_norm"),
        ("clipvalue", "value"),
    )
    for name, clip in clips:
        limit = getattr(optimizer, name)
        if limit and limit > 0:
            return clip, float(limit)
    return "none", 0.0
