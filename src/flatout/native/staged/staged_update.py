"""Penalties, norms and the optimizer in staged form: one kernel over all trained weights."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from flatout.native.model.c_expressions import c_bool, c_float
from flatout.native.model.network import Network, Optimizer, Weight
from flatout.native.program.builder import THREADS, Builder, per_block
from flatout.native.program.kernel_program import Role


def _offsets(weights: Sequence[Weight]) -> list[int]:
    return list(itertools.accumulate((weight.size for weight in weights), initial=0))


def _table(kind: str, name: str, values: Sequence[str]) -> str:
    return f"const {kind} {name}[] = {{{', '.join(values)}}};"


def add_weights(builder: Builder, network: Network) -> None:
    """Buffers for all weights: the trained ones, their gradients and slots lie one after the other in arenas."""
    trained = network.trained
    roles: dict[str, Role] = {"weights": "weight"}
    if network.optimizer is not None:
        roles |= {"gradients": "gradient", **dict.fromkeys(network.optimizer.slots, "slot")}
    for arena, role in roles.items() if trained else ():
        builder.buffer(arena, (_offsets(trained)[-1],), role)
    for weight, offset in zip(trained, _offsets(trained), strict=False):
        for arena, role in roles.items():
            name = {"weight": weight.name, "gradient": f"{weight.name}/gradient"}.get(role, f"{weight.name}/{arena}")
            builder.buffer(name, weight.shape, role, arena=arena, offset=offset)
    for weight in network.weights:
        if not weight.trainable:
            builder.buffer(weight.name, weight.shape, "weight")


def penalty_kernel(builder: Builder, network: Network) -> list[str]:
    """The kernel of the L1 and L2 penalties, if there are any."""
    trained = network.trained
    found = [pair for pair in zip(trained, _offsets(trained), strict=False) if pair[0].is_penalized]
    if not found:
        return []
    penalties = builder.buffer("penalties", (len(found),), "activation")
    draft = builder.kernel("penalty", "L1 and L2 penalties, a block for each weight")
    moved = 4 * sum(weight.size for weight, _ in found)
    weights, result = draft.read("weights", "weights", moved), draft.write("penalties", penalties)
    lines = [
        _table("int", "begin", [str(offset) for _, offset in found]),
        _table("int", "count", [str(weight.size) for weight, _ in found]),
        _table("float", "l1", [c_float(weight.l1) for weight, _ in found]),
        _table("float", "l2", [c_float(weight.l2) for weight, _ in found]),
        "const int n = blockIdx.x;",
        f"penalty({weights} + begin[n], count[n], l1[n], l2[n], {result} + n);",
    ]
    return [draft.done(lines, per_block(len(found)), moved, takes_rows=False)]


def update_kernels(builder: Builder, network: Network) -> list[str]:
    """The kernels that turn gradients into weights."""
    optimizer, trained = network.optimizer, network.trained
    if optimizer is None or not trained:
        return []
    offsets, total = _offsets(trained), _offsets(trained)[-1]
    names: list[str] = []
    norms = None
    if optimizer.clip in ("norm", "global_norm"):
        norms = builder.buffer("norms", (len(trained),), "activation")
        draft = builder.kernel("norms", "the squared norm of each weight's gradient")
        gradients, result = draft.read("gradients", "gradients"), draft.write("norms", norms)
        lines = [
            _table("int", "begin", [str(offset) for offset in offsets]),
            "const int n = blockIdx.x;",
            f"squared_norm({gradients} + begin[n], begin[n + 1] - begin[n], {result} + n);",
        ]
        names.append(draft.done(lines, per_block(len(trained)), 2 * total, takes_rows=False))
    draft = builder.kernel("update", f"{_title(optimizer)}: every weight by its gradient")
    draft.write("weights", "weights", also_read=True)
    draft.read("gradients", "gradients")
    for slot in optimizer.slots:
        draft.write(slot, slot, also_read=True)
    draft.read("scalars", "scalars", moved=8)
    draft.read("clock", "clock")
    draft.read("norms", norms)
    lines = [
        "const int i = blockIdx.x * THREADS + threadIdx.x;",
        f"if (i >= {total}) return;",
        "const float learning_rate = scalars[2 * clock[1]];",
        "float w = weights[i], g = gradients[i];",
        *_clip(optimizer, offsets),
        *_decay(optimizer, trained, offsets),
        *_RULES[optimizer.kind](optimizer),
        "weights[i] = w;",
    ]
    names.append(draft.done(lines, per_block(total, THREADS), 12 * total, takes_rows=False))
    return names


def _title(optimizer: Optimizer) -> str:
    adam = "Adam" if optimizer.weight_decay is None else "AdamW"
    return {"sgd": "SGD", "adam": adam, "rmsprop": "RMSprop"}[optimizer.kind]


def _number_of_weight(offsets: Sequence[int]) -> str:
    """A C expression for which weight the parameter `i` belongs to."""
    inner = "".join(f"i < {end} ? {number} : " for number, end in enumerate(offsets[1:-1]))
    return f"{inner}{len(offsets) - 2}"


def _clip(optimizer: Optimizer, offsets: Sequence[int]) -> list[str]:
    most = c_float(optimizer.clip_at)
    if optimizer.clip == "value":
        return [f"g = clipped(g, -{most}, {most});"]
    if optimizer.clip == "norm":
        return [f"g = clipped_by_norm(g, norms[{_number_of_weight(offsets)}], {most});"]
    if optimizer.clip == "global_norm":
        return [f"g *= global_scale(norms, {len(offsets) - 1}, {most});"]
    return []


def _decay(optimizer: Optimizer, trained: Sequence[Weight], offsets: Sequence[int]) -> list[str]:
    if optimizer.weight_decay is None or not optimizer.decayed:
        return []
    line = f"w -= w * {c_float(optimizer.weight_decay)} * learning_rate;"
    if all(weight.name in optimizer.decayed for weight in trained):
        return [line]
    flags = [c_bool(weight.name in optimizer.decayed) for weight in trained]
    return [_table("bool", "decays", flags), f"if (decays[{_number_of_weight(offsets)}]) {line}"]


def _sgd(optimizer: Optimizer) -> list[str]:
    if not optimizer.slots:
        return ["w -= g * learning_rate;"]
    momentum = c_float(optimizer["momentum"])
    step = f"m * {momentum} - g * learning_rate" if optimizer["nesterov"] else "m"
    return [f"const float m = momentum[i] * {momentum} - g * learning_rate;", "momentum[i] = m;", f"w += {step};"]


def _adam(optimizer: Optimizer) -> list[str]:
    lines = [
        "// The learning rate with both corrections for the first steps.",
        "const float alpha = scalars[2 * clock[1] + 1];",
        f"const float m = momentum[i] + (g - momentum[i]) * {c_float(1 - optimizer['beta_1'])};",
        f"const float v = velocity[i] + (g * g - velocity[i]) * {c_float(1 - optimizer['beta_2'])};",
        "momentum[i] = m;",
        "velocity[i] = v;",
    ]
    most = "v"
    if "velocity_hat" in optimizer.slots:
        lines += ["const float most = v > velocity_hat[i] || v != v ? v : velocity_hat[i];", "velocity_hat[i] = most;"]
        most = "most"
    return [*lines, f"w -= m * alpha / (sqrtf({most}) + {c_float(optimizer['epsilon'])});"]


def _rmsprop(optimizer: Optimizer) -> list[str]:
    rho, rest = c_float(optimizer["rho"]), c_float(1 - optimizer["rho"])
    lines = [f"const float v = {rho} * velocity[i] + {rest} * (g * g);", "velocity[i] = v;"]
    denominator = f"v + {c_float(optimizer['epsilon'])}"
    if "average_gradient" in optimizer.slots:
        lines += [
            f"const float average = {rho} * average_gradient[i] + {rest} * g;",
            "average_gradient[i] = average;",
        ]
        denominator = f"v - average * average + {c_float(optimizer['epsilon'])}"
    lines.append(f"const float step = learning_rate * g / sqrtf({denominator});")
    if "momentum" not in optimizer.slots:
        return [*lines, "w -= step;"]
    lines.append(f"const float m = {c_float(optimizer['momentum'])} * momentum[i] + step;")
    return [*lines, "momentum[i] = m;", "w -= m;"]


_RULES = {"sgd": _sgd, "adam": _adam, "rmsprop": _rmsprop}
